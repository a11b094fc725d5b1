//! A worker for ganger: it greets whoever is named in the message.

use ganger_worker::{Error, Outcome, Task, Worker};

fn greet(task: &Task) -> Result<Outcome, std::str::Utf8Error> {
    Ok(match task.text()? {
        "" => Outcome::reject("nobody to greet"), // never tried again: a dead letter
        name => Outcome::reply(format!("Hello, {name}!")),
    })
}

fn main() -> Result<(), Error> {
    Worker::new().run(greet)
}

#[cfg(test)]
mod tests {
    use ganger_worker::testing::work;

    use super::*;

    /// The handler in a real worker, without a daemon.
    #[test]
    fn whoever_is_named_is_greeted() -> Result<(), Error> {
        let answers = work(&Worker::new(), greet, ["world", ""])?;
        let told = |n: usize| (answers[n].status, answers[n].text());
        assert_eq!(told(0), (201, "Hello, world!"));
        assert_eq!(told(1), (400, "nobody to greet"));
        Ok(())
    }
}
