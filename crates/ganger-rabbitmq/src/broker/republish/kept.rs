//! Headers in which a copy keeps data that would take effect again in its original place.

use ganger_core::names::OWN_HEADER_PREFIX;

/// Exchange that the message was published to.
pub(crate) const EXCHANGE: &str = "x-ganger-exchange";
/// Routing key that it was published with.
pub(crate) const ROUTING_KEY: &str = "x-ganger-routing-key";
/// Its expiration, which would continue and end the copy.
pub(crate) const EXPIRATION: &str = "x-ganger-expiration";
/// Its user id: the broker accepts no other than the connection's.
pub(crate) const USER_ID: &str = "x-ganger-user-id";
/// Its delivery mode, if it differs from the copy's, which is persistent.
pub(crate) const DELIVERY_MODE: &str = "x-ganger-delivery-mode";
/// Table of the headers by which the broker would route it, or that record its deaths.
pub(crate) const HEADERS: &str = "x-ganger-headers";
/// Mark of a message held by a worker that died with several: it runs alone.
pub(crate) const SUSPECT: &str = "x-ganger-suspect";
/// Number of consecutive daemons that vanished over it, which makes it a suspect.
pub(crate) const LAPSES: &str = "x-ganger-lapses";
/// Number of its turn, which has begun; it identifies the copy.
pub(crate) const TURN: &str = "x-ganger-turn";
/// Ganger's own number for a message without an id from its producer.
pub(crate) const NUMBER: &str = "x-ganger-number";
/// Its priority, which the copy does not have: the copy would overtake others that wait with it.
pub(crate) const PRIORITY: &str = "x-ganger-priority";
/// Pass through the dead letters that has put it in its place.
pub(crate) const PASS: &str = "x-ganger-pass";

/// Returns whether the name is one of ganger's own.
pub(crate) fn is_own(name: &str) -> bool {
    let start = name.get(..OWN_HEADER_PREFIX.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(OWN_HEADER_PREFIX))
}
