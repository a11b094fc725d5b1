//! Access rights of the configuration's files: other users that may write or read them. Whoever writes
//! the configuration decides what the daemon runs.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::problem::Problem;
use super::redact::redact;

/// Sticky bit: only the owner may remove files in such a directory.
const STICKY: u32 = 0o1000;

/// Fault in the rights of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Text that follows the file's name.
    pub(super) words: String,
    /// Remedy.
    pub(super) help: &'static str,
}

/// User and group of the daemon.
#[derive(Debug, Clone, Copy)]
struct Own {
    uid: u32,
    gid: u32,
}

/// Returns the faults in the rights of these files, given with their content.
pub(super) fn faults<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Problem> {
    let fault = |(name, text): (&str, &str)| {
        let Fault { words, help } = fault_of(Path::new(name), holds_secrets(text))?;
        Some(Problem::of_file(
            name,
            format!("the configuration {words}"),
            help,
        ))
    };
    files.filter_map(fault).collect()
}

/// Returns the fault in the rights of a file that is a secret.
pub(super) fn fault_of_secret(file: &Path) -> Option<Fault> {
    fault_of(file, true)
}

fn fault_of(file: &Path, secrets: bool) -> Option<Fault> {
    let own = Own {
        uid: Uid::effective().as_raw(),
        gid: Gid::effective().as_raw(),
    };
    let mut faults = places(file).into_iter().enumerate();
    faults.find_map(|(depth, place)| {
        let metadata = fs::metadata(&place).ok()?;
        let (what, help) = match depth {
            0 => own.of_file(&metadata, secrets, is_read_only(&place))?,
            _ if is_read_only(&place) => return None,
            _ => own.of_directory(&metadata)?,
        };
        let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
        let place = place.display();
        let words = format!("{what}: `{place}` has mode {mode:04o} and owner {owner}");
        Some(Fault { words, help })
    })
}

/// Returns the file, then the directories by which it is reached, including those behind links.
fn places(file: &Path) -> Vec<PathBuf> {
    let named = std::path::absolute(file);
    let paths = [named, fs::canonicalize(file)];
    let directories = paths
        .iter()
        .flatten()
        .flat_map(|path| path.ancestors().skip(1));
    let mut seen = BTreeSet::new();
    let new = directories.filter(|directory| seen.insert(*directory));
    std::iter::once(file)
        .chain(new)
        .map(Path::to_owned)
        .collect()
}

/// Returns whether nobody can write it, whatever its mode says: as Kubernetes mounts a ConfigMap.
fn is_read_only(place: &Path) -> bool {
    statvfs(place).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::RDONLY))
}

impl Own {
    fn of_file(
        self,
        file: &Metadata,
        secrets: bool,
        is_read_only: bool,
    ) -> Option<(&'static str, &'static str)> {
        if is_read_only {
            let exposed = self.others(file.mode(), file.gid()) & 0o044 != 0;
            return (secrets && exposed).then_some(EXPOSED);
        }
        if !self.trusts(file.uid()) {
            return Some((
                "belongs to another user, who can thus choose what the daemon runs",
                "give it to the daemon's user or to root, with `chown`",
            ));
        }
        match self.others(file.mode(), file.gid()) {
            bits if bits & 0o022 != 0 => Some((
                "is writable by others, who can thus choose what the daemon runs",
                HELP,
            )),
            bits if bits & 0o044 != 0 && secrets => Some(EXPOSED),
            _ => None,
        }
    }

    fn of_directory(self, directory: &Metadata) -> Option<(&'static str, &'static str)> {
        if !self.trusts(directory.uid()) {
            return Some((
                "is in a directory of another user, who can replace it",
                "give the directory to the daemon's user or to root, or put the file elsewhere",
            ));
        }
        let others = self.others(directory.mode(), directory.gid());
        let is_open = others & 0o022 != 0 && directory.mode() & STICKY == 0;
        is_open.then_some((
            "is in a directory writable by others, who can replace it",
            HELP,
        ))
    }

    fn trusts(self, uid: u32) -> bool {
        uid == self.uid || uid == 0
    }

    /// Returns the bits of a mode that are for others. The daemon's own group may hold only its user, and
    /// is not a stranger in any case.
    fn others(self, mode: u32, gid: u32) -> u32 {
        mode & if gid == self.gid { 0o007 } else { 0o077 }
    }
}

const HELP: &str = "remove the rights of others with `chmod o=`, and those of the group with `chmod g=` if it is \
     not the daemon's own";
const EXPOSED: (&str, &str) = ("holds secrets and is readable by others", HELP);

/// Returns whether the text itself holds a secret, rather than a variable or a file that it names.
fn holds_secrets(text: &str) -> bool {
    text.lines().any(|line| {
        let key = line.split('=').next().unwrap_or_default().trim();
        let elsewhere = key.starts_with('#') || key.ends_with("_file");
        let line = without_variables(line);
        !elsewhere && redact(&line) != line
    })
}

fn without_variables(line: &str) -> String {
    let mut parts = line.split("${");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('}').map_or("", |(_, rest)| rest)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_what_is_in_the_text_is_a_secret() {
        let cases = [
            ("url = \"amqp://guest:hunter2@h/\"", true),
            ("url = \"amqp://guest:${PASSWORD}@h/\"", false),
            ("url = \"amqp://h/\"", false),
            ("url_file = \"/run/secrets/url\"", false),
            ("# url = \"amqp://guest:hunter2@h/\"", false),
            ("env = { API_TOKEN = \"abc\" }", true),
            ("env = { API_TOKEN = \"${TOKEN}\" }", false),
            ("password = \"abc\"", true),
            ("password_file = \"abc\"", false),
        ];
        for (line, expected) in cases {
            assert_eq!(holds_secrets(line), expected, "{line}");
        }
    }

    /// Makes a file or a directory of that mode, owner and group.
    fn made(path: &Path, mode: u32, owner: Option<u32>) -> Metadata {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(path, owner, None).unwrap();
        fs::metadata(path).unwrap()
    }

    #[test]
    fn strangers_may_not_write_nor_read_secrets() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (uid, gid) = (Uid::effective().as_raw(), Gid::effective().as_raw());
        let cases = [
            (0o600, gid, true, false),
            (0o640, gid, true, false),
            (0o640, gid + 1, true, true),
            (0o640, gid + 1, false, false),
            (0o644, gid, true, true),
            (0o644, gid + 1, false, false),
            (0o664, gid, false, false),
            (0o664, gid + 1, false, true),
            (0o666, gid, true, true),
        ];
        for (mode, gid, secrets, faulty) in cases {
            let file = made(file.path(), mode, None);
            let found = Own { uid, gid }.of_file(&file, secrets, false);
            assert_eq!(found.is_some(), faulty, "{mode:o} {gid} {secrets}");
        }
        // A file that nobody can write may still be readable.
        let file = made(file.path(), 0o666, None);
        let own = Own { uid, gid };
        assert_eq!(own.of_file(&file, true, true), Some(EXPOSED));
        assert_eq!(own.of_file(&file, false, true), None);
    }

    #[test]
    fn what_is_somebody_elses_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ganger.toml");
        fs::write(&file, "").unwrap();
        let own = Own {
            uid: Uid::effective().as_raw(),
            gid: Gid::effective().as_raw(),
        };
        let fault = |own: Own, mode| {
            let metadata = made(directory.path(), mode, None);
            own.of_directory(&metadata).map(|(what, _)| what)
        };
        let open = "is in a directory writable by others, who can replace it";
        assert_eq!(fault(own, 0o755), None);
        assert_eq!(fault(own, 0o777), Some(open));
        assert_eq!(fault(own, 0o1777), None, "it is sticky");
        let written = fault_of(&file, false);
        assert_eq!(written, None);
        made(directory.path(), 0o757, None);
        let words = fault_of(&file, false).unwrap().words;
        assert!(words.starts_with(open), "{words}");
        assert!(words.contains(" has mode 0757 and owner "), "{words}");
        made(directory.path(), 0o755, None);
        if Uid::effective().is_root() {
            made(directory.path(), 0o755, Some(4242));
            let words = fault_of(&file, false).unwrap().words;
            assert!(
                words.starts_with("is in a directory of another user"),
                "{words}"
            );
            made(directory.path(), 0o755, Some(0));
            made(&file, 0o600, Some(4242));
            let words = fault_of(&file, false).unwrap().words;
            assert!(words.starts_with("belongs to another user"), "{words}");
        }
    }

    #[test]
    fn a_link_is_as_good_as_where_it_leads() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, link) = (other.path().join("file"), home.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(fault_of(&link, false), None);
        made(other.path(), 0o777, None);
        let words = fault_of(&link, false).unwrap().words;
        assert!(words.contains(other.path().to_str().unwrap()), "{words}");
    }
}
