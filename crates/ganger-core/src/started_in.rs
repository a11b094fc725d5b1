//! The directory that the program was started in, by the name by which it was entered. A deploy
//! that puts each release into a directory of its own and points a link `current` to the newest one
//! starts the program in `current`; the kernel knows only the release behind the link, and relative
//! paths would lead to the old release after the next deploy.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Environment variable with the name by which the shell entered the directory.
const PWD: &str = "PWD";

/// Returns the name of the directory, if it leads through a symbolic link. Determined by the first
/// call: later the link may lead elsewhere.
pub fn link() -> Option<&'static Path> {
    static LINK: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = LINK.get_or_init(|| linked(std::env::var_os(PWD)?, &std::env::current_dir().ok()?));
    found.as_deref()
}

/// Returns the path from the root on, through that link if there is one.
///
/// # Errors
/// If the directory is gone, or the path is empty.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    match link() {
        Some(link) => std::path::absolute(link.join(path)),
        None => std::path::absolute(path),
    }
}

/// Returns that name, if it is another name of the directory.
fn linked(name: OsString, directory: &Path) -> Option<PathBuf> {
    let name = PathBuf::from(name);
    let is_it = || {
        let (named, known) = (name.metadata().ok()?, directory.metadata().ok()?);
        (named.dev() == known.dev() && named.ino() == known.ino()).then_some(())
    };
    let is_another = name.is_absolute() && name != directory;
    is_another.then(is_it)??;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_if_it_is_one_of_the_directory() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let (release, other) = (home.join("release"), home.join("other"));
        std::fs::create_dir(&release).unwrap();
        std::fs::create_dir(&other).unwrap();
        let current = home.join("current");
        std::os::unix::fs::symlink("release", &current).unwrap();
        let name = |name: &Path| linked(name.as_os_str().to_owned(), &release);
        assert_eq!(name(&current), Some(current.clone()));
        for wrong in [
            &release,
            &other,
            Path::new("current"),
            &home.join("missing"),
        ] {
            assert_eq!(name(wrong), None, "{}", wrong.display());
        }
    }
}
