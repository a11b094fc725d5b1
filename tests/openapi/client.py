"""Asks a daemon through the client that is generated from the description of its API: what comes is
what the description says, as the client has types for it."""

import sys
import time

from ganger_client import AuthenticatedClient
from ganger_client.api.dead_letters import groups, list_, retry, show
from ganger_client.api.health import metrics, readyz
from ganger_client.api.messages import publish
from ganger_client.api.pools import all_, one, scale
from ganger_client.api.sources import sources
from ganger_client.api.status import status
from ganger_client.api.subscriptions import subscriptions, unsubscribe
from ganger_client.models import (
    Changed,
    Chosen,
    DeadLetter,
    Health,
    Letters,
    Message,
    PoolStatus,
    Problem,
    Published,
    Reply,
    Scale,
    Status,
    Steered,
)


def wait_for(look):
    """Returns what is there at last."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.05)
    raise TimeoutError(look)


def main(url: str, token: str) -> None:
    client = AuthenticatedClient(base_url=url, token=token)
    stranger = AuthenticatedClient(base_url=url, token="guessed")

    def is_ready():
        health = readyz.sync(client=client)
        return isinstance(health, Health) and health.ok

    wait_for(is_ready)
    assert "ganger_build_info" in metrics.sync(client=client)
    everything = status.sync(client=client)
    assert isinstance(everything, Status)
    assert [pool.name for pool in everything.pools] == ["work"]
    assert isinstance(one.sync("work", client=client), PoolStatus)
    assert len(all_.sync(client=client)) == 1

    missing = one.sync("play", client=client)
    assert isinstance(missing, Problem) and missing.status == 404, missing
    refused = status.sync(client=stranger)
    assert isinstance(refused, Problem) and refused.status == 401, refused
    done = scale.sync("work", client=client, body=Scale(workers=2))
    assert isinstance(done, Steered), done

    message = Message(body="mode:reply hello", correlation_id="c-1", priority=3)
    published = publish.sync("work", client=client, body=message, wait="20s")
    assert isinstance(published, Published), published
    assert isinstance(published.reply, Reply), published
    assert published.reply.body == "re: mode:reply hello", published

    wrong = Message(body="mode:answer:400 wrong")
    assert publish.sync("work", client=client, body=wrong).sent == 1

    def dead():
        letters = list_.sync("main", client=client)
        assert isinstance(letters, Letters), letters
        return letters.letters

    letter = wait_for(dead)[0]
    assert isinstance(letter, DeadLetter) and isinstance(letter.id, str), letter
    assert letter.body == wrong.body, letter
    assert groups.sync("main", client=client)[0].id == letter.id
    assert show.sync("main", letter.id, client=client).id == letter.id
    mended = Chosen(ids=[letter.id], body="mended")
    changed = retry.sync("main", client=client, body=mended)
    assert isinstance(changed, Changed) and changed.changed == 1, changed
    again = retry.sync("main", client=client, body=mended)
    assert isinstance(again, Problem) and again.status == 404, again
    assert again.changed == 0, again
    known = sources.sync(client=client)
    assert [source.name for source in known] == ["main"], known
    assert subscriptions.sync(client=client) == []
    lost = unsubscribe.sync("main", "placed", "work", client=client)
    assert isinstance(lost, Problem) and lost.status == 404, lost
    print("done")


main(*sys.argv[1:])
