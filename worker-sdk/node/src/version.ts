/** What the daemon is told at the start. `package.json` has the same; a test compares them. */
export const VERSION = "0.1.0";
