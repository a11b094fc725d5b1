//! A worker that does nothing, for the benchmark of all languages. Its argument is how many tasks at once.

use std::env;

use ganger_worker::{Error, Outcome, Worker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let concurrency = env::args().nth(1).and_then(|number| number.parse().ok());
    let worker = Worker::new().concurrency(concurrency.expect("a number"));
    worker
        .run_async(|_| async { Ok::<_, Error>(Outcome::done()) })
        .await
}
