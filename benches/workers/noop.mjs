// A worker that does nothing: where the library is, and how many tasks at once.

const [library, concurrency] = process.argv.slice(2);
const { run } = await import(library);

await run(() => {}, { concurrency: Number(concurrency) });
