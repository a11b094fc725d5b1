//! The keys for messages whose attempt failed, and for the breaker of a pool where nearly all fail.

use std::time::Duration;

use super::shared::{DAY, HOUR, MILLISECOND, MONTH};
use crate::model::{Breaker, Retry, SourceConfig};
use crate::reader::Reader;
use crate::value_types::{Wrong, duration, float, integer};
use ganger_core::backoff::Backoff;

pub(super) fn crashes_max(t: &mut Reader<'_>) -> u32 {
    t.or(
        "crashes_max",
        integer(1..=1_000_000),
        "3",
        "A message that killed so many workers is dead, attempts left or not.",
    )
}

pub(super) fn lapses_max(t: &mut Reader<'_>) -> u32 {
    let help = "A message over which so many daemons vanished in a row is dead.";
    // One more than make it a suspect: no message is dead-lettered before it has run as one.
    t.or("lapses_max", integer(3..=1_000_000), "10", help)
}

pub(super) fn steps_max(t: &mut Reader<'_>) -> u32 {
    t.or(
        "steps_max",
        integer(1..=u32::MAX),
        "100000",
        "How often a task may go on as another message: a reply or an emit of a message that has gone \
         through so many pools, or so often through one, is refused, and the message is a dead letter.",
    )
}

pub(super) fn retry(t: &mut Reader<'_>, source: Option<&SourceConfig>, kafka: bool) -> Retry {
    let retry = Retry {
        attempts: t.or(
            "attempts",
            integer(1..=1_000_000),
            "20",
            "How many attempts a message has, the first included.",
        ),
        backoff: Backoff {
            initial: t.or(
                "initial",
                duration(MILLISECOND..=DAY),
                "1s",
                "The wait after the first failure.",
            ),
            factor: t.or(
                "factor",
                float(1.0..=100.0),
                "2.0",
                "How much longer each further wait is.",
            ),
            max: t.or(
                "max",
                duration(MILLISECOND..=MONTH),
                "1h",
                "The longest wait, also of those that a worker asks for; on Kafka shorter than the \
                 source's `retry_retention`.",
            ),
            jitter: t.or(
                "jitter",
                float(0.0..=1.0),
                "0.2",
                "The share of a wait that chance may take off or add.",
            ),
        },
        in_place_max: in_place_max(t, kafka),
    };
    check_backoff(t, &retry.backoff);
    if let Some(SourceConfig::Kafka(kafka)) = source
        && retry.backoff.max >= kafka.retry_retention
    {
        // The broker deletes what is older, whether it was read or not.
        let rule =
            "must be shorter than the source's `retry_retention`, which keeps messages that wait";
        let help = "lower it, or raise `retry_retention`";
        t.wrong("max", &Wrong::new(rule, help));
    }
    retry
}

fn in_place_max(t: &mut Reader<'_>, kafka: bool) -> Duration {
    let read = |t: &mut Reader<'_>| {
        t.or(
            "in_place_max",
            duration(Duration::ZERO..=HOUR),
            "30s",
            "A wait up to this holds the key or the partition; after a longer one the \
             message comes out of its order.",
        )
    };
    t.only("Kafka", kafka, read).unwrap_or_default()
}

pub(super) fn check_backoff(t: &Reader<'_>, backoff: &Backoff) {
    if backoff.initial > backoff.max {
        let key = if t.has("max") { "max" } else { "initial" };
        let rule = "must leave `initial` no longer than `max`";
        t.wrong(key, &Wrong::new(rule, "raise `max` or lower `initial`"));
    }
}

pub(super) fn breaker(t: &mut Reader<'_>) -> Option<Breaker> {
    t.switch(
        "breaker",
        "When what the workers depend on seems to be down: nothing is taken from the queue any more \
         but for one message at a time that is tried, until one succeeds.",
        rules_of_breaker,
    )
}

fn rules_of_breaker(t: &mut Reader<'_>) -> Breaker {
    Breaker {
        failures: t.or(
            "failures",
            float(0.05..=1.0),
            "0.9",
            "The share of the last first attempts that has failed when it opens. Answers of 400 and \
             crashes are no failures here.",
        ),
        of: t
            .or(
                "of",
                integer(2_u16..=1000),
                "20",
                "How many first attempts it looks at, each of another message.",
            )
            .into(),
        probe: t.or(
            "probe",
            duration(MILLISECOND..=HOUR),
            "1s",
            "While it is open, how often a message is tried, by turns one that was not tried yet and \
             one that was. The first that succeeds closes it.",
        ),
    }
}
