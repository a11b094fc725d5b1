//! Launch of a configured command as a child process under its limits and user. Everything that the child
//! does before it executes the program is prepared here, in the parent: between fork and exec only
//! async-signal-safe calls are allowed.

use std::ffi::{CStr, CString, NulError};
use std::io;
use std::io::PipeWriter;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Pid, Uid};

use super::account::{Account, Change};
use super::error::{SpawnError, Step};
use super::pipe::PipePath;
use super::{Identity, Introduction, open_files, orphans};
use ganger_config as config;
use ganger_config::model;
use ganger_core::names;

/// `PATH` that the C library searches when the worker's environment sets none.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// File for the niceness of a session relative to others, where the kernel shares the processor between
/// sessions first.
const SESSION_NICENESS: &CStr = c"/proc/self/autogroup";

/// Number of files that a worker has from the start: stdin, stdout, stderr.
const STANDARD_STREAMS: libc::c_uint = 3;

/// Starts the child. It has read nothing yet, and its stdin, stdout and stderr are pipes.
///
/// The kernel kills it when the calling thread ends: see `spawner`.
pub(super) fn start(
    command: &model::WorkerCommand,
    identity: &Identity,
    account: Account,
    pipe: &PipePath,
    introduction: Introduction,
    frame_bytes_max: usize,
) -> Result<Child, SpawnError> {
    let mut confinement = Confinement::prepare(command, account)?;
    confinement.link = link_to(pipe).map_err(|_| nul(command))?;
    confinement.stdin_owner = confinement.change.as_ref().map(Change::owner);
    let mut child = program(command);
    introduce(
        &mut child,
        identity,
        pipe.path(),
        introduction,
        frame_bytes_max,
    );
    child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    confine(&mut child, confinement);
    orphans::start(|| child.spawn()).map_err(|error| spawn_error(command, error))
}

fn introduce(
    child: &mut Command,
    identity: &Identity,
    pipe: &Path,
    introduction: Introduction,
    frame_bytes_max: usize,
) {
    let version = match introduction {
        Introduction::Full => "2",
        Introduction::Version1 => "1",
        Introduction::NameOnly => return,
    };
    child
        .env(names::ENV_PROTOCOL, version)
        .env(names::ENV_POOL, &*identity.pool)
        .env(names::ENV_WORKER, identity.slot.to_string())
        .env(names::ENV_PIPE, pipe)
        .env(names::ENV_FRAME_BYTES_MAX, frame_bytes_max.to_string());
}

/// Starts another program beside a worker: as its user, in its directory and with its environment,
/// in a session of its own. Its output goes to `output`.
///
/// The kernel kills it when the calling thread ends.
pub(super) fn start_beside(
    command: &model::WorkerCommand,
    identity: &Identity,
    account: Account,
    output: PipeWriter,
) -> Result<Child, SpawnError> {
    let confinement = Confinement::prepare(command, account)?;
    let stdout = output
        .try_clone()
        .map_err(|error| spawn_error(command, error))?;
    let mut child = program(command);
    child
        .env(names::ENV_POOL, &*identity.pool)
        .env(names::ENV_WORKER, identity.slot.to_string())
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(output);
    confine(&mut child, confinement);
    orphans::start(|| child.spawn()).map_err(|error| spawn_error(command, error))
}

/// Starts a program of a worker's own, as that worker's user and with this environment, in a session
/// and process group of its own, whose number is written to `guard` before the program begins. Its stdin, stdout
/// and stderr are pipes.
///
/// The kernel kills it when the calling thread ends.
///
/// # Errors
/// If it can't be started.
pub fn start_guarded(
    command: &model::WorkerCommand,
    guard: &Arc<OwnedFd>,
) -> Result<Child, SpawnError> {
    let mut confinement = Confinement::prepare(command, Account::find(None)?)?;
    confinement.guard = Some(Arc::clone(guard));
    let mut child = program(command);
    child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    confine(&mut child, confinement);
    orphans::start(|| child.spawn()).map_err(|error| spawn_error(command, error))
}

/// Builds the command with its arguments and only its own environment.
fn program(command: &model::WorkerCommand) -> Command {
    let mut program = Command::new(&command.program);
    program.args(&command.args).env_clear().envs(&command.env);
    program
}

fn nul(command: &model::WorkerCommand) -> SpawnError {
    SpawnError::Nul {
        program: command.program.clone(),
    }
}

/// Returns the pipe's link and its target.
fn link_to(pipe: &PipePath) -> Result<Option<(CString, CString)>, NulError> {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let link = |link: &Path| Ok((text(link)?, text(pipe.path())?));
    pipe.link().map(link).transpose()
}

/// Precomputed steps that the child applies to itself.
#[derive(Debug)]
struct Confinement {
    limits: model::Limits,
    /// Niceness, as text.
    niceness: Option<String>,
    /// Soft and hard limit of open files.
    open_files: Option<(u64, u64)>,
    change: Option<Change>,
    /// User and group that get the pipe at stdin: Linux lets only its owner reopen it, which is how a program
    /// without `dup2` moves it out of its children's reach.
    stdin_owner: Option<(Uid, Gid)>,
    directory: Option<CString>,
    /// Symbolic link that the child creates, and the link's target. The directory may belong to the worker's
    /// user, who could redirect the actions of a more privileged process there.
    link: Option<(CString, CString)>,
    parent: Pid,
    /// Descriptor to which the number of its group is written.
    guard: Option<Arc<OwnedFd>>,
}

impl Confinement {
    fn prepare(command: &model::WorkerCommand, account: Account) -> Result<Self, SpawnError> {
        let directory = command
            .cwd
            .as_ref()
            .map(|path| CString::new(path.as_os_str().as_bytes()))
            .transpose()
            .map_err(|_| nul(command))?;
        let niceness = command.limits.cpu_nice.map(|nice| nice.to_string());
        Ok(Self {
            limits: command.limits,
            niceness,
            open_files: match command.limits.open_files {
                Some(files) => Some((files, files)),
                None => open_files::original(),
            },
            change: account.change,
            stdin_owner: None,
            directory,
            link: None,
            parent: nix::unistd::getpid(),
            guard: None,
        })
    }

    /// Applies the steps, in the child. Limits that only a privileged process may raise come before the
    /// change of user, which drops the privileges and the death signal; hence that is set after it.
    fn apply(&self) -> io::Result<()> {
        // A process in the daemon's session shares its terminal, and could write input to it. A session
        // leader leads a process group as well.
        nix::unistd::setsid().map_err(|e| Step::Session.failed(e))?;
        let limits = &self.limits;
        if let Some(bytes) = limits.memory_bytes {
            limit(Resource::RLIMIT_DATA, bytes).map_err(|e| Step::Memory.failed(e))?;
        }
        if let Some((soft, hard)) = self.open_files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)
                .map_err(|e| Step::OpenFiles.failed(e))?;
        }
        if let Some(nice) = limits.cpu_nice {
            renice(nice).map_err(|e| Step::Niceness.failed(e))?;
        }
        if let Some(nice) = &self.niceness {
            renice_session(nice);
        }
        if let Some(change) = &self.change {
            change.apply().map_err(|e| Step::User.failed(e))?;
        }
        if let Some((link, target)) = &self.link {
            // Most workers do not need the link, and the parent checks whether it exists.
            nix::unistd::symlinkat(target.as_c_str(), AT_FDCWD, link.as_c_str())
                .unwrap_or_default();
        }
        if let Some(directory) = &self.directory {
            nix::unistd::chdir(directory.as_c_str()).map_err(|e| Step::Directory.failed(e))?;
        }
        self.die_with_parent()?;
        self.register_with_guard()
    }

    /// Reports the process group to the guard after the death signal is set: a child whose parent dies before
    /// the guard knows of the group is killed by that signal, and has no children yet.
    fn register_with_guard(&self) -> io::Result<()> {
        let Some(guard) = &self.guard else {
            return Ok(());
        };
        let group = nix::unistd::getpid().as_raw().to_ne_bytes();
        nix::unistd::write(guard, &group).map_err(|e| Step::Guard.failed(e))?;
        Ok(())
    }

    /// Sets the death signal, which is sent at the parent's death, and checks whether the parent has died
    /// before.
    fn die_with_parent(&self) -> io::Result<()> {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
            .map_err(|e| Step::DeathSignal.failed(e))?;
        if nix::unistd::getppid() == self.parent {
            Ok(())
        } else {
            Err(Step::Orphaned.failed(Errno::ESRCH))
        }
    }
}

fn limit(resource: Resource, most: u64) -> Result<(), Errno> {
    setrlimit(resource, most, most)
}

fn renice(nice: i32) -> Result<(), Errno> {
    rustix::process::setpriority_process(None, nice)
        .map_err(|error| Errno::from_raw(error.raw_os_error()))
}

/// Sets the niceness of the session, as far as the kernel accepts it: some kernels lack this feature, and all
/// accept only one change in 100 ms from unprivileged processes.
fn renice_session(nice: &str) {
    let file = open(
        SESSION_NICENESS,
        OFlag::O_WRONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    );
    if let Ok(file) = file {
        nix::unistd::write(&file, nice.as_bytes()).unwrap_or_default();
    }
}

#[expect(
    unsafe_code,
    reason = "the one place where something must run between fork and exec"
)]
fn confine(child: &mut Command, confinement: Confinement) {
    // SAFETY: the closure runs in the forked child, where only async-signal-safe functions may be called,
    // since another thread may have held any lock at the fork. `Confinement::apply` makes plain system calls
    // (fchown, setsid, setrlimit, setpriority, open, write, close, setgroups, setgid, setuid, symlinkat,
    // chdir, prctl, getppid, getpid) on values that were computed before the fork; it allocates nothing,
    // frees nothing, takes no lock and does not panic. Its errors are plain numbers. close_range touches no
    // memory, and with this flag closes nothing before the exec; the pipe that reports a failure stays open
    // until then.
    unsafe {
        child.pre_exec(move || {
            // A worker that does not own it can still read it.
            if let Some((uid, gid)) = confinement.stdin_owner {
                libc::fchown(libc::STDIN_FILENO, uid.as_raw(), gid.as_raw());
            }
            confinement.apply()?;
            // Files left open by other code must not be inherited by the worker. Kernels before 5.11 lack
            // this.
            libc::syscall(
                libc::SYS_close_range,
                STANDARD_STREAMS,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
            Ok(())
        });
    }
}

/// Converts the error number that the child returned.
fn spawn_error(command: &model::WorkerCommand, error: io::Error) -> SpawnError {
    let program = command.program.clone();
    if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none() {
        return nul(command);
    }
    match Step::unpack(&error) {
        Some((step, cause)) => SpawnError::Confine {
            step,
            value: configured(command, step),
            cause,
        },
        None => match missing_part(command, &error) {
            Some(why) => SpawnError::Incomplete { program, why },
            None => SpawnError::Program {
                place: place(command),
                program,
                cause: error,
            },
        },
    }
}

/// Returns the missing part: a script without its interpreter is itself reported as missing.
fn missing_part(command: &model::WorkerCommand, error: &io::Error) -> Option<String> {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    is_missing.then(|| config::missing_part(command)).flatten()
}

fn configured(command: &model::WorkerCommand, step: Step) -> String {
    let limits = &command.limits;
    match step {
        Step::Memory => limits.memory_bytes.unwrap_or_default().to_string(),
        Step::OpenFiles => limits.open_files.unwrap_or_default().to_string(),
        Step::Niceness => limits.cpu_nice.unwrap_or_default().to_string(),
        Step::User => command.user.clone().unwrap_or_default(),
        Step::Directory => directory(command),
        Step::DeathSignal | Step::Orphaned | Step::Guard | Step::Session => command.program.clone(),
    }
}

/// Describes the place in which the system searches for the program: a path is relative to the worker's
/// directory, and a bare name is searched for in the worker's `PATH`.
fn place(command: &model::WorkerCommand) -> String {
    if command.program.contains('/') {
        return format!("from directory `{}`", directory(command));
    }
    let path = command.env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    format!("in PATH `{path}`, from directory `{}`", directory(command))
}

fn directory(command: &model::WorkerCommand) -> String {
    match &command.cwd {
        Some(path) => path.display().to_string(),
        None => std::env::current_dir()
            .map_or_else(|_| ".".to_owned(), |path| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::tests::{command, identity};
    use super::*;

    fn refused(command: &model::WorkerCommand) -> SpawnError {
        let account = Account::find(command.user.as_deref());
        account
            .and_then(|account| {
                let pipe = PipePath::create(command).unwrap();
                start(command, &identity(), account, &pipe, Introduction::Full, 1)
            })
            .unwrap_err()
    }

    #[test]
    fn a_step_and_its_cause_survive_the_packing() {
        for step in Step::ALL {
            let error = step.failed(Errno::EPERM);
            assert_eq!(Step::unpack(&error), Some((step, Errno::EPERM)));
        }
        let plain = io::Error::from_raw_os_error(Errno::ENOENT as i32);
        assert_eq!(Step::unpack(&plain), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_where_it_was_looked_for() {
        let mut missing = command("no-such-program", &[]);
        missing.env.insert("PATH".into(), "/bin:/opt/none".into());
        missing.cwd = Some("/tmp".into());
        assert_eq!(
            refused(&missing).to_string(),
            "starting a worker failed: No such file or directory (os error 2) (looked in PATH \
             `/bin:/opt/none`, from directory `/tmp`): `no-such-program`"
        );
    }

    #[test]
    fn a_program_that_is_no_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("data"), "x").unwrap();
        let mut data = command("./data", &[]);
        data.cwd = Some(directory.path().into());
        let error = refused(&data).to_string();
        assert!(error.contains("Permission denied"), "{error}");
        assert!(
            error.ends_with(&format!(
                "(looked from directory `{}`): `./data`",
                directory.path().display()
            )),
            "{error}"
        );
    }

    #[test]
    fn an_interpreter_that_is_not_there_is_told_from_its_script() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("script");
        std::fs::write(&file, "#!/no/such/interpreter\r\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut script = command("./script", &[]);
        script.cwd = Some(directory.path().into());
        let error = refused(&script).to_string();
        assert!(
            error.contains("`/no/such/interpreter\\r`; its lines end with CR LF"),
            "{error}"
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_told_from_the_program() {
        let mut homeless = command("true", &[]);
        homeless.cwd = Some("/no/such/place".into());
        assert_eq!(
            refused(&homeless).to_string(),
            "entering a worker's directory failed: No such file or directory: `/no/such/place`"
        );
    }

    #[test]
    fn a_user_must_exist() {
        let mut ghost = command("true", &[]);
        ghost.user = Some("no-such-user".into());
        assert_eq!(
            refused(&ghost).to_string(),
            "the worker's user must exist: `no-such-user`"
        );
    }

    #[test]
    fn a_nul_byte_is_refused() {
        let program = "a\0b".to_owned();
        assert!(matches!(
            refused(&command(&program, &[])),
            SpawnError::Nul { .. }
        ));
    }

    #[test]
    fn privileges_that_are_missing_are_told() {
        if Uid::effective().is_root() {
            return privileges_are_missing_without_root();
        }
        let mut greedy = command("true", &[]);
        greedy.limits.cpu_nice = Some(-5);
        let error = refused(&greedy).to_string();
        assert!(
            error.starts_with("setting a worker's niceness failed"),
            "{error}"
        );
        assert!(
            error.ends_with("the privileges are missing: `-5`"),
            "{error}"
        );
    }

    /// As root, only one action is left that is forbidden even to root: to open more files than the kernel
    /// allows.
    fn privileges_are_missing_without_root() {
        let mut greedy = command("true", &[]);
        greedy.limits.open_files = Some(1 << 40);
        assert_eq!(
            refused(&greedy).to_string(),
            "limiting a worker's open files failed: Operation not permitted, the privileges are \
             missing: `1099511627776`"
        );
    }
}
