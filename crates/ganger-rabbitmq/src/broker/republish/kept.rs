//! Headers in which a copy keeps what would act again in its original place.

use ganger_core::names::OWN_HEADER_PREFIX;

/// Exchange that the message was published to.
pub(crate) const EXCHANGE: &str = "x-ganger-exchange";
/// Routing key that it was published with.
pub(crate) const ROUTING_KEY: &str = "x-ganger-routing-key";
/// Its expiration, which would run on and end the copy.
pub(crate) const EXPIRATION: &str = "x-ganger-expiration";
/// Its user id: the broker accepts no other than the connection's.
pub(crate) const USER_ID: &str = "x-ganger-user-id";
/// Its delivery mode, where it differs from the copy's, which is persistent.
pub(crate) const DELIVERY_MODE: &str = "x-ganger-delivery-mode";
/// Table of the headers by which the broker would route it, or say where it died.
pub(crate) const HEADERS: &str = "x-ganger-headers";
/// Mark of a message held by a worker that died with several: it runs alone.
pub(crate) const SUSPECT: &str = "x-ganger-suspect";
/// Number of daemons in a row that vanished over it: it is a suspect.
pub(crate) const LAPSES: &str = "x-ganger-lapses";
/// Number of its turn, which has begun; the copy is known by it.
pub(crate) const TURN: &str = "x-ganger-turn";
/// Our own number for a message without an id from its producer.
pub(crate) const NUMBER: &str = "x-ganger-number";
/// Its priority, which the copy does not have: it would overtake others that wait with it.
pub(crate) const PRIORITY: &str = "x-ganger-priority";
/// Pass through the dead letters that has put it where it is.
pub(crate) const PASS: &str = "x-ganger-pass";

/// Returns whether the name is one of ours.
pub(crate) fn is_own(name: &str) -> bool {
    let start = name.get(..OWN_HEADER_PREFIX.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(OWN_HEADER_PREFIX))
}
