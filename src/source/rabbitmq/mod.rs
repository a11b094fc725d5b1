//! The source of a pool that reads from RabbitMq.

mod desk;

use super::Link;
use crate::config::model::RabbitMqSource;
pub(super) use desk::Desk;

/// Why RabbitMq can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RabbitMqError {
    /// Not there yet.
    #[error("this version does not read from it")]
    Missing,
}

/// Opens the source; what is returned runs it to its end.
pub(super) fn open(
    _config: &RabbitMqSource,
    _link: Link,
) -> Result<impl FnOnce() + use<>, RabbitMqError> {
    let run = || ();
    Err::<_, RabbitMqError>(RabbitMqError::Missing).map(|()| run)
}
