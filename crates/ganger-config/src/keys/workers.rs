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
        "Number of worker processes: a number, or a range within which it follows the load, as in \
         `{ min = 1, max = 16 }`.",
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
            integer(0..=WORKERS_MAX),
            "1",
            "Minimum number of workers, and their number at the start. With 0 a pool that has had nothing to do for \
             `shrink_after` has no worker; the next message starts one.",
        ),
        max: t.must(
            "max",
            integer(1..=WORKERS_MAX),
            "Maximum number of workers.",
        ),
        clear_within: t.or(
            "clear_within",
            duration(100 * MILLISECOND..=DAY),
            "1m",
            "Time within which the backlog should be cleared: workers are added as needed, at most \
             as many at once as there are, and never while one is idle.",
        ),
        cooldown: t.or(
            "cooldown",
            duration(100 * MILLISECOND..=HOUR),
            "10s",
            "Minimum time between two changes of their number.",
        ),
        shrink_after: t.or(
            "shrink_after",
            duration(100 * MILLISECOND..=DAY),
            "2m",
            "Time for which fewer workers must have sufficed before their number is reduced; at \
             least the time of four messages.",
        ),
        memory_free_min: t.maybe(
            "memory_free_min",
            size(1 << 20..=1 << 44),
            "Free memory that must remain on the machine, or in the cgroup that the daemon runs \
             in, after a worker is added; not checked if omitted.",
        ),
        cpu_max: t.maybe(
            "cpu_max",
            float(0.05..=1.0),
            "Share of busy processors of the machine above which no worker is added; not checked \
             if omitted.",
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
