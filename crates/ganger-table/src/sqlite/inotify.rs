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

/// The daemon's instance, created with the first bell, or the error that prevented it.
static NEWS: OnceLock<Result<Arc<Rung>, Errno>> = OnceLock::new();

/// Id of the next bell.
static NEXT: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct Rung {
    inotify: Inotify,
    bells: Mutex<HashMap<u64, Hung>>,
}

#[derive(Debug)]
struct Hung {
    /// None if the kernel would report nothing.
    watch: Option<WatchDescriptor>,
    rung: Arc<Notify>,
}

/// Kind of event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of {
    /// Writes to a file. The kernel reports the first, and the next once the bell is awaited again, so
    /// that a busy file wakes no listener that has no use for it.
    Writes,
    /// Files in a directory that are closed after they were open for writing.
    Closing,
}

/// Listener for the events of a file, until it is dropped.
#[derive(Debug)]
pub(crate) struct Bell {
    id: u64,
    path: PathBuf,
    of: Of,
    news: Arc<Rung>,
    rung: Arc<Notify>,
}

impl Bell {
    /// Begins to listen.
    pub(crate) fn hang(path: &Path, of: Of) -> io::Result<Self> {
        let news = NEWS.get_or_init(Rung::start).clone()?;
        let bell = Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            path: path.to_owned(),
            of,
            news,
            rung: Arc::default(),
        };
        bell.listen()?;
        Ok(bell)
    }

    /// Adds a watch, unless one is active. Returns whether none was.
    fn listen(&self) -> Result<bool, Errno> {
        let flags = match self.of {
            Of::Writes => AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT,
            Of::Closing => AddWatchFlags::IN_CLOSE_WRITE,
        };
        // Locked until the watch is stored, so that no event of it is handled before.
        let mut bells = self.news.bells();
        let hung = bells.entry(self.id).or_insert_with(|| Hung {
            watch: None,
            rung: Arc::clone(&self.rung),
        });
        if hung.watch.is_some() {
            return Ok(false);
        }
        hung.watch = Some(self.news.inotify.add_watch(&self.path, flags)?);
        Ok(true)
    }

    /// Resolves when an event has occurred since it last resolved, or when no watch was active: earlier
    /// events are not reported. Never resolves if the watch can't be renewed. Cancel-safe.
    pub(crate) async fn rung(&self) {
        match self.listen() {
            Ok(true) => {}
            Ok(false) => self.rung.notified().await,
            Err(error) => {
                only_polled(&self.path, &error.into());
                pending().await
            }
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut bells = self.news.bells();
        let watch = bells.remove(&self.id).and_then(|hung| hung.watch);
        if let Some(watch) = watch
            && !bells.values().any(|hung| hung.watch == Some(watch))
            && let Err(error) = self.news.inotify.rm_watch(watch)
        {
            tracing::debug!(%error, "a watch had ended by itself");
        }
    }
}

impl Rung {
    fn start() -> Result<Arc<Self>, Errno> {
        let news = Arc::new(Self {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC)?,
            bells: Mutex::default(),
        });
        let reader = Arc::clone(&news);
        thread::Builder::new()
            .name("inotify".into())
            .spawn(move || reader.read())
            .map_err(|_| Errno::EAGAIN)?;
        Ok(news)
    }

    fn read(&self) {
        let heart = Heartbeat::of_this_thread();
        loop {
            heart.beat();
            match self.events() {
                Ok(events) => {
                    let mut bells = self.bells();
                    events.iter().for_each(|event| ring(&mut bells, event));
                }
                Err(Errno::EINTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "the wake-up failed, only the poll is left");
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

    fn bells(&self) -> MutexGuard<'_, HashMap<u64, Hung>> {
        // The guarded map is never left half changed.
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifies the bells that an event is for. Those whose watch has ended must renew it.
fn ring(bells: &mut HashMap<u64, Hung>, event: &InotifyEvent) {
    let lost = event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
    let ended = event.mask.contains(AddWatchFlags::IN_IGNORED);
    for hung in bells.values_mut() {
        if lost || hung.watch == Some(event.wd) {
            hung.rung.notify_one();
            if ended {
                hung.watch = None;
            }
        }
    }
}

/// Logs, once per process, that file events are not available.
pub(crate) fn only_polled(path: &Path, error: &io::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::warn!(
            path = %path.display(),
            %error,
            "the kernel does not tell what is written to tables: they are only polled"
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
    async fn each_bell_rings_for_its_own_file_whatever_the_number() {
        let dir = tempfile::tempdir().unwrap();
        let listen = |number: u32| {
            let path = dir.path().join(number.to_string());
            fs::write(&path, "").unwrap();
            (Bell::hang(&path, Of::Writes).unwrap(), path)
        };
        // More than a user's default limit of instances.
        let all: Vec<(Bell, PathBuf)> = (0..300).map(listen).collect();
        for (bell, path) in &all {
            for _ in 0..2 {
                fs::write(path, "news").unwrap();
                timeout(SOON, bell.rung()).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn those_who_listen_to_one_file_all_hear_and_can_listen_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bells = [(); 3].map(|()| Bell::hang(file.path(), Of::Writes).unwrap());
        for _ in 0..5 {
            for bell in &bells {
                // Events before the watch is renewed are not reported.
                let mut heard = Box::pin(bell.rung());
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
        let bell = Bell::hang(dir.path(), Of::Closing).unwrap();
        for _ in 0..3 {
            drop(File::create(dir.path().join("lock")).unwrap());
            timeout(SOON, bell.rung()).await.unwrap();
        }
    }
}
