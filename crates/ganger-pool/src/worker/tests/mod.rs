//! Tests with real processes, and their common parts.

mod confinement;
mod connecting;
mod life;

use std::future::Future;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::task::LocalSet;

use super::leader::pollable;
use super::process::{Starting, spawn};
use super::spawner::Spawner;
use super::{Identity, Introduction};
use ganger_config::model::{Limits, WorkerCommand};

/// Time after which a test counts as hung.
const TEST_DEADLINE: Duration = Duration::from_secs(60);
/// Timeout in tests that expect an end of file, never a deadline.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Spawner whose thread has to outlive the processes that it starts.
static SPAWNER: LazyLock<Spawner> = LazyLock::new(|| Spawner::new("tests"));

const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// Makes a plain command with nothing but a `PATH`.
pub(super) fn command(program: &str, args: &[&str]) -> WorkerCommand {
    WorkerCommand {
        program: program.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())].into(),
        cwd: None,
        user: None,
        limits: Limits::default(),
    }
}

pub(super) fn identity() -> Identity {
    Identity {
        pool: "tests".into(),
        slot: 3,
    }
}

fn shell(script: &str) -> WorkerCommand {
    command("sh", &["-c", script])
}

async fn start(command: &WorkerCommand) -> Starting {
    let command = std::sync::Arc::new(command.clone());
    let introduction = Introduction::Full;
    spawn(
        &SPAWNER,
        &command,
        &identity(),
        introduction,
        FRAME_BYTES_MAX,
    )
    .await
    .unwrap()
}

/// Runs a worker to its end and returns what it wrote to stderr.
async fn stderr_of(command: &WorkerCommand) -> Vec<String> {
    let mut process = start(command).await.process;
    process.wait().await;
    process.last_words(FOR_EVER).await
}

/// Runs a future as the pool's thread does.
fn on_a_pool_thread<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new()
        .block_on(&runtime, async {
            tokio::time::timeout(TEST_DEADLINE, test).await
        })
        .expect("the test ends within its deadline")
}

/// Waits until a process, which need not be a child, has exited.
async fn until_gone(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    if let Ok(pidfd) = pollable(pid) {
        drop(pidfd.readable().await.unwrap());
    }
}
