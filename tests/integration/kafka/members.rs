//! Life in a consumer group: slow work and rebalances. Nobody is put out of the group for being
//! slow, what is in hand is finished before a partition goes, and who has lost one keeps quiet.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::kafka::{KafkaSite, Member, NewRecord, Plan, in_trouble, is_well};
use crate::harness::{DEADLINE, Daemon, Event, Pool, field, trials};

trials![
    a_message_of_a_minute_outlives_a_poll_interval_of_ten_seconds,
    what_is_in_hand_is_finished_before_its_partition_goes,
    what_takes_too_long_goes_with_its_partition,
    a_daemon_that_stood_still_keeps_quiet_about_what_it_lost,
    what_a_lost_partition_leaves_in_hand_is_cancelled,
    what_was_done_and_not_committed_counts_as_likely_repeated,
    a_daemon_that_stood_still_while_it_gave_back_comes_back,
    another_daemon_takes_over_from_a_dead_one,
    a_static_member_comes_back_without_a_rebalance,
    a_member_whose_name_is_taken_says_so_and_comes_back,
    a_member_without_a_partition_is_well,
    a_member_is_not_blamed_for_what_it_has_lost,
    a_group_that_shares_partitions_eagerly,
    several_pools_of_one_source,
    daemons_of_one_group_with_topics_of_their_own,
    a_reload_keeps_the_membership,
];

const MINUTE: Duration = Duration::from_secs(60);

fn a_message_of_a_minute_outlives_a_poll_interval_of_ten_seconds() {
    let plan = Plan::new(1).consumer("max.poll.interval.ms", "10000");
    let site = plan.make();
    let daemon = site.start(&two_workers(&site));
    let slow = "mode:sleep:60000 slow";
    site.kafka.send(&[site.message(slow).key("slow")]);
    site.begun(&daemon, &[slow]);
    let member = site.group.members();
    site.send(&["another"]);
    site.done(&daemon, 1);
    daemon.within(MINUTE + DEADLINE, "the slow one to be done", || {
        site.group.lag(&site.topic) == 0
    });
    assert_eq!(member.len(), 1);
    assert_eq!(site.group.members(), member, "the same member all the time");
    site.all_done(&daemon);
    site.record().assert_done_once(&[slow, "another"]);
    daemon.stop();
}

/// Nothing beyond what they work on is handed to them.
fn two_workers(site: &KafkaSite) -> Pool {
    let pool = site.pool(&["--v2=1"]).set("workers", "2");
    pool.set("prefetch", "1")
}

/// One message in hand in each of two partitions, each waiting for a file.
fn two_in_hand(plan: Plan) -> (KafkaSite, Daemon, [&'static str; 2]) {
    let site = plan.make();
    let daemon = site.start(&two_workers(&site));
    let slow = ["mode:wait:go slow 0", "mode:wait:go slow 1"];
    let record = |partition: i32, text| site.message(text).partition(partition);
    site.kafka.send(&[record(0, slow[0]), record(1, slow[1])]);
    site.begun(&daemon, &slow);
    site.kafka.send(&[
        record(0, "behind 0").key("a"),
        record(1, "behind 1").key("b"),
    ]);
    site.done(&daemon, 0);
    (site, daemon, slow)
}

fn what_is_in_hand_is_finished_before_its_partition_goes() {
    let (site, daemon, slow) = two_in_hand(Plan::new(2));
    let other = site.start(&two_workers(&site));
    other.eventually("both to be members", || site.group.members().len() == 2);
    daemon.logged("partitions revoked");
    site.site.touch("go");
    site.all_done(&other);
    let record = site.record();
    record.assert_done_once(&slow);
    record.assert_done_once(&["behind 0", "behind 1"]);
    both_work(&site, &daemon, &other);
    daemon.stop();
    other.stop();
}

/// Each daemon has one of the two partitions.
fn both_work(site: &KafkaSite, one: &Daemon, other: &Daemon) {
    let bodies = ["mode:wait:both in 0", "mode:wait:both in 1"];
    let record = |partition: usize| {
        let number = i32::try_from(partition).unwrap();
        site.message(bodies[partition]).partition(number)
    };
    site.kafka.send(&[record(0), record(1)]);
    site.begun(other, &bodies);
    let record = site.record();
    let workers = bodies.map(|body| record.of(Event::Began, body)[0].pid);
    let of = |daemon: &Daemon| daemon.has_workers(2);
    let split = |a: i32, b: i32| of(one).contains(&a) && of(other).contains(&b);
    let [a, b] = workers;
    assert!(split(a, b) || split(b, a), "{workers:?}");
    site.site.touch("both");
    site.settled(other);
}

/// Half of the poll interval is what a rebalance waits for work in hand.
fn what_takes_too_long_goes_with_its_partition() {
    let plan = Plan::new(2).consumer("max.poll.interval.ms", "6000");
    let (site, daemon, slow) = two_in_hand(plan);
    let other = site.start(&two_workers(&site));
    let twice = |body: &&str| site.record().of(Event::Began, body).len() == 2;
    other.eventually("one of the two to be begun again", || {
        slow.iter().any(twice)
    });
    assert_eq!(site.group.members().len(), 2, "nobody was put out");
    let told = |daemon: &Daemon| {
        let workers = daemon.has_workers(2);
        let record = site.record();
        let told = record.all(Event::Told).into_iter();
        told.filter(|told| workers.contains(&told.pid)).count()
    };
    daemon.eventually("the worker that has lost its message to be told", || {
        told(&daemon) == 1
    });
    assert_eq!(told(&other), 0, "it is the new owner's");
    site.site.touch("go");
    site.all_done(&other);
    let record = site.record();
    assert_eq!(record.assert_none_lost(&slow), 1, "one of them twice");
    record.assert_done_once(&["behind 0", "behind 1"]);
    both_work(&site, &daemon, &other);
    daemon.stop();
    other.stop();
}

fn a_daemon_that_stood_still_keeps_quiet_about_what_it_lost() {
    let site = KafkaSite::new(1);
    let pool = two_workers(&site);
    let daemon = site.start(&pool);
    site.kafka.make_topic(&site.named("answers"), 1);
    let slow = ["mode:wait:go,reply a", "mode:wait:go,reply b"];
    let answers = site.named("answers");
    let question = |body: &&str| site.message(body).header("ReplyTo", &answers);
    site.kafka
        .send(&slow.iter().map(question).collect::<Vec<NewRecord>>());
    site.begun(&daemon, &slow);
    daemon.signal(Signal::SIGSTOP);
    let other = site.start(&pool);
    other.eventually("the other to take both over", || {
        site.record().all(Event::Began).len() == 4
    });
    site.site.touch("go");
    site.settled(&other);
    other.eventually("all four to be done", || {
        site.record().all(Event::Done).len() == 4
    });
    daemon.signal(Signal::SIGCONT);
    daemon.eventually("it to count what may have run twice", || {
        daemon.signal(Signal::SIGUSR1);
        let said = daemon.records(|record| !record["likely_duplicates"].is_null());
        said.iter()
            .any(|record| field(record, "likely_duplicates") == "2")
    });
    assert_eq!(site.kafka.read(&answers).len(), 2, "one answer each");
    daemon.eventually("it to be a member again", || {
        site.group.members().len() == 2
    });
    // Wherever the partition is now, the work goes on.
    site.send(&["after that"]);
    site.done(&daemon, 5);
    site.all_done(&daemon);
    site.record().assert_done_once(&["after that"]);
    other.stop();
    site.send(&["alone again"]);
    site.done(&daemon, 6);
    site.all_done(&daemon);
    daemon.stop();
}

/// Its worker is told to give up what it works on, and begins nothing else of it.
fn what_a_lost_partition_leaves_in_hand_is_cancelled() {
    let site = KafkaSite::new(1);
    let pool = site.pool(&["--v2=1"]).set("workers", "1");
    let first = site.start(&pool.set("prefetch", "2"));
    let slow = "mode:wait:go slow";
    let record = |text, key| site.message(text).key(key);
    site.kafka.send(&[record(slow, "a"), record("behind", "b")]);
    site.begun(&first, &[slow]);
    let worker = first.has_workers(1)[0];
    first.signal(Signal::SIGSTOP);
    let second = site.start(&two_workers(&site));
    second.eventually("the second to take both over", || {
        let record = site.record();
        record.of(Event::Began, slow).len() == 2 && !record.of(Event::Done, "behind").is_empty()
    });
    assert_eq!(site.record().all(Event::Told).len(), 0);
    first.signal(Signal::SIGCONT);
    first.eventually("the first's worker to be told", || {
        !site.record().all(Event::Told).is_empty()
    });
    let told = site.record();
    let told = told.all(Event::Told);
    let told: Vec<(i32, &str)> = told.iter().map(|e| (e.pid, e.text.as_str())).collect();
    assert_eq!(told, [(worker, "__cancel__ 1")]);
    site.site.touch("go");
    first.logged("settled too late: the partition was lost, so the message may run twice");
    site.settled(&second);
    first.stop();
    second.stop();
    let record = site.record();
    assert_eq!(record.of(Event::Done, slow).len(), 2);
    record.assert_done_once(&["behind"]);
    assert_eq!(record.of(Event::Began, "behind").len(), 1);
}

/// The group gives it to another, who knows of no commit.
fn what_was_done_and_not_committed_counts_as_likely_repeated() {
    let site = Plan::new(1).source(r#"commit_interval = "1m""#).make();
    let first = site.start(&two_workers(&site));
    let bodies: Vec<String> = (0..20).map(|n| format!("message {n}")).collect();
    site.send(&bodies);
    site.done(&first, bodies.len());
    first.signal(Signal::SIGSTOP);
    let second = site.start(&two_workers(&site));
    site.send(&["after them"]);
    second.eventually("the second to come so far", || {
        !site.record().of(Event::Done, "after them").is_empty()
    });
    second.stop();
    let repeated = site.record().all(Event::Began).len() - bodies.len() - 1;
    assert!(repeated > 2, "{repeated} were not committed");
    first.signal(Signal::SIGCONT);
    first.eventually("it to count all that was repeated", || {
        first.signal(Signal::SIGUSR1);
        let counted = first.records(|record| !record["likely_duplicates"].is_null());
        let counted = counted
            .last()
            .map(|record| field(record, "likely_duplicates"));
        counted == Some(repeated.to_string())
    });
    first.stop();
}

/// It was about to give a partition back, and is put out of the group meanwhile.
fn a_daemon_that_stood_still_while_it_gave_back_comes_back() {
    let plan = Plan::new(2).consumer("max.poll.interval.ms", "300000");
    let (site, daemon, slow) = two_in_hand(plan);
    let other = site.start(&two_workers(&site));
    daemon.logged("partitions revoked");
    daemon.signal(Signal::SIGSTOP);
    other.eventually("the other to take both over", || {
        let record = site.record();
        slow.iter()
            .all(|body| record.of(Event::Began, body).len() == 2)
    });
    site.site.touch("go");
    site.settled(&other);
    daemon.signal(Signal::SIGCONT);
    other.eventually("it to be a member again", || {
        site.group.members().len() == 2 && site.group.is_settled()
    });
    both_work(&site, &daemon, &other);
    daemon.stop();
    other.stop();
}

fn another_daemon_takes_over_from_a_dead_one() {
    let (site, daemon, slow) = two_in_hand(Plan::new(2));
    let other = site.start(&two_workers(&site));
    daemon.crash();
    site.site.touch("go");
    site.all_done(&other);
    site.record().assert_none_lost(&slow);
    site.record().assert_none_lost(&["behind 0", "behind 1"]);
    other.stop();
}

fn takes_part_until(
    member: &Member,
    daemon: &Daemon,
    what: &str,
    mut so: impl FnMut(&[i32]) -> bool,
) {
    daemon.eventually(what, || so(&member.take_part()));
}

fn a_static_member_comes_back_without_a_rebalance() {
    let plan = Plan::new(2)
        .consumer("group.instance.id", "the-first")
        .consumer("session.timeout.ms", "20000");
    let site = plan.make();
    let pool = site.pool(&["--v2=1"]);
    let daemon = site.start(&pool);
    // Whoever comes first does not get its first partitions from a rebalance with another.
    daemon.logs("partitions assigned", |record| {
        field(record, "partitions").contains(&site.topic)
    });
    let member = site.group.join(&site.topic, &[]);
    takes_part_until(&member, &daemon, "the stranger to have one", |partitions| {
        partitions.len() == 1 && site.group.is_settled()
    });
    let before = member.rebalances();
    daemon.stop();
    let daemon = site.start(&pool);
    let ours = 1 - member.take_part()[0];
    site.kafka
        .send(&[site.message("after the return").partition(ours)]);
    takes_part_until(&member, &daemon, "the work to go on", |_| {
        !site.record().all(Event::Done).is_empty()
    });
    assert_eq!(member.rebalances(), before);
    assert_eq!(member.take_part(), [1 - ours]);
    daemon.stop();
}

fn a_member_whose_name_is_taken_says_so_and_comes_back() {
    let site = Plan::new(1)
        .consumer("group.instance.id", "the-only")
        .make();
    let pool = site.pool(&["--v2=1"]);
    let first = site.start(&pool);
    let slow = "mode:wait:go slow";
    site.send(&[slow]);
    site.begun(&first, &[slow]);
    let second = site.start(&pool);
    first.logs("rejoining the group after a pause", |_| true);
    first.signal(Signal::SIGUSR1);
    first.logs("status of the pool", |status| {
        field(status, "state") == "source down" && !status["source_problem"].is_null()
    });
    second.eventually("the second to have what the first has lost", || {
        site.record().of(Event::Began, slow).len() == 2
    });
    site.site.touch("go");
    first.logs(
        "settled too late: the partition was lost, so the message may run twice",
        |_| true,
    );
    site.settled(&second);
    second.stop();
    site.send(&["after that"]);
    first.eventually("the first to be back at work", || {
        site.record().of(Event::Done, "after that").len() == 1
    });
    site.all_done(&first);
    first.stop();
}

/// It could not be read, and is another's to read now.
fn a_member_is_not_blamed_for_what_it_has_lost() {
    let plan = Plan::new(1).consumer("auto.offset.reset", "error");
    let site = plan.make();
    let first = site.start(&two_workers(&site));
    in_trouble(&first, "nothing is committed");
    first.signal(Signal::SIGSTOP);
    let second = site.start(&two_workers(&site));
    in_trouble(&second, "nothing is committed");
    first.signal(Signal::SIGCONT);
    first.eventually("both to be members", || site.group.members().len() == 2);
    is_well(&first);
    first.stop();
    second.stop();
}

/// Also one that had some before.
fn a_member_without_a_partition_is_well() {
    let site = KafkaSite::new(1);
    let first = site.start(&two_workers(&site));
    site.send(&["before"]);
    site.all_done(&first);
    let second = site.start(&two_workers(&site));
    second.eventually("both to be members", || site.group.members().len() == 2);
    is_well(&second);
    first.signal(Signal::SIGSTOP);
    second.logs("partitions assigned", |record| {
        field(record, "partitions").contains(&site.topic)
    });
    site.send(&["meanwhile"]);
    site.done(&second, 2);
    first.signal(Signal::SIGCONT);
    first.logs(
        "partitions lost: their messages in hand may run twice",
        |_| true,
    );
    second.eventually("both to be members", || {
        site.group.members().len() == 2 && site.group.is_settled()
    });
    is_well(&first);
    is_well(&second);
    site.all_done(&second);
    first.stop();
    second.stop();
}

fn a_group_that_shares_partitions_eagerly() {
    let plan = Plan::new(2).consumer("partition.assignment.strategy", "range");
    let (site, daemon, slow) = two_in_hand(plan);
    let other = site.start(&two_workers(&site));
    other.eventually("both to be members", || site.group.members().len() == 2);
    site.site.touch("go");
    site.all_done(&other);
    let record = site.record();
    record.assert_done_once(&slow);
    record.assert_done_once(&["behind 0", "behind 1"]);
    both_work(&site, &daemon, &other);
    daemon.stop();
    other.stop();
}

/// Members of one group that read different topics, each by a name of its own.
fn several_pools_of_one_source() {
    let site = Plan::new(1)
        .consumer("group.instance.id", "the-first")
        .make();
    let another = site.named("another");
    site.kafka.make_topic(&another, 1);
    let first = site.pool(&["--v2=1"]);
    let second = site
        .pool(&["--v2=1"])
        .text("name", "second")
        .text("queue", &another);
    let daemon = site.site.start(&[first, second]);
    site.kafka
        .send(&[site.message("a"), NewRecord::new(&another, "b")]);
    site.done(&daemon, 2);
    site.all_done(&daemon);
    daemon.eventually("the other to be committed", || {
        site.group.lag(&another) == 0
    });
    assert_eq!(site.group.members().len(), 2);
    daemon.stop();
}

/// Each coming and going is a rebalance for both.
fn daemons_of_one_group_with_topics_of_their_own() {
    let first = KafkaSite::new(2);
    let second = Plan::new(2).group(first.group.name()).make();
    let stays = first.start(&first.pool(&["--v2=1"]));
    let record = |site: &KafkaSite, round: i32| {
        let message = site.message(&format!("message {round}"));
        message.partition(round % 2)
    };
    let rounds = 6;
    for round in 0..rounds {
        let comes = second.start(&second.pool(&["--v2=1"]));
        first
            .kafka
            .send(&[record(&first, round), record(&second, round)]);
        let done = usize::try_from(round).unwrap() + 1;
        first.done(&stays, done);
        second.done(&comes, done);
        second.all_done(&comes);
        comes.stop();
    }
    first.all_done(&stays);
    stays.stop();
    for site in [first, second] {
        let bodies: Vec<String> = (0..rounds)
            .map(|round| format!("message {round}"))
            .collect();
        site.record().assert_done_once(&bodies);
    }
}

fn a_reload_keeps_the_membership() {
    let site = KafkaSite::new(2);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.send(&["before"]);
    site.done(&daemon, 1);
    let member = site.group.members();
    let pool = site.pool(&["--v2=1"]).set("workers", "3");
    site.site.reconfigure(&daemon, &[pool]);
    daemon.signal(Signal::SIGHUP);
    daemon.has_workers(3);
    let bodies = ["mode:wait:go a", "mode:wait:go b", "mode:wait:go c"];
    site.send(&bodies);
    site.begun(&daemon, &bodies);
    assert_eq!(site.group.members(), member);
    site.site.touch("go");
    site.all_done(&daemon);
    daemon.stop();
}
