//! Named pipe that a worker connects to: at the path that version 1 workers expect, private to the worker's
//! user, and removed from the file system once it is connected. The connection handles the traffic over it.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use interprocess::local_socket::traits::tokio::Listener as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use interprocess::os::unix::uds_local_socket::tokio::Listener as Socket;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{Uid, fchownat};

use super::connection::Connection;
use super::error::PipeError;
use super::peer::Expected;
use super::{Identity, peer};
use ganger_config::model::WorkerCommand;
use ganger_core::names;

/// Maximum length of a socket's path, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A pipe that a worker is about to connect to. On drop its paths are removed.
#[derive(Debug)]
pub struct Listener {
    place: PipePath,
    open: Option<OpenPipe>,
    expected: Expected,
    identity: Identity,
    frame_bytes_max: usize,
}

impl Listener {
    /// Returns the absolute path of the socket.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Waits for the worker to connect. Connections of other peers are closed and logged, and the wait
    /// continues. After the one connection no other is possible, and the paths are removed. Cancel-safe.
    ///
    /// # Errors
    /// If the system can't accept a connection, or the worker has connected before.
    pub async fn accept(&mut self) -> Result<Connection, PipeError> {
        let path = || self.place.path.clone();
        let Some(open) = &self.open else {
            return Err(PipeError::Taken { path: path() });
        };
        loop {
            let accepted = open.socket.inner().accept().await;
            let (stream, _) = accepted.map_err(|cause| PipeError::Accept {
                path: path(),
                cause,
            })?;
            match peer::check(&stream, self.expected) {
                Ok(()) => {
                    self.open = None;
                    return Ok(Connection::new(stream, self.frame_bytes_max));
                }
                Err(why) => tracing::warn!(
                    pool = %self.identity.pool, worker = self.identity.slot,
                    "rejected connection to a worker's pipe: {why}"
                ),
            }
        }
    }
}

/// A pipe whose worker has not been started yet.
#[derive(Debug)]
pub(super) struct Unclaimed {
    place: PipePath,
    open: OpenPipe,
}

/// Parts that exist only until the one connection.
#[derive(Debug)]
struct OpenPipe {
    /// Removes the socket's path when dropped.
    socket: Socket,
    /// Link at the path that .NET uses, if it is another.
    _link: Option<Link>,
}

/// Place of a pipe.
#[derive(Debug, Clone)]
pub(super) struct PipePath {
    name: String,
    path: PathBuf,
    /// Link at the path that .NET uses, if it is another.
    link: Option<PathBuf>,
}

impl PipePath {
    /// Chooses a place for the pipe of a worker.
    pub(super) fn create(command: &WorkerCommand) -> Result<Self, PipeError> {
        let name = random_name()?;
        Ok(Self {
            path: path_in(Path::new(names::PIPE_DIR), &name),
            link: dotnet_directory(command).and_then(|directory| link_in(&directory, &name)),
            name,
        })
    }

    /// Returns the absolute path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path at which the child creates a symbolic link to the socket before it executes the
    /// program.
    pub(super) fn link(&self) -> Option<&Path> {
        self.link.as_deref()
    }
}

impl Unclaimed {
    /// Creates a pipe that only `uid` (and root) can open, from the first moment on.
    pub(super) fn create(command: &WorkerCommand, uid: Uid) -> Result<Self, PipeError> {
        let place = PipePath::create(command)?;
        let socket = listen(&place.path).map_err(|cause| PipeError::Create {
            path: place.path.clone(),
            cause,
        })?;
        if uid != Uid::effective() {
            give_to(uid, &place.path).map_err(|cause| PipeError::Chown {
                uid: uid.as_raw(),
                cause,
            })?;
        }
        let link = place.link.clone().map(Link);
        Ok(Self {
            place,
            open: OpenPipe {
                socket,
                _link: link,
            },
        })
    }

    /// Logs if the started worker could not create the link: programs other than .NET do not need it.
    pub(super) fn check_link(&self, identity: &Identity) {
        let Some(link) = self.place.link() else {
            return;
        };
        if let Err(error) = link.symlink_metadata() {
            tracing::warn!(
                pool = %identity.pool, worker = identity.slot, %error,
                "linking a worker's pipe in its TMPDIR, where .NET looks for it, failed: its user \
                 must be allowed to write to that directory: `{}`",
                link.parent().unwrap_or(link).display()
            );
        }
    }

    /// Returns the place of the pipe.
    pub(super) fn place(&self) -> &PipePath {
        &self.place
    }

    /// Returns the name that the worker gets.
    pub(super) fn name(&self) -> &str {
        &self.place.name
    }

    /// Makes the listener that waits for this worker.
    pub(super) fn claim(
        self,
        expected: Expected,
        identity: Identity,
        frame_bytes_max: usize,
    ) -> Listener {
        Listener {
            place: self.place,
            open: Some(self.open),
            expected,
            identity,
            frame_bytes_max,
        }
    }
}

/// Returns 32 hexadecimal digits of 128 random bits.
fn random_name() -> Result<String, PipeError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(PipeError::Random)?;
    Ok(bits.iter().fold(String::new(), |mut name, byte| {
        write!(name, "{byte:02x}").expect("writing to a String does not fail");
        name
    }))
}

fn path_in(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{}{name}", names::PIPE_PREFIX))
}

/// Creates the socket. Its mode is set before it has a path, so that others can connect at no time, and no
/// umask has to be changed.
fn listen(path: &Path) -> io::Result<Socket> {
    let name = path.to_fs_name::<GenericFilePath>()?;
    Socket::from_options(ListenerOptions::new().name(name).mode(0o600))
}

/// Changes the owner of the socket to that user, and of no file that another has put in its place.
fn give_to(uid: Uid, path: &Path) -> Result<(), Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let socket = open(path, flags, Mode::empty())?;
    let found = fstat(&socket)?;
    let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
    let owner = Uid::from_raw(found.st_uid);
    if kind != SFlag::S_IFSOCK || owner != Uid::effective() || found.st_nlink != 1 {
        return Err(Errno::EEXIST);
    }
    fchownat(&socket, "", Some(uid), None, AtFlags::AT_EMPTY_PATH)
}

/// Returns the directory that .NET uses for temporary files, if it is not the directory of the pipe. Source:
/// `Path.GetTempPath` in the .NET runtime, `Path.Unix.cs`.
fn dotnet_directory(command: &WorkerCommand) -> Option<PathBuf> {
    let configured = command.env.get("TMPDIR").filter(|path| !path.is_empty())?;
    let directory = match &command.cwd {
        Some(cwd) => cwd.join(configured),
        None => PathBuf::from(configured),
    };
    (directory != Path::new(names::PIPE_DIR)).then_some(directory)
}

/// Returns the path of a link to a pipe in that directory; `None` if it is too long for a socket's address,
/// which is logged.
fn link_in(directory: &Path, name: &str) -> Option<PathBuf> {
    let path = path_in(directory, name);
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        tracing::warn!(
            "linking a worker's pipe in its TMPDIR, where .NET looks for it, failed: a socket's \
             path must be at most {SOCKET_PATH_BYTES_MAX} bytes, and this has {bytes}: `{}`",
            path.display()
        );
        return None;
    }
    Some(path)
}

/// A symbolic link that the worker may have created. On drop it is removed. Its name is random and unique to
/// the worker, so that no other file has it wherever the worker's user may redirect its path.
#[derive(Debug)]
struct Link(PathBuf);

impl Drop for Link {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, path = %self.0.display(), "a pipe's link was already removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::command;
    use super::*;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

    #[tokio::test]
    async fn a_pipe_is_private_and_its_path_goes_with_it() {
        let pipe = Unclaimed::create(&command("true", &[]), Uid::effective()).unwrap();
        let path = pipe.place().path().to_owned();
        assert_eq!(
            path.to_str().unwrap(),
            format!("/tmp/CoreFxPipe_{}", pipe.name())
        );
        assert_eq!(pipe.name().len(), 32);
        let metadata = std::fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        drop(pipe);
        assert!(!path.exists());
    }

    #[test]
    fn names_do_not_repeat() {
        assert_ne!(random_name().unwrap(), random_name().unwrap());
    }

    #[test]
    fn dotnet_looks_below_tmpdir() {
        let cases = [
            (None, None, None),
            (Some(""), None, None),
            (Some("/tmp"), None, None),
            (Some("/tmp/"), Some("/srv"), None),
            (Some("/var/tmp"), Some("/srv"), Some("/var/tmp")),
            (Some("scratch"), Some("/srv"), Some("/srv/scratch")),
            (Some("scratch"), None, Some("scratch")),
        ];
        for (tmpdir, cwd, expected) in cases {
            let mut command = command("true", &[]);
            let tmpdir = tmpdir.map(|path: &str| ("TMPDIR".to_owned(), path.to_owned()));
            command.env.extend(tmpdir);
            command.cwd = cwd.map(PathBuf::from);
            assert_eq!(dotnet_directory(&command), expected.map(PathBuf::from));
        }
    }

    #[test]
    fn no_link_is_longer_than_a_sockets_address() {
        let name = "x".repeat(10);
        let longest = PathBuf::from(format!("/{}", "x".repeat(84)));
        let link = link_in(&longest, &name).unwrap();
        assert_eq!(link.as_os_str().len(), 107);
        assert_eq!(link_in(&longest.join("x"), &name), None);
    }

    #[test]
    fn what_is_in_the_place_of_the_socket_is_not_given_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (file, link, linked, socket) = (path("file"), path("link"), path("hard"), path("s"));
        std::fs::write(&file, "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let nobody = Uid::from_raw(65_534);
        let refused = |path: &Path| assert_eq!(give_to(nobody, path), Err(Errno::EEXIST));
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        refused(&file);
        refused(&link);
        std::fs::hard_link(&socket, &linked).unwrap();
        refused(&socket);
        std::fs::remove_file(&linked).unwrap();
        let expected = if Uid::effective().is_root() {
            Ok(())
        } else {
            Err(Errno::EPERM)
        };
        assert_eq!(give_to(nobody, &socket), expected);
        let is_given = socket.metadata().unwrap().uid() == nobody.as_raw();
        assert_eq!(is_given, expected.is_ok());
        assert_eq!(file.metadata().unwrap().uid(), Uid::effective().as_raw());
    }
}
