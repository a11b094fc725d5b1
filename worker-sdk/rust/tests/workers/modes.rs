//! The worker of `process`: it does what a body's first word says.
//! Arguments: `sync`, `tokio` or `tokio-threads`, the concurrency, the longest frame.

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use ganger_worker::{AsyncTask, Error, Failure, Level, Logger, Outcome, Task, Value, Worker};

const AGES: Duration = Duration::from_secs(600);

/// What both kinds do alike; None for what they do in their own ways.
fn mode(task: &Task) -> Option<Result<Outcome, Failure>> {
    let Ok(text) = task.text() else {
        return Some(Ok(Outcome::reply(task.message.clone())));
    };
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(Ok(match verb {
        "" | "done" => Outcome::done(),
        "echo" => Outcome::reply(rest),
        "headers" => {
            let mut headers: Vec<_> = task.headers.iter().collect();
            headers.sort();
            Outcome::reply(format!("{headers:?}"))
                .to(rest)
                .header("n", 7)
                .header("ü", "é")
        }
        "about" => Outcome::reply(format!(
            "{} {} {:?} {:?} {:?}",
            task.correlation_id, task.queue, task.attempt, task.milliseconds_left, task.properties
        )),
        "retry" => Outcome::retry("later").after(Duration::from_millis(1500)),
        "reject" => Outcome::reject("never"),
        "requeue" => Outcome::requeue(""),
        "status" => Outcome::with_status(rest.parse().expect("a number"), "odd"),
        "fail" => {
            return Some(
                "x".parse::<u8>()
                    .map(|_| Outcome::done())
                    .map_err(Into::into),
            );
        }
        "traced" => return Some(Err(Box::new(Traced))),
        "panic" => panic!("no good: {rest}"),
        "speechless" => return Some(Err(Box::new(Speechless))),
        "unspeakable" => match rest {
            "extension" => {
                Outcome::reply("x").header("deep", within(62, Value::Extension(1, vec![])))
            }
            "number" => Outcome::reply("x").header("n", Value::Integer(i128::MAX)),
            "many" => (0..10_001).fold(Outcome::reply("x"), |reply, n| reply.header("n", n)),
            _ => Outcome::reply("x").header("deep", within(70, Value::Nil)),
        },
        "names" => names(task),
        "child" => Outcome::reply(child()),
        "fork" => Outcome::reply(forked(task)),
        "exit" => std::process::exit(7),
        "large" => Outcome::reply("x".repeat(rest.parse().expect("a number"))),
        "progress" => {
            task.progress("1 of 2");
            Outcome::done()
        }
        "log" => {
            task.log(
                Level::Debug,
                "noted",
                &[("target", "tests".into()), ("n", 1.into())],
            );
            Outcome::done()
        }
        "facade" => {
            log::warn!(target: "tests", degrees = 90, level = "high"; "hot {}", "stuff");
            log::debug!("not to be seen");
            Outcome::done()
        }
        _ => return None,
    }))
}

fn within(levels: usize, value: Value) -> Value {
    (0..levels).fold(value, |inner, _| Value::List(vec![inner]))
}

/// Headers and fields with names that are something else in other languages.
fn names(task: &Task) -> Outcome {
    let mut headers: Vec<_> = task.headers.iter().collect();
    headers.sort();
    headers
        .into_iter()
        .fold(Outcome::reply("named"), |reply, (name, value)| {
            task.log(Level::Info, "named\nand more", &[(name, value.into())]);
            reply.header(name, value)
        })
}

/// What a child reads that has this process' stdin.
fn child() -> Vec<u8> {
    let mut cat = std::process::Command::new("/bin/cat");
    let child = cat.stdout(std::process::Stdio::piped()).spawn();
    let seen = child.and_then(|child| child.wait_with_output());
    seen.expect("a child").stdout
}

/// A child that comes out of the handler: what it has said, and how it has ended.
#[expect(unsafe_code, reason = "nothing else forks")]
fn forked(task: &Task) -> String {
    // SAFETY: the child does only what is tested here.
    match unsafe { libc::fork() } {
        0 => {
            task.log(Level::Warn, "of a child", &[]);
            task.progress("of a child");
            let refused = task.emit("parts", "of a child", &[]);
            eprintln!("{}", refused.expect_err("refused"));
            "the child's answer".to_owned()
        }
        child => {
            let mut status = 0;
            // SAFETY: it writes that number.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            format!("the parent's, of {status}")
        }
    }
}

/// A task that is kept when it is answered.
static LAST: std::sync::Mutex<Option<AsyncTask>> = std::sync::Mutex::new(None);
static STOPPER: std::sync::OnceLock<ganger_worker::Stopper> = std::sync::OnceLock::new();

fn late() -> Option<String> {
    let last = LAST.lock().expect("no panic");
    let task: &Task = last.as_ref()?;
    task.log(Level::Warn, "too late", &[("n", 1.into())]);
    task.progress("too late");
    let refused = task.emit("parts", "too late", &[]);
    Some(refused.expect_err("refused").to_string())
}

/// An error as `anyhow` shows one.
struct Traced;

impl std::fmt::Display for Traced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it has a history")
    }
}

impl std::fmt::Debug for Traced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it has a history\n\nStack backtrace:\n   0: somewhere")
    }
}

impl std::error::Error for Traced {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&std::fmt::Error)
    }
}

/// An error whose own text fails.
#[derive(Debug)]
struct Speechless;

impl std::fmt::Display for Speechless {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("without words")
    }
}

impl std::error::Error for Speechless {}

fn parts(task: &Task) -> impl Iterator<Item = (String, i32)> + use<> {
    let text = task.text().unwrap_or_default();
    let count = text.rsplit(' ').next().and_then(|count| count.parse().ok());
    (0..count.unwrap_or(0)).map(|n| (format!("part {n}"), n))
}

fn milliseconds(task: &Task) -> Duration {
    let text = task.text().unwrap_or_default();
    let number = text
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse().ok());
    Duration::from_millis(number.unwrap_or(0))
}

fn blocking(task: &Task, together: &Barrier) -> Result<Outcome, Failure> {
    if let Some(result) = mode(task) {
        return result;
    }
    match task.text()?.split(' ').next() {
        Some("together") => {
            together.wait();
        }
        Some("sleep") => std::thread::sleep(milliseconds(task)),
        Some("stuck") => {
            task.progress("begun");
            assert!(task.cancellation().wait(AGES) && task.is_cancelled());
            return Ok(Outcome::retry("gave up"));
        }
        Some("stop") => STOPPER.get().expect("one").stop(),
        Some("uncaught") => {
            task.progress("begun");
            task.cancellation().wait(AGES);
            task.check()?;
        }
        Some("wrapped") => {
            std::thread::sleep(milliseconds(task));
            task.progress("begun");
            task.cancellation().wait(AGES);
            task.check().map_err(Wrapped)?;
        }
        Some("emit") => {
            for (part, n) in parts(task) {
                task.emit("parts", part, &[("n", n.into())])?;
            }
        }
        _ => return Ok(Outcome::reply(task.message.clone())),
    }
    Ok(Outcome::done())
}

/// An error that a cancellation has led to.
#[derive(Debug)]
struct Wrapped(ganger_worker::Cancelled);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("while it waited")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Says so when its future is dropped.
struct Dropped(String);

impl Drop for Dropped {
    fn drop(&mut self) {
        eprintln!("dropped: {}", self.0);
    }
}

async fn awaiting(
    task: AsyncTask,
    together: Arc<tokio::sync::Barrier>,
) -> Result<Outcome, Failure> {
    if let Some(result) = mode(&task) {
        return result;
    }
    match task.text()?.split(' ').next() {
        Some("together") => {
            together.wait().await;
        }
        Some("sleep") => tokio::time::sleep(milliseconds(&task)).await,
        Some("stuck") => {
            let cancellation = task.cancellation();
            task.progress("begun");
            cancellation.cancelled().await;
            assert!(task.is_cancelled());
            return Ok(Outcome::retry("gave up"));
        }
        Some("stop") => STOPPER.get().expect("one").stop(),
        Some("uncaught") => {
            let _seen = Dropped(task.text()?.to_owned());
            task.progress("begun");
            std::future::pending::<()>().await;
        }
        Some("last") => *LAST.lock().expect("no panic") = Some(task),
        Some("late") => return Ok(Outcome::reply(late().expect("a task"))),
        Some("late-panic") => {
            tokio::task::yield_now().await;
            panic!("no good, later");
        }
        Some("emit") => {
            for (part, n) in parts(&task) {
                task.emit("parts", part, &[("n", n.into())]).await?;
            }
        }
        _ => return Ok(Outcome::reply(task.message.clone())),
    }
    Ok(Outcome::done())
}

fn main() -> ExitCode {
    Logger::new()
        .install(log::LevelFilter::Info)
        .expect("the first logger");
    let arguments: Vec<String> = env::args().collect();
    let concurrency = arguments[2].parse().expect("a number");
    let frame_bytes_max = arguments[3].parse().expect("a number");
    let worker = Worker::new()
        .concurrency(concurrency)
        .frame_bytes_max(frame_bytes_max)
        .warm_up(|| match env::var("COLD") {
            Ok(why) => Err(why),
            Err(_) => Ok(()),
        });
    STOPPER.set(worker.stopper()).expect("the first");
    let result = match arguments[1].as_str() {
        "sync" => {
            let together = Barrier::new(concurrency);
            worker.run(|task: &Task| blocking(task, &together))
        }
        kind => with_tokio(worker, concurrency, kind == "tokio-threads"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn with_tokio(worker: Worker, concurrency: usize, threads: bool) -> Result<(), Error> {
    let mut runtime = match threads {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    let together = Arc::new(tokio::sync::Barrier::new(concurrency));
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(worker.run_async(move |task| awaiting(task, Arc::clone(&together))))
}
