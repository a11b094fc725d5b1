//! Signals that a command handles, on a thread of its own, which reports a heartbeat while none
//! arrive.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use ganger_core::heartbeat::{EVERY, Heartbeat};

/// Signals that are caught from now on.
#[derive(Debug)]
pub(super) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Catches these signals.
    pub(super) fn of(signals: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, signals)?;
        Ok(Self(delivery))
    }

    /// Handles each signal on a thread of that name until the handler breaks. Several that arrive
    /// together may be handled as one.
    pub(super) fn handled_by(
        mut self,
        thread: &str,
        mut obey: impl FnMut(i32, &Heartbeat) -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<()> {
        let body = move || {
            let heart = Heartbeat::of_this_thread();
            while let ControlFlow::Continue(()) =
                self.0.pending().try_for_each(|signal| obey(signal, &heart))
            {
                heart.beat();
                self.wait();
            }
        };
        thread::Builder::new().name(thread.into()).spawn(body)?;
        Ok(())
    }

    /// Waits for the next signal, at most for as long as this thread may be silent. Returning early
    /// does no harm.
    fn wait(&self) {
        let mut readable = [PollFd::new(self.0.get_read().as_fd(), PollFlags::POLLIN)];
        let at_most = PollTimeout::try_from(EVERY).unwrap_or(PollTimeout::NONE);
        if poll(&mut readable, at_most).is_err_and(|error| error != Errno::EINTR) {
            thread::park_timeout(EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use signal_hook::consts::{SIGURG, SIGWINCH};
    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn each_that_comes_is_obeyed_until_one_ends_it() {
        let (tell, told) = sync_channel(1);
        let signals = Signals::of(&[SIGURG, SIGWINCH]).unwrap();
        let obey = move |signal, _: &Heartbeat| {
            tell.send(signal).unwrap();
            match signal {
                SIGWINCH => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        signals.handled_by("signals-test", obey).unwrap();
        for signal in [SIGURG, SIGURG, SIGWINCH] {
            raise(signal).unwrap();
            assert_eq!(told.recv(), Ok(signal));
        }
        told.recv().unwrap_err();
    }
}
