//! Removal of pipes without a listener: a daemon that was killed could not remove those whose workers had not
//! connected yet, and in `/tmp` they would stay for ever.

use std::fs::{self, DirEntry};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::Uid;

use super::account::Account;
use ganger_core::names;

/// Minimum age of a pipe that is removed: a pipe is created in two steps, between which it refuses
/// connections.
const AGE_MIN: Duration = Duration::from_secs(60);

/// Open sockets on this machine, by path, as far as they are visible.
const OPEN_SOCKETS: &str = "/proc/net/unix";

/// Removes the pipes that killed daemons of this user have left, including those for workers of these users.
/// May take long: it looks up users and searches all of `/tmp`.
pub fn sweep<'a>(users: impl Iterator<Item = &'a str>) {
    let accounts = users.filter_map(|user| Account::find(Some(user)).ok());
    let mut owners: Vec<Uid> = accounts.map(|account| account.uid).collect();
    owners.push(Uid::effective());
    match sweep_directory(Path::new(names::PIPE_DIR), &owners, AGE_MIN) {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed pipes that killed daemons had left"),
        Err(error) => tracing::debug!(%error, "removing pipes that killed daemons had left failed"),
    }
}

fn sweep_directory(directory: &Path, owners: &[Uid], age_min: Duration) -> io::Result<usize> {
    let open = fs::read_to_string(OPEN_SOCKETS)?;
    let left_behind = |entry: &DirEntry| {
        is_name_of_ours(&entry.file_name().to_string_lossy())
            && is_old_socket_of(entry, owners, age_min)
            // A listener may take only one connection, so no open socket is tried.
            && !open.contains(&*entry.path().to_string_lossy())
            && refuses(&entry.path())
    };
    let left = fs::read_dir(directory)?.flatten().filter(left_behind);
    Ok(left
        .filter(|entry| fs::remove_file(entry.path()).is_ok())
        .count())
}

/// Returns whether 32 hexadecimal digits follow the prefix. Names chosen by .NET programs have another form.
fn is_name_of_ours(name: &str) -> bool {
    name.strip_prefix(names::PIPE_PREFIX).is_some_and(|random| {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        random.len() == 32 && random.bytes().all(digit)
    })
}

fn is_old_socket_of(entry: &DirEntry, owners: &[Uid], age_min: Duration) -> bool {
    let Ok(metadata) = entry.metadata() else {
        return false;
    };
    let age = metadata
        .modified()
        .ok()
        .and_then(|made| made.elapsed().ok());
    metadata.file_type().is_socket()
        && owners.contains(&Uid::from_raw(metadata.uid()))
        && age.is_some_and(|age| age >= age_min)
}

/// Returns whether the socket has no listener, neither here nor in another container, whose sockets can't be
/// listed.
fn refuses(path: &Path) -> bool {
    let connected = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        None,
    )
    .and_then(|socket| connect(socket.as_raw_fd(), &UnixAddr::new(path)?));
    connected == Err(Errno::ECONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const RANDOM: &str = "0123456789abcdef0123456789abcde";

    #[test]
    fn only_what_nobody_listens_to_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let dead = path(&format!("CoreFxPipe_{RANDOM}0"));
        let live = path(&format!("CoreFxPipe_{RANDOM}1"));
        let file = path(&format!("CoreFxPipe_{RANDOM}2"));
        let others = path("CoreFxPipe_my-service");
        drop(UnixListener::bind(&dead).unwrap());
        drop(UnixListener::bind(&others).unwrap());
        let listener = UnixListener::bind(&live).unwrap();
        listener.set_nonblocking(true).unwrap();
        fs::write(&file, "").unwrap();
        let sweep = |owner: Uid, age_min| sweep_directory(dir.path(), &[owner], age_min).unwrap();

        assert_eq!(
            sweep(Uid::effective(), Duration::from_secs(3600)),
            0,
            "young"
        );
        assert_eq!(sweep(Uid::from_raw(4242), Duration::ZERO), 0, "another's");
        assert_eq!(sweep(Uid::effective(), Duration::ZERO), 1);
        assert!(!dead.exists() && live.exists() && file.exists() && others.exists());
        assert!(listener.accept().is_err(), "a live one is not disturbed");
    }

    #[test]
    fn a_live_one_that_is_not_listed_is_known_by_its_answer() {
        let dir = tempfile::tempdir().unwrap();
        let live = dir.path().join("live");
        let _listener = UnixListener::bind(&live).unwrap();
        assert!(!refuses(&live));
        assert!(!refuses(&dir.path().join("missing")));
    }

    #[test]
    fn a_name_of_ours_is_all_random() {
        let long = format!("CoreFxPipe_{RANDOM}00");
        let cases = [
            (format!("CoreFxPipe_{RANDOM}0"), true),
            (format!("CoreFxPipe_{RANDOM}G"), false),
            (format!("CoreFxPipe_{RANDOM}A"), false),
            (format!("{RANDOM}0"), false),
            (long, false),
            ("CoreFxPipe_".into(), false),
        ];
        for (name, ours) in cases {
            assert_eq!(is_name_of_ours(&name), ours, "{name}");
        }
    }
}
