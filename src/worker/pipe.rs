//! The named pipe that a worker connects to: where version 1 workers look for it, private to the
//! worker's user, gone from the file system once it is connected. What travels over it is the
//! connection's business.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use interprocess::local_socket::traits::tokio::Listener as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use interprocess::os::unix::uds_local_socket::tokio::Listener as Socket;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{Uid, fchownat};

use super::connection::Connection;
use super::error::PipeError;
use super::peer::Expected;
use super::{Identity, peer};
use crate::names;

/// The longest path that a socket's address holds, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A pipe that a worker is about to connect to. Dropped, its paths are removed.
#[derive(Debug)]
pub struct Listener {
    place: PipePath,
    open: Option<Open>,
    expected: Expected,
    identity: Identity,
    frame_bytes_max: usize,
}

impl Listener {
    /// The absolute path of the socket.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Waits for the worker to connect. Others are closed, logged, and waited on past. After the
    /// one connection nobody else can connect, and the paths are gone. Cancel-safe.
    ///
    /// # Errors
    /// If the system can't take a connection, or the worker has connected before.
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
                    "a stranger on a worker's pipe was turned away: {why}"
                ),
            }
        }
    }
}

/// A pipe whose worker has not been started yet.
#[derive(Debug)]
pub(super) struct Unclaimed {
    place: PipePath,
    open: Open,
}

/// What is there only until the one connection.
#[derive(Debug)]
struct Open {
    /// Removes the socket's path when dropped.
    socket: Socket,
    /// Where .NET looks, if elsewhere.
    _link: Option<Link>,
}

/// Where a pipe is.
#[derive(Debug, Clone)]
struct PipePath {
    name: String,
    path: PathBuf,
}

impl Unclaimed {
    /// Makes a pipe that only `uid` (and root) can open, from the first moment on.
    pub(super) fn create(uid: Uid) -> Result<Self, PipeError> {
        let name = random_name()?;
        let path = path_in(Path::new(names::PIPE_DIR), &name);
        let socket = listen(&path).map_err(|cause| PipeError::Create {
            path: path.clone(),
            cause,
        })?;
        if uid != Uid::effective() {
            give_to(uid, &path).map_err(|cause| PipeError::Chown {
                uid: uid.as_raw(),
                cause,
            })?;
        }
        Ok(Self {
            place: PipePath { name, path },
            open: Open {
                socket,
                _link: None,
            },
        })
    }

    /// Makes the pipe show where .NET will look, which is below `$TMPDIR`. Other workers do not
    /// mind if that fails, so it is only logged.
    pub(super) fn link_for_dotnet(
        &mut self,
        env: &BTreeMap<String, String>,
        cwd: Option<&Path>,
        uid: Uid,
    ) {
        let Some(directory) = dotnet_directory(env, cwd) else {
            return;
        };
        let path = path_in(&directory, &self.place.name);
        match Link::create(path, &self.place.path, uid) {
            Ok(link) => self.open._link = Some(link),
            Err(why) => tracing::warn!(
                "a worker's pipe can't be shown below its TMPDIR, where .NET looks for it: {why}: \
                 `{}`",
                directory.display()
            ),
        }
    }

    /// The name that the worker is told.
    pub(super) fn name(&self) -> &str {
        &self.place.name
    }

    /// The absolute path.
    pub(super) fn path(&self) -> &Path {
        &self.place.path
    }

    /// Waits for this worker from now on.
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

/// 32 hexadecimal digits of 128 random bits.
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

/// The mode is set before the socket has a path, so that there is no moment at which others could
/// connect, and no umask to play with.
fn listen(path: &Path) -> io::Result<Socket> {
    let name = path.to_fs_name::<GenericFilePath>()?;
    Socket::from_options(ListenerOptions::new().name(name).mode(0o600))
}

fn give_to(uid: Uid, path: &Path) -> Result<(), Errno> {
    fchownat(
        AT_FDCWD,
        path,
        Some(uid),
        None,
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )
}

/// The directory that .NET takes for temporary files, if it is not the one where the pipe is.
/// Source: `Path.GetTempPath` in the .NET runtime, `Path.Unix.cs`.
fn dotnet_directory(env: &BTreeMap<String, String>, cwd: Option<&Path>) -> Option<PathBuf> {
    let configured = env.get("TMPDIR").filter(|path| !path.is_empty())?;
    let directory = match cwd {
        Some(cwd) => cwd.join(configured),
        None => PathBuf::from(configured),
    };
    (directory != Path::new(names::PIPE_DIR)).then_some(directory)
}

/// A symbolic link to the socket. Dropped, it is removed.
#[derive(Debug)]
struct Link {
    path: PathBuf,
}

impl Link {
    fn create(path: PathBuf, target: &Path, uid: Uid) -> io::Result<Self> {
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidFilename,
                format!("a socket's path must be at most {SOCKET_PATH_BYTES_MAX} bytes: {bytes}"),
            ));
        }
        std::os::unix::fs::symlink(target, &path)?;
        let link = Self { path };
        if uid != Uid::effective() {
            // In a directory that everyone writes to, one follows only links of one's own.
            give_to(uid, &link.path)?;
        }
        Ok(link)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "a pipe's link was gone already");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    #[tokio::test]
    async fn a_pipe_is_private_and_its_path_goes_with_it() {
        let pipe = Unclaimed::create(Uid::effective()).unwrap();
        let path = pipe.path().to_owned();
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
            let env = tmpdir
                .map(|path: &str| ("TMPDIR".to_owned(), path.to_owned()))
                .into_iter()
                .collect();
            assert_eq!(
                dotnet_directory(&env, cwd.map(Path::new)),
                expected.map(PathBuf::from)
            );
        }
    }

    #[test]
    fn a_link_that_no_socket_address_holds_is_refused() {
        let long = PathBuf::from(format!("/{}", "x".repeat(107)));
        let error = Link::create(long, Path::new("/tmp"), Uid::effective()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a socket's path must be at most 107 bytes: 108"
        );
    }
}
