/**
 * Sends each message's body to the URL in its header `url`, by POST, signed.
 *
 * A receiver may get an event twice, as every receiver of webhooks may: when this process or the
 * network dies after its answer. Both have the same `webhook-id`, by which it can tell.
 */

import { createHmac } from "node:crypto";
import { done, reject, retry, run, type Outcome, type Task } from "ganger-worker";
import { retryAfterMs } from "./retry-after.js";

const KEY = required("WEBHOOK_SECRET");
const HOST_TIMEOUTS = new Map<string, number>(Object.entries(JSON.parse(process.env["HOST_TIMEOUTS"] ?? "{}")));
const TIMEOUT_MS = 10_000;
/** Statuses below 500 that may be otherwise the next time. */
const PASSING = new Set([408, 425, 429]);

await run(deliver, { concurrency: 64 });

async function deliver(task: Task): Promise<Outcome> {
  const url = target(task.headers["url"]);
  if (url === undefined) return reject(`the header url must be a http or https URL: ${task.headers["url"]}`);
  const id = task.properties["message_id"];
  if (typeof id !== "string") return reject("the message must have a message id");
  const body = Buffer.from(task.bytes);
  let response: Response;
  try {
    response = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json", ...signed(id, body) },
      body,
      redirect: "manual", // who moves says so to us, not to whoever answers at the old address
      signal: AbortSignal.any([task.signal, AbortSignal.timeout(HOST_TIMEOUTS.get(url.host) ?? TIMEOUT_MS)]),
    });
    await response.body?.cancel();
  } catch (error) {
    return retry(`${url.host}: ${reason(error)}`);
  }
  return judged(response, url);
}

function judged(response: Response, url: URL): Outcome {
  const { status, ok } = response;
  if (ok) return done();
  const answer = `${url.host} answered ${status}`;
  if (status >= 500 || PASSING.has(status)) {
    return retry(answer, { afterMs: retryAfterMs(response.headers.get("retry-after"), Date.now()) });
  }
  // 410: it wants no more of this. Other 4xx and redirects: as we ask, it will never take it.
  return reject(answer);
}

/** As standardwebhooks.com has it: the signature is of id, time and body. */
function signed(id: string, body: Buffer): Record<string, string> {
  const timestamp = String(Math.floor(Date.now() / 1000));
  const hmac = createHmac("sha256", KEY).update(`${id}.${timestamp}.`).update(body);
  return {
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": `v1,${hmac.digest("base64")}`,
  };
}

function target(text: string | undefined): URL | undefined {
  if (text === undefined || !URL.canParse(text)) return undefined;
  const url = new URL(text);
  return ["http:", "https:"].includes(url.protocol) ? url : undefined;
}

/** `fetch` says only "fetch failed"; why is in the cause. */
function reason(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  return String(cause);
}

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} must be set`);
  return value;
}
