//! What the command line does with RabbitMq from outside.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::RabbitMqError;
use crate::config::model::{Pool, RabbitMqSource};
use crate::delivery::Outgoing;
use crate::source::Fault;
use crate::source::client::{self, DeadFilter, DeadLetter, Depth, Partial, Reply};

/// A connection of an operator or a producer.
#[derive(Debug)]
pub(in crate::source) struct Desk;

impl Desk {
    /// Connects.
    pub(in crate::source) fn open(
        _config: &RabbitMqSource,
        _pools: &[Arc<Pool>],
    ) -> Result<Self, RabbitMqError> {
        Err(super::desk_missing())
    }
}

impl client::Desk for Desk {
    fn check(&mut self) -> Result<Vec<String>, Fault> {
        Err(super::desk_missing().into())
    }

    fn send(&mut self, _messages: &[Outgoing]) -> Result<(), Partial> {
        Err(super::desk_missing().into())
    }

    fn depth(&mut self, _queue: &str) -> Result<Depth, Fault> {
        Err(super::desk_missing().into())
    }

    fn reply_to(&mut self, _unique: &str) -> Result<String, Fault> {
        Err(super::desk_missing().into())
    }

    fn take_reply(&mut self, _queue: &str, _correlation_id: &str) -> Result<Option<Reply>, Fault> {
        Err(super::desk_missing().into())
    }

    fn wait_for_change(&mut self, _timeout: Duration) {}

    fn dead_list(&mut self, _filter: &DeadFilter, _limit: usize) -> Result<Vec<DeadLetter>, Fault> {
        Err(super::desk_missing().into())
    }

    fn dead_retry(
        &mut self,
        _filter: &DeadFilter,
        _edit: Option<&Bytes>,
    ) -> Result<usize, Partial> {
        Err(super::desk_missing().into())
    }

    fn dead_drop(&mut self, _filter: &DeadFilter) -> Result<usize, Partial> {
        Err(super::desk_missing().into())
    }
}
