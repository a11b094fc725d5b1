// A worker for ganger.
import { run } from "ganger-worker";
import { greet } from "./greet.js";

await run(greet);
