//! Handles the refusal of a thread by the operating system: too many run already, by the limit of a
//! cgroup, a user or the machine. That passes, and must end nothing.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use futures_util::FutureExt;
use tokio::sync::oneshot;

/// Tokio's message for it. For blocking work, such as the look-up of a name, tokio starts a thread
/// where none is idle, and panics if it is refused one.
const REFUSED: &str = "OS can't spawn worker thread";

/// Work of a thread from its start to its end.
pub type Body = Box<dyn FnOnce() + Send>;

/// Starts a thread.
///
/// # Errors
/// If the thread is refused; the error holds its body.
pub fn begin(thread: thread::Builder, body: Body) -> Result<(), (io::Error, Body)> {
    // A body handed to a thread is lost with it.
    let held = Arc::new(Mutex::new(Some(body)));
    let theirs = Arc::clone(&held);
    let begun = thread.spawn(move || taken(&theirs)());
    begun
        .map(drop)
        .map_err(|error| (refusal(&error.to_string()), taken(&held)))
}

/// Takes the body, which is there once.
fn taken(held: &Mutex<Option<Body>>) -> Body {
    let body = held.lock().unwrap_or_else(PoisonError::into_inner).take();
    body.unwrap_or_else(|| Box::new(|| ()))
}

/// Runs blocking work on a thread of its own.
///
/// # Errors
/// If the thread is refused, or panics.
pub async fn aside<T: Send + 'static>(
    thread: thread::Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    // A receiver that is gone is no problem.
    let begun = thread.spawn(move || drop(tell.send(work())));
    begun.map_err(|error| refusal(&error.to_string()))?;
    told.await
        .map_err(|_| io::Error::other("the work on another thread panicked"))
}

/// Runs work that may look names up or block by tokio's means, itself or in a library. Any other
/// panic goes on.
///
/// # Errors
/// If a thread was wanted for that and refused.
pub async fn or_refused<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.or_else(|panic| match said(&*panic).strip_prefix(REFUSED) {
        Some(why) => Err(refusal(why)),
        None => resume_unwind(panic),
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

fn refusal(why: &str) -> io::Error {
    let why = why.trim_start_matches(": ");
    io::Error::new(
        io::ErrorKind::WouldBlock,
        format!("spawning a thread failed: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use tokio::net::lookup_host;
    use tokio::runtime::Builder;
    use tokio::task::spawn_blocking;

    use super::*;

    /// No machine has room for such a stack: its thread is refused, as one too many is.
    const STACK_BYTES: usize = 1 << 60;

    /// The words are tokio's, which another version may change.
    #[test]
    fn a_thread_that_is_refused_is_an_error() {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_stack_size(STACK_BYTES)
            .build()
            .unwrap();
        let blocks = or_refused(async { spawn_blocking(|| ()).await });
        let error = runtime.block_on(blocks).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(
            error.to_string().contains("spawning a thread failed: "),
            "{error}"
        );
        let looks_up = or_refused(async { lookup_host(("name.invalid", 1)).await.map(drop) });
        let error = runtime.block_on(looks_up).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[tokio::test]
    async fn what_is_done_aside_is_told_whatever_becomes_of_it() {
        let done = aside(thread::Builder::new(), || 7).await;
        assert_eq!(done.unwrap(), 7);
        let error = aside(thread::Builder::new(), || panic!("the sky fell")).await;
        assert!(
            error
                .map(|()| 7)
                .unwrap_err()
                .to_string()
                .contains("panicked")
        );
        let refused = thread::Builder::new().stack_size(STACK_BYTES);
        let error = aside(refused, || 7).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[tokio::test]
    #[should_panic(expected = "the sky fell")]
    async fn another_panic_goes_on() {
        drop(or_refused(async { panic!("the sky fell") }).await);
    }
}
