//! Methods without an answer, such as acknowledgements: writing them, and the number that a quorum queue
//! accepts before its channel is closed.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::error::RabbitMqError;

/// Number of acknowledgements and returns that the channel of a quorum queue passes on at once; it holds
/// others back, and loses them when it is closed.
pub(crate) const ACKS_AT_ONCE_MAX: usize = 24;
/// Time after which the queue has processed what was written.
pub(crate) const PROCESSED_WITHIN: Duration = Duration::from_secs(1);

/// Writes a method without an answer. The library queues it in order when first polled; its transmission is
/// not awaited.
pub(crate) fn written(
    method: impl Future<Output = lapin::Result<()>>,
) -> Result<(), RabbitMqError> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(method).poll(&mut context) {
        Poll::Ready(Err(error)) => Err(RabbitMqError::lost(&error)),
        Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
    }
}
