//! Headers in which a copy keeps what would act again if it stayed in its place.

use ganger_core::names::OWN_HEADER_PREFIX;

/// The exchange that the message was published to.
pub(crate) const EXCHANGE: &str = "x-ganger-exchange";
/// The routing key that it was published with.
pub(crate) const ROUTING_KEY: &str = "x-ganger-routing-key";
/// Its expiration: it would run on, and end the copy.
pub(crate) const EXPIRATION: &str = "x-ganger-expiration";
/// Its user: the broker takes no other than the connection's.
pub(crate) const USER_ID: &str = "x-ganger-user-id";
/// Its delivery mode, where the copy has another: it is persistent.
pub(crate) const DELIVERY_MODE: &str = "x-ganger-delivery-mode";
/// A table of the headers by which the broker would route it, or tell where it died.
pub(crate) const HEADERS: &str = "x-ganger-headers";
/// It was in the hands of a worker that died with several: it runs alone.
pub(crate) const SUSPECT: &str = "x-ganger-suspect";
/// It is a suspect: so many daemons vanished over it in a row.
pub(crate) const LAPSES: &str = "x-ganger-lapses";
/// Its turn to run has begun: a number by which the copy is known.
pub(crate) const TURN: &str = "x-ganger-turn";
/// Our own number for a message that has no id of its producer's.
pub(crate) const NUMBER: &str = "x-ganger-number";
/// Its priority, where the copy has none: it would pass others that wait with it.
pub(crate) const PRIORITY: &str = "x-ganger-priority";
/// Which reading of the dead letters has put it where it is.
pub(crate) const PASS: &str = "x-ganger-pass";

/// Its name is one of ours.
pub(crate) fn is_own(name: &str) -> bool {
    let start = name.get(..OWN_HEADER_PREFIX.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(OWN_HEADER_PREFIX))
}
