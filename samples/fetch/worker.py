"""Fetches each page whose URL comes, and publishes what it is about to the topic `summaries`.

One process has 32 pages in hand: nearly all of the time it waits for others' servers. A server that
is busy or away is asked again later, when it says so if it does; a page that is not there, or is no
page, is rejected.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial

import httpx
from ganger_worker import AsyncTask, Outcome, reject, reply, retry, serve
from summary import summarise

CONCURRENCY = 32
SUMMARIES = "summaries"
BYTES_MAX = 2 << 20
# To connect, and from one piece of the answer to the next; the pool's `timeout` is for the whole.
TIMEOUT = httpx.Timeout(10)
# Too busy, too early, or something is wrong over there: it may be right the next time.
LATER = {408, 425, 429, 500, 502, 503, 504}


async def main() -> None:
    limits = httpx.Limits(max_connections=CONCURRENCY)
    async with httpx.AsyncClient(
        timeout=TIMEOUT, limits=limits, follow_redirects=True, headers={"User-Agent": "ganger-sample"}
    ) as client:
        await serve(partial(handle, client), concurrency=CONCURRENCY)


async def handle(client: httpx.AsyncClient, task: AsyncTask) -> Outcome:
    try:
        async with client.stream("GET", task.text) as response:
            return await judge(response)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as error:
        return reject(f"{task.text}: {error}")
    except httpx.RequestError as error:  # no name, no connection, too slow, cut off
        return retry(f"{task.text}: {type(error).__name__}: {error}")


async def judge(response: httpx.Response) -> Outcome:
    status = f"{response.url}: {response.status_code} {response.reason_phrase}"
    if response.status_code in LATER:
        after = response.headers.get("retry-after", "")
        # In seconds. A date is also allowed there; for that the pool's own wait has to do.
        return retry(status, after=int(after) if re.fullmatch("[0-9]{1,9}", after) else None)
    if not response.is_success:
        return reject(status)
    kind = response.headers.get("content-type", "")
    if not kind.startswith("text/html"):
        return reject(f"{response.url}: not a page: {kind or 'it does not say what it is'}")
    page = bytearray()
    async for part in response.aiter_bytes():
        page += part
        if len(page) > BYTES_MAX:
            return reject(f"{response.url}: longer than {BYTES_MAX} bytes")
    html = page.decode(response.encoding or "utf-8", errors="replace")
    # In a thread, since the other 31 go on meanwhile.
    summary = await asyncio.to_thread(summarise, html)
    return reply(json.dumps({"url": str(response.url), **summary}), queue=SUMMARIES)


asyncio.run(main())
