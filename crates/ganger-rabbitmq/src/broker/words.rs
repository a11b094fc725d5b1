//! Methods that have no answer, as acknowledgements: how they are written, and how many a quorum
//! queue bears before its channel is closed.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::error::RabbitMqError;

/// So many acknowledgements and returns the channel of a quorum queue passes on at once; others it
/// keeps back, and forgets when it is closed.
pub(crate) const WORDS_MAX: usize = 24;
/// The queue has taken in what was written so long ago.
pub(crate) const TAKEN_IN: Duration = Duration::from_secs(1);

/// Writes a method that has no answer. The library puts it in its place among the others when it is
/// first asked for; that it has gone out is of no interest.
pub(crate) fn written(
    method: impl Future<Output = lapin::Result<()>>,
) -> Result<(), RabbitMqError> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(method).poll(&mut context) {
        Poll::Ready(Err(error)) => Err(RabbitMqError::lost(&error)),
        Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
    }
}
