//! Kafka: the clients of librdkafka, topics, records, and the commits of a group. This module waits for
//! answers and makes no decision about a message.

pub(crate) mod arrivals;
pub(crate) mod command_error;
pub(crate) mod commit_metadata;
pub(crate) mod consumer;
pub(crate) mod emptied;
mod ends;
pub(crate) mod error;
pub mod features;
pub(crate) mod fitness;
pub(crate) mod fork;
pub(crate) mod headers;
pub(crate) mod load;
pub(crate) mod out_of_reach;
pub(crate) mod parts;
pub(crate) mod producer;
pub(crate) mod producer_client;
pub(crate) mod record;
pub(crate) mod settings;
pub(crate) mod setup;
pub(crate) mod start_positions;
pub(crate) mod statistics;
pub(crate) mod topic_names;
pub(crate) mod topic_requirements;
pub(crate) mod topics;
