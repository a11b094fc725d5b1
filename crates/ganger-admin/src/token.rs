//! New tokens; and the token of a daemon whose configuration has none: in a file beside the socket, which only the
//! daemon's user can read. A daemon that replaces another keeps the token that it finds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::Uid;

use super::session::hash;
use ganger_config::model::Secret;
use ganger_core::foreign;
use ganger_queue::client::unique_name;

/// Minimum length of a token that is kept, in bytes.
const BYTES_MIN: usize = 32;
/// Maximum size of a token file, in bytes.
const BYTES_MAX: u64 = 256;

/// A token for the configuration's `[[admin.tokens]]`.
#[derive(Debug)]
pub struct NewToken {
    /// The token, which is to be shown once.
    pub token: Secret,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

impl NewToken {
    /// Generates a token.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> io::Result<Self> {
        let token = unique_name()?;
        let digits = hash(&token).map(|byte| format!("{byte:02x}"));
        Ok(Self {
            sha256: digits.concat(),
            token: Secret::new(token),
        })
    }
}

/// Returns the path of the token file that belongs to a socket.
pub(super) fn beside(socket: &Path) -> PathBuf {
    socket.with_extension("token")
}

/// Returns the token in the file, or generates one.
///
/// # Errors
/// If the file can't be written, or the system has no random numbers.
pub(super) fn find_or_make(path: &Path) -> io::Result<Secret> {
    if let Some(token) = found(path) {
        return Ok(token);
    }
    let token = Secret::new(unique_name()?);
    put(path, &token)?;
    Ok(token)
}

/// Returns the token that a daemon of this user has left there, if nobody else can read it.
fn found(path: &Path) -> Option<Secret> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    let is_ours = metadata.is_file() && metadata.uid() == Uid::effective().as_raw();
    if !is_ours || metadata.mode() & 0o077 != 0 {
        return None;
    }
    let text = foreign::text(file, BYTES_MAX).ok()?;
    let token = text.trim();
    (token.len() >= BYTES_MIN).then(|| Secret::new(token))
}

/// Writes the token to the file atomically.
pub(super) fn put(path: &Path, token: &Secret) -> io::Result<()> {
    let new = path.with_extension(format!("token.{}.new", std::process::id()));
    drop(fs::remove_file(&new));
    let mut file = create(&new)?;
    let written = writeln!(file, "{}", token.expose()).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Creates a new file that only its owner may open, from the first moment on.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_token_is_kept_by_who_comes_after() {
        let site = tempfile::tempdir().unwrap();
        let path = beside(&site.path().join("ganger.sock"));
        assert_eq!(path, site.path().join("ganger.token"));
        let first = find_or_make(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(find_or_make(&path).unwrap(), first);
        assert_eq!(fs::read_dir(site.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_can_read_or_have_put_there_is_no_token() {
        let site = tempfile::tempdir().unwrap();
        let path = site.path().join("ganger.token");
        let known = "0123456789abcdef0123456789abcdef";
        fs::write(&path, known).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_ne!(find_or_make(&path).unwrap(), Secret::new(known));
        assert_eq!(mode(&path), 0o600);
        fs::write(&path, "short").unwrap();
        assert_ne!(find_or_make(&path).unwrap(), Secret::new("short"));
        let elsewhere = site.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let linked = fs::read_to_string(&elsewhere).unwrap();
        assert_ne!(find_or_make(&path).unwrap(), Secret::new(linked.trim()));
    }
}
