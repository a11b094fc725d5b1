//! What all kinds of source decide alike, and the pure decisions of each: from what is known of a
//! message to what becomes of it. Nothing here waits, and nothing knows a connection.

pub(crate) mod attempts;
pub(crate) mod backlog;
pub(crate) mod credit;
pub(crate) mod exclusive;
pub(crate) mod health;
pub(crate) mod ladder;
#[cfg(feature = "sqlite")]
pub(crate) mod pause;
pub(crate) mod publishing;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(feature = "sqlite")]
pub(crate) mod table;

pub(crate) use attempts::Limits;
