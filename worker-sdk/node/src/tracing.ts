/** OpenTelemetry's context, taken from a message's `traceparent` where its API is installed. */

import type { Task } from "./task.js";

interface Api {
  ROOT_CONTEXT: unknown;
  context: { with<T>(context: unknown, work: () => T): T };
  propagation: { extract(context: unknown, carrier: unknown): unknown };
}

let api: Api | undefined;

/** Looks whether it is there. */
export async function loadTracing(): Promise<void> {
  const name = "@opentelemetry/api";
  try {
    api = (await import(name)) as Api;
  } catch {
    api = undefined;
  }
}

/** Works in the message's context. */
export function traced<T>(task: Task, work: (task: Task) => T): T {
  if (api === undefined || !("traceparent" in task.headers)) return work(task);
  return api.context.with(api.propagation.extract(api.ROOT_CONTEXT, task.headers), () => work(task));
}
