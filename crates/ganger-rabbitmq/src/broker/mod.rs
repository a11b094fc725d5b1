//! RabbitMQ in the terms of its protocol: the connection and its socket, queues, consumers, and publishing.
//! It waits for answers, and makes no decision about a message.

pub(crate) mod ack_writes;
mod bindings;
pub(crate) mod command_error;
pub(crate) mod connect;
pub(crate) mod consumers;
pub(crate) mod error;
pub(crate) mod field_table;
mod frame_limit;
pub(crate) mod isolating;
pub(crate) mod ledger;
pub(crate) mod lifetime;
pub(crate) mod publish_connection;
pub(crate) mod publisher;
mod quarantine;
pub(crate) mod republish;
pub(crate) mod returned;
pub(crate) mod signature;
pub(crate) mod socket;
pub(crate) mod tls;
pub(crate) mod topology;
mod tracks;
pub(crate) mod utf8;
