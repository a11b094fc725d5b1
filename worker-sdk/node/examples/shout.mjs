// A first worker: it answers in capitals.
import { reply, run } from "ganger-worker";

await run((task) => reply(`${task.text.toUpperCase()}!`), { concurrency: 4 });
