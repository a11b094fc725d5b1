//! File events from the kernel. One inotify instance serves the whole daemon, since a user's instances
//! are limited. A thread of its own reads the events and notifies the listeners.

use std::collections::HashMap;
use std::future::pending;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::{io, thread};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::sync::Notify;

use ganger_core::heartbeat::{EVERY, Heartbeat};

/// The daemon's instance, created with the first watch, or the error that prevented it.
static READER: OnceLock<Result<Arc<EventReader>, Errno>> = OnceLock::new();

/// Id of the next watch.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct EventReader {
    inotify: Inotify,
    listeners: Mutex<HashMap<u64, Listener>>,
}

#[derive(Debug)]
struct Listener {
    /// None if the kernel would report nothing.
    watch: Option<WatchDescriptor>,
    notify: Arc<Notify>,
}

/// Kind of event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EventKind {
    /// Writes to a file. The kernel reports the first, and the next once the watch is awaited again, so
    /// that a busy file wakes no listener that has no use for it.
    Writes,
    /// Files in a directory that are closed after they were open for writing.
    Closing,
}

/// Listener for the events of a file, until it is dropped.
#[derive(Debug)]
pub(crate) struct FileWatch {
    id: u64,
    path: PathBuf,
    kind: EventKind,
    reader: Arc<EventReader>,
    notify: Arc<Notify>,
}

impl FileWatch {
    /// Begins to listen.
    pub(crate) fn new(path: &Path, kind: EventKind) -> io::Result<Self> {
        let reader = READER.get_or_init(EventReader::start).clone()?;
        let watch = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            path: path.to_owned(),
            kind,
            reader,
            notify: Arc::default(),
        };
        watch.listen()?;
        Ok(watch)
    }

    /// Adds a watch, unless one is active. Returns whether none was.
    fn listen(&self) -> Result<bool, Errno> {
        let flags = match self.kind {
            EventKind::Writes => AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT,
            EventKind::Closing => AddWatchFlags::IN_CLOSE_WRITE,
        };
        // Locked until the watch is stored, so that no event of it is handled before.
        let mut listeners = self.reader.listeners();
        let listener = listeners.entry(self.id).or_insert_with(|| Listener {
            watch: None,
            notify: Arc::clone(&self.notify),
        });
        if listener.watch.is_some() {
            return Ok(false);
        }
        listener.watch = Some(self.reader.inotify.add_watch(&self.path, flags)?);
        Ok(true)
    }

    /// Resolves when an event has occurred since it last resolved, or when no watch was active: earlier
    /// events are not reported. Never resolves if the watch can't be renewed. Cancel-safe.
    pub(crate) async fn changed(&self) {
        match self.listen() {
            Ok(true) => {}
            Ok(false) => self.notify.notified().await,
            Err(error) => {
                only_polled(&self.path, &error.into());
                pending().await
            }
        }
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let mut listeners = self.reader.listeners();
        let watch = listeners
            .remove(&self.id)
            .and_then(|listener| listener.watch);
        if let Some(watch) = watch
            && !listeners
                .values()
                .any(|listener| listener.watch == Some(watch))
            && let Err(error) = self.reader.inotify.rm_watch(watch)
        {
            tracing::debug!(%error, "a watch had ended by itself");
        }
    }
}

impl EventReader {
    fn start() -> Result<Arc<Self>, Errno> {
        let instance = Arc::new(Self {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC)?,
            listeners: Mutex::default(),
        });
        let reader = Arc::clone(&instance);
        thread::Builder::new()
            .name("inotify".into())
            .spawn(move || reader.read())
            .map_err(|_| Errno::EAGAIN)?;
        Ok(instance)
    }

    fn read(&self) {
        let heart = Heartbeat::of_this_thread();
        loop {
            heart.beat();
            match self.events() {
                Ok(events) => {
                    let mut listeners = self.listeners();
                    events
                        .iter()
                        .for_each(|event| dispatch(&mut listeners, event));
                }
                Err(Errno::EINTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "file events failed: tables are only polled");
                    return;
                }
            }
        }
    }

    /// Waits for events, no longer than the thread may go without a heartbeat.
    fn events(&self) -> nix::Result<Vec<InotifyEvent>> {
        let mut readable = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(EVERY).unwrap_or(PollTimeout::NONE);
        match poll(&mut readable, wait)? {
            0 => Ok(Vec::new()),
            _ => self.inotify.read_events(),
        }
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<u64, Listener>> {
        // The guarded map is never left half changed.
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifies the listeners that an event is for. Those whose watch has ended must renew it.
fn dispatch(listeners: &mut HashMap<u64, Listener>, event: &InotifyEvent) {
    let lost = event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
    let ended = event.mask.contains(AddWatchFlags::IN_IGNORED);
    for listener in listeners.values_mut() {
        if lost || listener.watch == Some(event.wd) {
            listener.notify.notify_one();
            if ended {
                listener.watch = None;
            }
        }
    }
}

/// Logs, once per process, that file events are not available.
pub(crate) fn only_polled(path: &Path, error: &io::Error) {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(
            path = %path.display(),
            %error,
            "file events are not available: tables are only polled"
        );
    });
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn each_watch_reports_its_own_file_whatever_the_number() {
        let dir = tempfile::tempdir().unwrap();
        let listen = |number: u32| {
            let path = dir.path().join(number.to_string());
            fs::write(&path, "").unwrap();
            (FileWatch::new(&path, EventKind::Writes).unwrap(), path)
        };
        // More than a user's default limit of instances.
        let all: Vec<(FileWatch, PathBuf)> = (0..300).map(listen).collect();
        for (watch, path) in &all {
            for _ in 0..2 {
                fs::write(path, "news").unwrap();
                timeout(SOON, watch.changed()).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn those_who_listen_to_one_file_all_hear_and_can_listen_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let listeners = [(); 3].map(|()| FileWatch::new(file.path(), EventKind::Writes).unwrap());
        for _ in 0..5 {
            for watch in &listeners {
                // Events before the watch is renewed are not reported.
                let mut heard = Box::pin(watch.changed());
                let written_until_heard = async {
                    loop {
                        file.as_file().write_all(b"news").unwrap();
                        tokio::select! {
                            biased;
                            () = &mut heard => return,
                            () = tokio::task::yield_now() => {}
                        }
                    }
                };
                timeout(SOON, written_until_heard).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn closing_is_told_every_time() {
        let dir = tempfile::tempdir().unwrap();
        let watch = FileWatch::new(dir.path(), EventKind::Closing).unwrap();
        for _ in 0..3 {
            drop(File::create(dir.path().join("lock")).unwrap());
            timeout(SOON, watch.changed()).await.unwrap();
        }
    }
}
