//! A cluster of which a node is down: what the others lead is worked on.

use crate::harness::kafka::{Kafka, Plan, in_trouble, is_well};
use crate::harness::{Event, trials};

trials![a_partition_without_a_leader_keeps_no_other_from_being_read];

/// One of which nothing is committed: where it begins only its leader knows.
fn a_partition_without_a_leader_keeps_no_other_from_being_read() {
    let site = Plan::on(Kafka::own(), 1).make();
    let pool = site.pool(&["--v2=1"]);
    // All topics but that partition are on the first node.
    let daemon = site.start(&pool);
    site.send(&["before"]);
    site.all_done(&daemon);
    daemon.stop();
    let second = site.kafka.beside(2);
    site.kafka.widen_topic_onto(&site.topic, 2);
    site.kafka.send(&[site.message("in 1").partition(1)]);
    second.kill();
    site.kafka.lacks_a_leader(&site.topic);
    let daemon = site.start(&pool);
    site.send(&["in 0"]);
    site.done(&daemon, 2);
    in_trouble(&daemon, &format!("partition {}/1", site.topic));
    second.start_again();
    site.done(&daemon, 3);
    is_well(&daemon);
    // And one that goes away while it is read.
    second.kill();
    site.kafka.lacks_a_leader(&site.topic);
    site.send(&["in 0 meanwhile"]);
    site.done(&daemon, 4);
    second.start_again();
    site.kafka.send(&[site.message("in 1 again").partition(1)]);
    site.done(&daemon, 5);
    site.all_done(&daemon);
    is_well(&daemon);
    daemon.stop();
    let record = site.record();
    record.assert_done_once(&["before", "in 0", "in 1", "in 0 meanwhile", "in 1 again"]);
    assert_eq!(record.all(Event::Began).len(), 5);
}
