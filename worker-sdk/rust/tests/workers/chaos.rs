//! The worker of ganger's own tests of this library: real daemon, real queue, workers killed.
//! Arguments: `threads` or `tokio`, the concurrency, the version. What it does is in the file $RECORD.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ganger_worker::{Error, Level, Outcome, Task, Worker};

struct Recorder(File);

impl Recorder {
    fn note(&self, event: &str, task: &Task) {
        let body = task
            .text()
            .map_or("bytes".to_owned(), |text| text.chars().take(100).collect());
        let attempt = task
            .attempt
            .map_or("-".to_owned(), |number| number.to_string());
        let at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_micros());
        let line = format!("{event}\t{body}\t{}\t{attempt}\t{at}\n", process::id());
        (&self.0)
            .write_all(line.as_bytes())
            .expect("the record takes a line");
    }
}

/// What the messages ask for; None for an emit, which each kind of worker sends in its own way.
fn chaos(task: &Task) -> Option<Outcome> {
    let Ok(text) = task.text() else {
        return Some(Outcome::reply(task.message.clone()));
    };
    Some(match text {
        _ if text.starts_with("shout: ") => {
            let colour = task.headers.get("colour").map(String::as_str);
            Outcome::reply(text.to_uppercase()).header("colour", colour)
        }
        "raise" => panic!("no good"),
        "retry" if task.attempt == Some(1) => {
            Outcome::retry("later").after(Duration::from_millis(10))
        }
        "emit" => return None,
        "log" => {
            task.log(Level::Warn, "it is hot", &[("degrees", 90.into())]);
            task.progress("half way");
            Outcome::done()
        }
        _ => Outcome::done(),
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    let concurrency = arguments[2].parse().expect("a number");
    if arguments[3] == "1" {
        // What a daemon that knows version 1 only does not set.
        // SAFETY: there is one thread.
        #[expect(unsafe_code, reason = "no other thread reads the environment yet")]
        unsafe {
            env::remove_var("GANGER_PROTOCOL");
        }
    }
    let path = env::var_os("RECORD").expect("$RECORD");
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .expect("the record");
    let worker = Worker::new().concurrency(concurrency);
    let result = match arguments[1].as_str() {
        "tokio" => with_tokio(worker, Recorder(file)),
        _ => with_threads(worker, &Recorder(file)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn with_threads(worker: Worker, recorder: &Recorder) -> Result<(), Error> {
    worker.run(|task: &Task| -> Result<Outcome, Error> {
        recorder.note("began", task);
        task.cancellation().wait(Duration::from_millis(2));
        let outcome = match chaos(task) {
            Some(outcome) => outcome,
            None => {
                task.emit("parts", "part", &[("n", 1.into())])?;
                Outcome::done()
            }
        };
        recorder.note("done", task);
        Ok(outcome)
    })
}

#[tokio::main]
async fn with_tokio(worker: Worker, recorder: Recorder) -> Result<(), Error> {
    let recorder = Arc::new(recorder);
    worker
        .run_async(move |task| {
            let recorder = Arc::clone(&recorder);
            async move {
                recorder.note("began", &task);
                tokio::time::sleep(Duration::from_millis(2)).await;
                let outcome = match chaos(&task) {
                    Some(outcome) => outcome,
                    None => {
                        task.emit("parts", "part", &[("n", 1.into())]).await?;
                        Outcome::done()
                    }
                };
                recorder.note("done", &task);
                Ok::<_, Error>(outcome)
            }
        })
        .await
}
