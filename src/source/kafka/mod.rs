//! The source of a pool that reads from Kafka.

mod desk;

use super::Link;
use crate::config::model::KafkaSource;
pub(super) use desk::Desk;

/// Why Kafka can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// Not there yet.
    #[error("this version does not read from it")]
    Missing,
}

/// Opens the source; what is returned runs it to its end.
pub(super) fn open(
    _config: &KafkaSource,
    _link: Link,
) -> Result<impl FnOnce() + use<>, KafkaError> {
    let run = || ();
    Err::<_, KafkaError>(KafkaError::Missing).map(|()| run)
}
