//! Common parts of all kinds of queue, and the two traits that each implements:
//! [`Source`](source::Source), which a pool reads from, and [`QueueClient`](client::QueueClient), which
//! commands and the admin API use; and the [`LedgerClient`](ledger::LedgerClient) of a table that holds a ledger. No
//! kind is known here.

pub mod attempts;
pub mod backlog;
pub mod client;
pub mod credit;
pub mod dead_letter;
pub mod delivery;
pub mod exclusive;
pub mod fault;
pub mod health;
pub mod ladder;
pub mod ledger;
pub mod pause;
pub mod publishing;
pub mod source;
pub mod unread;
