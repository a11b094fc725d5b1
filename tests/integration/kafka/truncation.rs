//! A log that loses its end, as in an unclean election, and grows anew: what was read before says
//! nothing of what is at the same offsets now. Nothing new is skipped, nothing old runs again.

use std::sync::Arc;

use crate::harness::kafka::{Kafka, KafkaSite, NewRecord, Plan};
use crate::harness::{Daemon, field, trials};

trials![
    a_log_that_was_cut_and_grew_past_what_was_committed,
    a_log_that_is_cut_while_it_is_read,
    a_log_that_was_cut_and_has_not_grown,
];

/// Where the log is cut.
const CUT: i64 = 45;

fn numbered(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

/// A hundred messages that are done, in a partition that a second node has alone: so another sees
/// its leader go and come back, and gives it an epoch of its own.
struct Scene {
    site: KafkaSite,
    second: Arc<Kafka>,
    daemon: Daemon,
    old: Vec<String>,
}

const PARTITION: i32 = 1;

impl Scene {
    fn set() -> Self {
        let site = Plan::on(Kafka::own(), 1).make();
        let second = site.kafka.beside(2);
        site.kafka.widen_topic_onto(&site.topic, 2);
        let daemon = site.start(&site.pool(&["--v2=4"]));
        let old = numbered("old", 100);
        let cut = usize::try_from(CUT).unwrap();
        let scene = Self {
            site,
            second,
            daemon,
            old,
        };
        // In batches of their own, for a log is cut between two.
        scene.send(&scene.old[..cut]);
        scene.send(&scene.old[cut..]);
        scene.site.all_done(&scene.daemon);
        scene
    }

    fn send(&self, bodies: &[String]) {
        let record = |body: &String| self.site.message(body).partition(PARTITION);
        let records: Vec<NewRecord> = bodies.iter().map(record).collect();
        self.site.kafka.send(&records);
    }

    fn restart(&mut self) {
        self.daemon = self.site.start(&self.site.pool(&["--v2=4"]));
    }

    fn cut(&self) {
        self.second.kill();
        self.site.kafka.lacks_a_leader(&self.site.topic);
        self.second.cut_log(&self.site.topic, PARTITION, CUT);
        self.second.start_again();
        self.second.is_ready();
    }

    fn all_done_once(self, new: &[String]) {
        self.site.done(&self.daemon, self.old.len() + new.len());
        self.site.all_done(&self.daemon);
        self.is_told();
        self.daemon.stop();
        let record = self.site.record();
        record.assert_done_once(new);
        record.assert_done_once(&self.old);
    }

    fn is_told(&self) {
        let told = self.daemon.logs(
            "log has lost messages that were read (topic recreated, or unclean election); resuming \
             where it diverges",
            |record| field(record, "partition") == format!("{}/{PARTITION}", self.site.topic),
        );
        assert_eq!(field(&told, "level"), "ERROR", "{told}");
        assert_eq!(told["fork"], CUT, "{told}");
    }
}

fn a_log_that_was_cut_and_grew_past_what_was_committed() {
    let mut scene = Scene::set();
    scene.daemon.stop();
    scene.cut();
    let new = numbered("new", 105);
    scene.send(&new);
    scene.restart();
    scene.all_done_once(&new);
}

fn a_log_that_is_cut_while_it_is_read() {
    let scene = Scene::set();
    scene.cut();
    let new = numbered("new", 105);
    scene.send(&new);
    scene.all_done_once(&new);
}

fn a_log_that_was_cut_and_has_not_grown() {
    let mut scene = Scene::set();
    scene.daemon.stop();
    scene.cut();
    scene.restart();
    scene.is_told();
    let new = numbered("new", 5);
    scene.send(&new);
    scene.all_done_once(&new);
}
