//! Location of the admin socket, for the daemon that creates it and the commands that look for it: both
//! derive the same places from the configuration's path alone.

use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

/// Maximum length of a socket's path in bytes, so that it fits the kernel's address.
const SOCKET_BYTES_MAX: usize = 107;

/// Places for a socket, in order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(Vec<PathBuf>);

impl Places {
    /// Returns the configured place alone, or those that the environment offers.
    pub fn new(
        configured: Option<&Path>,
        config: &Path,
        variable: impl Fn(&str) -> Option<String>,
        uid: u32,
    ) -> Self {
        if let Some(path) = configured {
            return Self(vec![path.to_owned()]);
        }
        let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
        let own = format!("ganger-{:016x}.sock", number(&config));
        let set = |name| variable(name).filter(|value| !value.is_empty());
        // Of several, systemd's own come first.
        let first = |list: String| list.split(':').next().map(PathBuf::from);
        let service = set("RUNTIME_DIRECTORY").and_then(first);
        let user = set("XDG_RUNTIME_DIR").map(PathBuf::from);
        // Where ganger.service and ganger@NAME.service have it: a command is told of no runtime directory.
        let name = config.file_stem().unwrap_or_default().to_string_lossy();
        let unit = Path::new("/run/ganger").join(&own);
        let instance = PathBuf::from(format!("/run/ganger@{name}")).join(&own);
        let places = [
            service.map(|directory| directory.join(&own)),
            Some(config.with_extension("sock")),
            user.map(|directory| directory.join(&own)),
            Some(temporary(uid).join(&own)),
            Some(unit),
            Some(instance),
        ];
        let fits = |path: &PathBuf| path.as_os_str().len() <= SOCKET_BYTES_MAX;
        Self(places.into_iter().flatten().filter(fits).collect())
    }

    /// Returns the places, in order of preference.
    pub fn all(&self) -> &[PathBuf] {
        &self.0
    }
}

/// Returns a user's own directory among those for temporary files.
fn temporary(uid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("ganger-{uid}"))
}

/// Checks that a socket may be in that directory. In the one for temporary files, anybody could have created
/// a directory with our name, and would receive the requests in the daemon's place.
///
/// # Errors
/// If the directory belongs to another user, or can't be created.
pub(super) fn check(directory: &Path) -> io::Result<()> {
    let own = Uid::effective().as_raw();
    if directory != temporary(own) {
        return Ok(());
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = std::fs::symlink_metadata(directory)?;
    let is_ours = found.is_dir() && found.uid() == own;
    if is_ours && found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::other(
        "the directory is another user's, or open to others",
    ))
}

/// Returns a number for a path that is the same in every process.
fn number(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(config: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let places = Places::new(None, Path::new(config), variable, 7);
        let shown = |path: &PathBuf| path.to_string_lossy().into_owned();
        places.all().iter().map(shown).collect()
    }

    #[test]
    fn the_best_place_is_beside_the_configuration_unless_systemd_has_one() {
        let plain = places("/etc/ganger/ganger.toml", &[]);
        assert_eq!(plain[0], "/etc/ganger/ganger.sock");
        assert_eq!(plain.len(), 4, "{plain:?}");
        let service = [("RUNTIME_DIRECTORY", "/run/ganger:/run/other")];
        let service = places("/etc/ganger/ganger.toml", &service);
        assert!(service[0].starts_with("/run/ganger/ganger-"), "{service:?}");
        assert_eq!(service[1], "/etc/ganger/ganger.sock");
        let user = places(
            "/etc/ganger/ganger.toml",
            &[("XDG_RUNTIME_DIR", "/run/user/7")],
        );
        assert!(user[1].starts_with("/run/user/7/ganger-"), "{user:?}");
        assert_ne!(
            user[1],
            places("/etc/other.toml", &[("XDG_RUNTIME_DIR", "/run/user/7")])[1]
        );
    }

    #[test]
    fn commands_look_where_units_of_systemd_have_it() {
        for (config, directory) in [
            ("/etc/ganger/ganger.toml", "/run/ganger"),
            ("/etc/ganger/mail.toml", "/run/ganger@mail"),
        ] {
            let daemon = places(config, &[("RUNTIME_DIRECTORY", directory)]);
            assert!(places(config, &[]).contains(&daemon[0]), "{daemon:?}");
        }
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_no_place() {
        let deep = format!("/{}/ganger.toml", "d".repeat(200));
        let places = places(&deep, &[]);
        assert_eq!(places.len(), 3, "{places:?}");
        let long = format!("/{}.toml", "n".repeat(101));
        let beside = format!("/{}.sock", "n".repeat(101));
        assert_eq!(self::places(&long, &[])[0], beside);
        assert_eq!(self::places(&long, &[]).len(), 3);
    }

    #[test]
    fn what_is_configured_is_the_only_place() {
        let path = Path::new("/srv/g.sock");
        let places = Places::new(Some(path), Path::new("a.toml"), |_| None, 7);
        assert_eq!(places.all(), [path]);
    }
}
