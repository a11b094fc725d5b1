/** `console`, over the pipe: what a handler says there becomes a record of its message. */

import { formatWithOptions } from "node:util";
import { currentTask, type Level } from "./task.js";

const LEVELS: Record<string, Level> = {
  debug: "debug",
  log: "info",
  info: "info",
  warn: "warn",
  error: "error",
};

/** Outside of a handler, and once its message is answered, `console` goes on as ever. What it returns puts things back. */
export function bridgeConsole(): () => void {
  const before = { ...console };
  for (const [name, level] of Object.entries(LEVELS)) {
    const original = (console as any)[name].bind(console);
    (console as any)[name] = (...args: unknown[]) => {
      const task = currentTask();
      if (task === undefined || task.answered) original(...args);
      else task.log(level, formatWithOptions({ colors: false }, ...args));
    };
  }
  return () => void Object.assign(console, before);
}
