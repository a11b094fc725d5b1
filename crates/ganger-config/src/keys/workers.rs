//! The keys for the number of workers of a pool.

use super::shared::{DAY, HOUR, MILLISECOND};
use crate::model::{Autoscale, WORKERS_MAX, Workers};
use crate::reader::Reader;
use crate::reader::either::Either;
use crate::value_types::compound::hinted;
use crate::value_types::{Wrong, duration, float, integer, size};

pub(super) fn workers(t: &mut Reader<'_>) -> Workers {
    let hint = "write a number, or a range such as { min = 1, max = 16 }";
    let number = t.or_table(
        "workers",
        hinted(integer(1..=WORKERS_MAX), hint),
        "1",
        "How many worker processes it keeps: a number, or a range within which their number follows \
         what waits, as in `{ min = 1, max = 16 }`.",
        range,
    );
    match number {
        Either::Value(number) => Workers::Fixed(number),
        Either::Table(range) => Workers::Range(range),
    }
}

fn range(t: &mut Reader<'_>) -> Autoscale {
    let range = Autoscale {
        min: t.or(
            "min",
            integer(1..=WORKERS_MAX),
            "1",
            "The fewest. With so many it starts.",
        ),
        max: t.must("max", integer(1..=WORKERS_MAX), "The most."),
        clear_within: t.or(
            "clear_within",
            duration(100 * MILLISECOND..=DAY),
            "1m",
            "How soon what waits should be cleared: workers are added until it is, at most as many \
             at once as there are, and never while one has nothing to do.",
        ),
        cooldown: t.or(
            "cooldown",
            duration(100 * MILLISECOND..=HOUR),
            "10s",
            "The least time from one change of their number to the next.",
        ),
        shrink_after: t.or(
            "shrink_after",
            duration(100 * MILLISECOND..=DAY),
            "2m",
            "For how long fewer must have been enough before there are fewer; at least the time of \
             four messages.",
        ),
        memory_free_min: t.maybe(
            "memory_free_min",
            size(1 << 20..=1 << 44),
            "No worker is added that would leave the machine, or the cgroup that the daemon runs \
             in, with less memory to give; added whatever there is if left out.",
        ),
        cpu_max: t.maybe(
            "cpu_max",
            float(0.05..=1.0),
            "No worker is added while a larger share of the machine's processors is busy; added \
             however busy they are if left out.",
        ),
    };
    if range.max > 0 && range.min > range.max {
        let key = if t.has("min") { "min" } else { "max" };
        let wrong = Wrong::new(
            "must leave `min` no more than `max`",
            "raise `max` or lower `min`",
        );
        t.wrong(key, &wrong);
    }
    range
}
