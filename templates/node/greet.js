// What the worker does: it greets whoever is named in the message.
import { reject, reply } from "ganger-worker";

/** @type {import("ganger-worker").Handler} */
export function greet(task) {
  if (task.text === "") {
    return reject("nobody to greet"); // never tried again: a dead letter
  }
  return reply(`Hello, ${task.text}!`);
}
