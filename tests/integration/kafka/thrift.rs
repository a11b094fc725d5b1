//! How little a pool takes: of memory what `buffered_bytes_max` says, whatever the number of partitions
//! and the size of their records, and all of them have their turn; of a processor hardly anything when
//! there is nothing to do.

use std::fs;

use crate::harness::kafka::{Kafka, NewRecord, Plan};
use crate::harness::{Daemon, Event, Pool, trials};

trials![
    many_partitions_of_large_records_take_no_more_than_they_may;
    long: five_hundred_partitions_of_a_mebibyte_each, twenty_idle_pools,
    partitions_that_have_nothing_cost_nothing
];

/// The most KiB that a daemon has ever had in memory that works off so many records of so many
/// bytes of each partition.
fn resident_kib_max(partitions: i32, each: i32, bytes: usize, buffered: &str) -> u64 {
    let count = usize::try_from(partitions).unwrap();
    let plan =
        Plan::on(Kafka::own(), count).source(&format!("buffered_bytes_max = \"{buffered}\""));
    let site = plan.topic("max.message.bytes", "2000000").make();
    let tail = "x".repeat(bytes);
    for n in 0..each {
        let record = |partition: i32| {
            let text = format!("{partition} {n} {tail}");
            site.message(&text).partition(partition)
        };
        for first in (0..partitions).step_by(50) {
            let some = first..partitions.min(first + 50);
            site.kafka
                .send(&some.map(record).collect::<Vec<NewRecord>>());
        }
    }
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.all_done(&daemon);
    let done = site.record().all(Event::Done).len();
    assert_eq!(done, count * usize::try_from(each).unwrap(), "each once");
    let most = daemon.resident_kib_max();
    daemon.stop();
    most
}

/// Without a bound for all of them there would be 200 MB at hand.
fn many_partitions_of_large_records_take_no_more_than_they_may() {
    let most = resident_kib_max(100, 2, 900_000, "8MiB");
    assert!(most < 110 * 1024, "{most} KiB at its largest");
}

/// The goal of the design: 64 MiB of buffer, less than 200 MiB in all.
fn five_hundred_partitions_of_a_mebibyte_each() {
    let most = resident_kib_max(500, 2, 1 << 20, "64MiB");
    assert!(most < 200 * 1024, "{most} KiB at its largest");
}

/// The processors' time that threads with such names have taken so far, in nanoseconds.
fn nanos(daemon: &Daemon, is_meant: impl Fn(&str) -> bool) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let times = threads.filter_map(|thread| {
        let thread = thread.unwrap().path();
        let name = fs::read_to_string(thread.join("comm")).ok()?;
        let times = fs::read_to_string(thread.join("schedstat")).ok()?;
        let time: u64 = times.split(' ').next().unwrap().parse().unwrap();
        is_meant(&name).then_some(time)
    });
    times.sum()
}

/// Since the machine has started.
fn seconds() -> f64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    uptime.split(' ').next().unwrap().parse().unwrap()
}

/// The goal of the design: less than a twentieth of a core, for what is not the library's own.
fn twenty_idle_pools() {
    let site = Plan::on(Kafka::own(), 0).source("partitions = 3").make();
    let pool = |n: usize| -> Pool {
        let pool = site.pool(&["--v2=1"]).text("name", &format!("pool-{n}"));
        pool.text("queue", &site.named(&n.to_string()))
    };
    let pools: Vec<Pool> = (0..20).map(pool).collect();
    let daemon = site.site.start(&pools);
    daemon.eventually("every pool to have its partitions", || {
        let assigned = daemon.times_logged("partitions assigned");
        assigned >= pools.len() && site.group.is_settled()
    });
    let ours = || nanos(&daemon, |name| !name.starts_with("rdk:"));
    let (from, spent) = (seconds(), ours());
    daemon.eventually("half a minute to pass", || seconds() > from + 30.0);
    let share = (ours() - spent) as f64 / 1e7 / (seconds() - from);
    assert!(share < 5.0, "{share} % of a core");
    daemon.stop();
}

/// How many nanoseconds of a processor the source's own thread takes for a message, where messages come
/// a few at a time and to a few of so many partitions.
fn nanos_a_message(partitions: usize) -> u64 {
    const ROUNDS: usize = 100;
    const BUSY: i32 = 6;
    let site = Plan::on(Kafka::own(), partitions).make();
    // The broker takes a while to make so many.
    let last = i32::try_from(partitions).unwrap() - 1;
    site.kafka.send(&[site.message("first").partition(last)]);
    let daemon = site.start(&site.pool(&["--v2=4"]));
    let each = usize::try_from(BUSY).unwrap();
    let send = |round: usize| {
        let record = |partition: i32| {
            let text = format!("{round} {partition}");
            site.message(&text).partition(partition)
        };
        let records: Vec<NewRecord> = (0..BUSY).map(record).collect();
        site.kafka.send(&records);
        site.done(&daemon, 1 + (round + 1) * each);
    };
    send(0);
    let before = nanos(&daemon, |name| name.starts_with("source-"));
    (1..=ROUNDS).for_each(send);
    let spent = nanos(&daemon, |name| name.starts_with("source-")) - before;
    daemon.stop();
    spent / (ROUNDS * each) as u64
}

/// Those that have no messages just now are not looked at for each that another has.
fn partitions_that_have_nothing_cost_nothing() {
    let (few, many) = (nanos_a_message(6), nanos_a_message(500));
    assert!(
        many < 2 * few,
        "{few} ns with 6 partitions, {many} with 500"
    );
}
