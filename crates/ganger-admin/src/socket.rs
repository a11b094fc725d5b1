//! The unix socket of the API, and the token beside it: created, created again if missing, and removed in the
//! end. Commands know a daemon by the socket's file alone.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

use super::error::AdminError;
use super::places::{self, Places};
use super::token;
use ganger_config::model::Secret;

/// Interval of checks that the file still exists.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The socket that a daemon has created.
#[derive(Debug)]
pub(super) struct Socket {
    listener: StdUnixListener,
    file: Arc<File>,
}

/// The socket's file.
#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Inode of our file; none once it was removed for good.
    inode: Mutex<Option<u64>>,
    /// Token in the file beside it, if one is needed.
    token: Option<Secret>,
}

impl File {
    fn inode(&self) -> MutexGuard<'_, Option<u64>> {
        self.inode.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the file on drop, unless another daemon has put its own there.
#[derive(Debug)]
pub(super) struct Removal(Arc<File>);

impl Drop for Removal {
    fn drop(&mut self) {
        let Some(inode) = self.0.inode().take() else {
            return;
        };
        let ours = std::fs::metadata(&self.0.path).is_ok_and(|file| file.ino() == inode);
        if ours {
            drop(std::fs::remove_file(&self.0.path));
            if self.0.token.is_some() {
                drop(std::fs::remove_file(token::beside(&self.0.path)));
            }
        }
    }
}

impl Socket {
    /// Creates the socket in the best available place, with a token beside it if one is needed.
    pub(super) fn open(
        places: &Places,
        was_asked_for: bool,
        needs_token: bool,
    ) -> Result<Option<Self>, AdminError> {
        let mut problems = Vec::new();
        for path in places.all() {
            match bind(path) {
                Ok((listener, inode)) => {
                    tracing::info!(key = "admin.socket", path = %path.display(), "listening");
                    let token = needs_token.then(|| token_of(path)).flatten();
                    let (path, inode) = (path.clone(), Mutex::new(Some(inode)));
                    let file = Arc::new(File { path, inode, token });
                    return Ok(Some(Self { listener, file }));
                }
                Err(source) if was_asked_for => {
                    let path = path.display().to_string();
                    return Err(AdminError::Socket { path, source });
                }
                Err(error) => problems.push(format!("{}: {error}", path.display())),
            }
        }
        let problems = problems.join("; ");
        tracing::warn!(problems, "creating the admin API's socket failed");
        Ok(None)
    }

    pub(super) fn token(&self) -> Option<Secret> {
        self.file.token.clone()
    }

    pub(super) fn removal(&self) -> Removal {
        Removal(Arc::clone(&self.file))
    }

    /// Returns the listener, and its keeper.
    pub(super) fn listen(self) -> io::Result<(UnixListener, Keeper)> {
        Ok((UnixListener::from_std(self.listener)?, Keeper(self.file)))
    }
}

/// Returns the token beside that socket. Without one nobody is admitted over TCP.
fn token_of(socket: &Path) -> Option<Secret> {
    let path = token::beside(socket);
    match token::find_or_make(&path) {
        Ok(token) => {
            tracing::info!(path = %path.display(), "the token of the admin API over TCP is in a file");
            Some(token)
        }
        Err(error) => {
            let path = path.display();
            tracing::warn!(
                %path, %error,
                "writing the token file failed: over TCP the admin API answers only probes and \
                 metrics; set `admin.token_file`"
            );
            None
        }
    }
}

/// Ensures that the socket is where commands look for it. Another daemon may have taken its place and have
/// ended since, or the file was deleted.
#[derive(Debug)]
pub(super) struct Keeper(Arc<File>);

impl Keeper {
    /// Creates the socket again if its place is free.
    pub(super) async fn renewed(&self) -> Option<UnixListener> {
        let ours = (*self.0.inode())?;
        self.renew_token();
        match self.is_gone(ours).await {
            true => self.renew(),
            false => None,
        }
    }

    /// Creates the token's file again: cleaners of temporary files leave a socket and remove the file beside
    /// it.
    fn renew_token(&self) {
        let path = token::beside(&self.0.path);
        if let Some(token) = &self.0.token
            && !path.exists()
            && let Err(error) = token::put(&path, token)
        {
            let path = path.display();
            tracing::warn!(%path, %error, "the token file was removed, and writing it again failed");
        }
    }

    async fn is_gone(&self, ours: u64) -> bool {
        match std::fs::symlink_metadata(&self.0.path) {
            Ok(file) if file.ino() == ours => false,
            // Another daemon's, unless that was killed.
            Ok(_) => {
                let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
                UnixStream::connect(&self.0.path).await.is_err_and(refused)
            }
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    fn renew(&self) -> Option<UnixListener> {
        let mut ours = self.0.inode();
        // The daemon may have ended meanwhile.
        (*ours)?;
        let (listener, inode) = bind(&self.0.path).ok()?;
        *ours = Some(inode);
        let path = self.0.path.display();
        tracing::info!(key = "admin.socket", %path, "listening again: the socket's file had been removed");
        UnixListener::from_std(listener).ok()
    }
}

/// Creates a socket that only its owner may open from the first moment on. One of a daemon that was killed is
/// replaced; so is that of a daemon that is stopping, which continues without.
fn bind(path: &Path) -> io::Result<(StdUnixListener, u64)> {
    if let Some(directory) = path.parent() {
        places::check(directory)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::other(
                "a file of that name exists that is not a socket",
            ));
        }
        Ok(_) if StdUnixStream::connect(path).is_ok() => {
            tracing::warn!(path = %path.display(), "taking over another daemon's admin socket");
        }
        Ok(_) | Err(_) => {}
    }
    // Made under another name and moved, so that it is never open to others, nor missing.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    drop(std::fs::remove_file(&new));
    let listener = StdUnixListener::bind(&new)?;
    let placed = std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| std::fs::rename(&new, path))
        .and_then(|()| std::fs::metadata(path));
    let file = placed.inspect_err(|_| drop(std::fs::remove_file(&new)))?;
    Ok((listener, file.ino()))
}
