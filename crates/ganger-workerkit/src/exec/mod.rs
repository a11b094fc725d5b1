//! `ganger exec`: a worker of either version whose work is done by another program, started anew
//! for each message. The body goes to the program's stdin or into a file, the metadata into
//! variables, and the program's end determines the result of the message (docs/exec.md).
//!
//! Everything runs on one thread, which must be the program's first: the kernel kills the processes
//! that a thread has started when the thread ends.

mod answer;
mod control;
mod error;
mod files;
mod guard;
mod pipe;
mod relay;
mod result;
mod script;
mod session;
mod settings;
mod variables;

use std::path::PathBuf;

use tokio::runtime::Builder;

use control::Control;
use ganger_config as config;
use ganger_config::model::WorkerCommand;
use ganger_core::names;
use guard::Guard;
use pipe::Pipe;
use settings::Terms;

pub use error::ExecError;
pub use guard::watch;
pub use settings::Settings;

/// Processes messages until the daemon needs no more.
///
/// # Errors
/// Why it can't start, or continue.
pub fn run(settings: Settings) -> Result<(), ExecError> {
    let command = command_of(&settings);
    // Told now, it is a worker that can't be started, which is no message's fault.
    config::find_program(&command).map_err(ExecError::Program)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ExecError::system("creating the event loop failed"))?;
    runtime.block_on(work(&settings, command))
}

async fn work(settings: &Settings, command: WorkerCommand) -> Result<(), ExecError> {
    let terms = Terms::of(&settings.env);
    let mut control = Control::open()?;
    let name = control.line().await.ok_or(ExecError::NoDaemon)?;
    let place = match settings.env.get(names::ENV_PIPE) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(format!("{}/{}{name}", names::PIPE_DIR, names::PIPE_PREFIX)),
    };
    let guard = Guard::start()?;
    let pipe = Pipe::connect(place, terms.frame_bytes_max).await?;
    let session = session::Session {
        settings,
        terms,
        command,
        guard,
        pipe,
        control,
    };
    session.serve().await
}

/// Returns the command of the program without the parts of a message. Variables and pipes between
/// the daemon and this worker are not passed on.
fn command_of(settings: &Settings) -> WorkerCommand {
    let mut env = settings.env.clone();
    for ours in [
        names::ENV_PIPE,
        names::ENV_PROTOCOL,
        names::ENV_FRAME_BYTES_MAX,
    ] {
        env.remove(ours);
    }
    WorkerCommand {
        program: settings.program.clone(),
        args: settings.args.clone(),
        env,
        cwd: None,
        user: None,
        limits: Default::default(),
    }
}
