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
        "Number of workers killed by a message after which it is a dead letter, even with attempts \
         left.",
    )
}

pub(super) fn lapses_max(t: &mut Reader<'_>) -> u32 {
    let help = "Number of consecutive daemons that vanished with a message in hand after which it is a \
         dead letter.";
    // One more than make it a suspect: no message is dead-lettered before it has run as one.
    t.or("lapses_max", integer(3..=1_000_000), "10", help)
}

pub(super) fn steps_max(t: &mut Reader<'_>) -> u32 {
    t.or(
        "steps_max",
        integer(1..=u32::MAX),
        "100000",
        "Maximum number of times that a task continues as another message: a reply or an emit of a \
         message that has gone through this many pools, or this often through one, is refused, and \
         the message is a dead letter.",
    )
}

pub(super) fn retry(t: &mut Reader<'_>, source: Option<&SourceConfig>, kafka: bool) -> Retry {
    let retry = Retry {
        attempts: t.or(
            "attempts",
            integer(1..=1_000_000),
            "20",
            "Number of attempts of a message, including the first.",
        ),
        backoff: Backoff {
            initial: t.or(
                "initial",
                duration(MILLISECOND..=DAY),
                "1s",
                "Delay after the first failure.",
            ),
            factor: t.or(
                "factor",
                float(1.0..=100.0),
                "2.0",
                "Factor by which each further delay is longer.",
            ),
            max: t.or(
                "max",
                duration(MILLISECOND..=MONTH),
                "1h",
                "Maximum delay, also of those that a worker asks for; on Kafka shorter than the \
                 source's `retry_retention`.",
            ),
            jitter: t.or(
                "jitter",
                float(0.0..=1.0),
                "0.2",
                "Maximum share by which a delay is randomly shortened or lengthened.",
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
            "Maximum delay during which the key or the partition is held; after a longer delay the \
             message is processed out of order.",
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
        "Protection while a dependency of the workers seems to be down: intake stops, except for \
         one message at a time that is tried, until one succeeds.",
        rules_of_breaker,
    )
}

fn rules_of_breaker(t: &mut Reader<'_>) -> Breaker {
    Breaker {
        failures: t.or(
            "failures",
            float(0.05..=1.0),
            "0.9",
            "Share of failures among the most recent first attempts at which the breaker opens. \
             Answers of 400 and crashes do not count as failures here.",
        ),
        of: t
            .or(
                "of",
                integer(2_u16..=1000),
                "20",
                "Number of first attempts that are considered, each of another message.",
            )
            .into(),
        probe: t.or(
            "probe",
            duration(MILLISECOND..=HOUR),
            "1s",
            "Interval at which a message is tried while the breaker is open, alternating between \
             one that was not tried yet and one that was. The first success closes it.",
        ),
    }
}
