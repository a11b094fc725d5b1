//! A first worker: it answers in capitals.

use ganger_worker::{Error, Outcome, Task, Worker};

fn shout(task: &Task) -> Result<Outcome, std::str::Utf8Error> {
    Ok(Outcome::reply(task.text()?.to_uppercase() + "!"))
}

fn main() -> Result<(), Error> {
    Worker::new().concurrency(4).run(shout)
}
