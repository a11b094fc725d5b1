//! What all kinds of source decide alike, and the pure decisions of each: from what is known of a
//! message to what becomes of it. Nothing here waits, and nothing knows a connection.

pub(crate) mod exclusive;
pub(crate) mod health;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(feature = "sqlite")]
pub(crate) mod table;

use crate::config::model::PoolConfig;

/// The part of a pool's retry policy that a source applies by itself, to messages that took the
/// whole daemon down and so never came back with a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A message with so many crashes is dead, attempts left or not.
    pub(crate) crashes_max: u32,
    /// How many attempts a message has, the first included.
    pub(crate) attempts_max: u32,
    /// A message over which so many daemons vanished in a row is dead.
    pub(crate) lapses_max: u32,
}

impl Limits {
    pub(crate) fn of(pool: &PoolConfig) -> Self {
        Self {
            crashes_max: pool.crashes_max,
            attempts_max: pool.retry.attempts,
            lapses_max: pool.lapses_max,
        }
    }
}
