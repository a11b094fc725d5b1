//! What becomes of a message that failed: tried again in its place, or through a tier topic when the
//! wait is long, or dead. Its key's order, its key, headers and time survive.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::kafka::{KafkaSite, NewRecord, Plan, Stored};
use crate::harness::{Daemon, Entry, Event, Pool, field, trials};

trials![
    a_short_wait_holds_the_key_and_nothing_else,
    a_short_wait_holds_the_partition_and_nothing_else,
    a_message_put_back_holds_its_place,
    many_that_wait_in_their_places_all_come_through,
    a_long_wait_leaves_the_order_and_comes_when_due,
    without_order_every_wait_is_a_tier,
    waits_of_a_kind_share_a_topic_and_none_holds_up_another,
    the_worker_says_how_long_to_wait,
    a_daemons_end_forgets_no_attempt,
    the_marks_of_a_copy_that_a_producer_writes_say_nothing,
    what_its_worker_puts_off_at_a_stop_waits_in_a_tier_uncharged,
    a_tier_is_waited_out_by_whoever_is_there,
    a_tier_of_an_older_daemon_is_read_until_it_is_empty,
    a_tier_that_another_daemon_makes_is_read,
    copies_keep_key_headers_and_time,
    a_crash_is_charged_and_its_neighbours_are_not,
    a_message_that_kills_its_workers_is_dead,
    several_in_a_dead_workers_hands_run_one_by_one_uncharged,
    what_is_done_cannot_fail_for_want_of_its_replys_topic,
    tiers_and_dead_letters_have_topics_fit_for_them,
    a_tier_that_forgets_too_soon_is_refused,
    a_dead_letter_topic_that_forgets_is_refused,
];

/// A wait in place that is long enough for others to be done meanwhile, however busy the machine.
const LONG_IN_PLACE: &str =
    r#"{ attempts = 3, initial = "3s", factor = 1.0, jitter = 0.0, in_place_max = "5s" }"#;

/// Attempts that follow each other after such a wait; up to half a second they stay in place.
fn waits(pool: Pool, attempts: u32, wait: &str) -> Pool {
    let retry = format!(
        r#"{{ attempts = {attempts}, initial = "{wait}", max = "1m", factor = 1.0, jitter = 0.0, in_place_max = "500ms" }}"#
    );
    pool.set("retry", &retry)
}

fn began(site: &KafkaSite) -> Vec<(String, u32)> {
    let record = site.record();
    let entries = record.all(Event::Began).into_iter();
    entries
        .map(|entry| (entry.text.clone(), entry.attempt.unwrap()))
        .collect()
}

fn of<'a>(began: &'a [(String, u32)], texts: &[&str]) -> Vec<(&'a str, u32)> {
    let found = began
        .iter()
        .filter(|(text, _)| texts.contains(&text.as_str()));
    found
        .map(|(text, attempt)| (text.as_str(), *attempt))
        .collect()
}

fn a_short_wait_holds_the_key_and_nothing_else() {
    let site = KafkaSite::new(1);
    let pool = site.pool(&["--v2=1"]).set("workers", "2");
    let daemon = site.start(&pool.set("retry", LONG_IN_PLACE));
    let failing = "mode:until-attempt:3:500 first";
    let record = |key: &str, text: &str| site.message(text).key(key).partition(0);
    let others: Vec<String> = (0..20).map(|n| format!("other {n}")).collect();
    let mut records = vec![
        record("a", failing),
        record("a", "second"),
        record("a", "third"),
    ];
    records.extend(others.iter().map(|text| record(text, text)));
    site.kafka.send(&records);
    site.all_done(&daemon);
    let began = began(&site);
    assert_eq!(
        of(&began, &[failing, "second", "third"]),
        [
            (failing, 1),
            (failing, 2),
            (failing, 3),
            ("second", 1),
            ("third", 1)
        ]
    );
    let last_other = began
        .iter()
        .rposition(|(text, _)| text.starts_with("other"));
    let second_attempt = began.iter().position(|(_, attempt)| *attempt == 2);
    assert!(
        last_other < second_attempt,
        "the others flow meanwhile: {began:?}"
    );
    assert!(
        site.tier_topics()
            .iter()
            .all(|tier| site.kafka.read(tier).is_empty())
    );
    not_early(&site, failing, 3_000);
    daemon.stop();
}

/// Each attempt begins so many milliseconds after the one before it began, or later.
fn not_early(site: &KafkaSite, text: &str, millis: u64) {
    let record = site.record();
    let began = record.of(Event::Began, text);
    let gaps = began.windows(2).map(|pair| pair[1].micros - pair[0].micros);
    let gaps: Vec<u64> = gaps.collect();
    assert!(!gaps.is_empty());
    assert!(gaps.iter().all(|gap| *gap >= millis * 1000), "{gaps:?} µs");
}

fn a_short_wait_holds_the_partition_and_nothing_else() {
    let site = KafkaSite::new(2);
    let pool = site.pool(&["--v2=1"]).set("workers", "2");
    let pool = pool.set("retry", LONG_IN_PLACE).text("order", "partition");
    let daemon = site.start(&pool);
    let failing = "mode:until-attempt:2:500 first";
    let record = |partition: i32, text: &str| site.message(text).key(text).partition(partition);
    site.kafka.send(&[
        record(0, failing),
        record(0, "second"),
        record(1, "elsewhere"),
        record(1, "elsewhere too"),
    ]);
    site.all_done(&daemon);
    let began = began(&site);
    let held = [(failing, 1), (failing, 2), ("second", 1)];
    assert_eq!(of(&began, &[failing, "second"]), held);
    let place = |text: &str| began.iter().position(|(other, _)| other == text);
    assert!(place("elsewhere too") < began.iter().position(|(_, attempt)| *attempt == 2));
    daemon.stop();
}

/// A worker that asks for it again charges nothing and lets nobody of the same key pass.
fn a_message_put_back_holds_its_place() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", "2"));
    let again = "mode:unless:go:300 first";
    let record = |text: &str| site.message(text).key("a");
    site.kafka.send(&[record(again), record("second")]);
    daemon.eventually("it to be put back twice", || {
        site.record().of(Event::Began, again).len() >= 3
    });
    site.site.touch("go");
    site.all_done(&daemon);
    let began = began(&site);
    assert_eq!(began.last().unwrap().0, "second", "{began:?}");
    assert!(began.iter().all(|(_, attempt)| *attempt == 1), "{began:?}");
    daemon.stop();
}

/// As when what they all need is away for a while: each waits, and none can be done before.
fn many_that_wait_in_their_places_all_come_through() {
    let site = KafkaSite::new(1);
    let retry = r#"{ attempts = 1000, initial = "200ms", factor = 1.0, jitter = 0.0 }"#;
    let pool = site.pool(&["--v2=1", "--mode=unless:mended:500"]);
    let pool = pool.set("workers", "2").set("retry", retry);
    let daemon = site.start(&pool.text("breaker", "off"));
    let bodies: Vec<String> = (0..300).map(|n| format!("message {n}")).collect();
    let record = |body: &String| site.message(body).key(body).partition(0);
    site.kafka
        .send(&bodies.iter().map(record).collect::<Vec<NewRecord>>());
    daemon.eventually("as many to fail as can wait in their places", || {
        daemon.times_logged("attempt failed") > 2 * bodies.len()
    });
    site.site.touch("mended");
    site.all_done(&daemon);
    site.record().assert_done_once(&bodies);
    daemon.stop();
}

fn a_long_wait_leaves_the_order_and_comes_when_due() {
    let site = KafkaSite::new(1);
    let pool = waits(site.pool(&["--v2=1"]).set("workers", "2"), 2, "1500ms");
    let daemon = site.start(&pool);
    let failing = [
        "mode:until-attempt:2:500 first",
        "mode:until-attempt:2:500 third",
    ];
    let record = |text: &str| site.message(text).key("a");
    site.kafka
        .send(&[record(failing[0]), record("second"), record(failing[1])]);
    site.done(&daemon, 1);
    let wait = daemon.logs("attempt failed", |_| true);
    assert_eq!(field(&wait, "delay"), "1.5s", "{wait}");
    let leaves =
        "message waits for longer than retry.in_place_max: it loses its place in the order";
    daemon.logged(leaves);
    site.done(&daemon, 3);
    site.all_done(&daemon);
    let began = began(&site);
    let order = [(failing[0], 1), ("second", 1), (failing[1], 1)];
    assert_eq!(of(&began[..3], &[failing[0], "second", failing[1]]), order);
    assert_eq!(daemon.times_logged(leaves), 1, "said once");
    for text in failing {
        not_early(&site, text, 1_500);
        assert_eq!(of(&began, &[text]), [(text, 1), (text, 2)]);
    }
    let used: Vec<String> = used_tiers(&site);
    assert_eq!(used, ["4s"]);
    daemon.stop();
}

/// The names of the tiers through which anything went.
fn used_tiers(site: &KafkaSite) -> Vec<String> {
    let mut tiers = site.tier_topics();
    tiers.retain(|tier| !site.kafka.read(tier).is_empty());
    let name = |tier: String| tier.rsplit('.').next().unwrap().to_owned();
    tiers.into_iter().map(name).collect()
}

fn without_order_every_wait_is_a_tier() {
    let site = KafkaSite::new(1);
    let pool = waits(site.pool(&["--v2=1"]), 2, "200ms").text("order", "none");
    let daemon = site.start(&pool);
    let failing = "mode:until-attempt:2:500 first";
    site.send(&[failing, "second"]);
    site.done(&daemon, 2);
    site.all_done(&daemon);
    not_early(&site, failing, 200);
    assert_eq!(of(&began(&site), &[failing]), [(failing, 1), (failing, 2)]);
    daemon.stop();
}

fn waits_of_a_kind_share_a_topic_and_none_holds_up_another() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&waits(site.pool(&["--v2=1"]), 3, "700ms"));
    let long = "mode:until-attempt:2:429:60000 a minute";
    let short = ["mode:until-attempt:3:500 a", "mode:until-attempt:3:500 b"];
    site.send(&[long, short[0], short[1]]);
    site.done(&daemon, 2);
    site.record().assert_done_once(&short);
    assert!(site.record().of(Event::Began, long).len() == 1);
    let mut used = used_tiers(&site);
    used.sort_unstable();
    assert_eq!(used, ["1s", "64s"]);
    daemon.stop();
}

fn the_worker_says_how_long_to_wait() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&waits(site.pool(&["--v2=1"]), 3, "1m"));
    // In place, and by a tier.
    let asks = [
        "mode:until-attempt:2:429:200 a",
        "mode:until-attempt:2:503:800 b",
    ];
    site.send(&asks);
    site.done(&daemon, 2);
    site.all_done(&daemon);
    not_early(&site, asks[0], 200);
    not_early(&site, asks[1], 800);
    daemon.stop();
}

/// The topic is not one of those that only the group writes to.
fn the_marks_of_a_copy_that_a_producer_writes_say_nothing() {
    let site = KafkaSite::new(1);
    let pool = waits(site.pool(&["--v2=1"]), 2, "100ms");
    let daemon = site.start(&pool);
    let failing = "mode:until-attempt:2:500 first";
    let forged = ["attempts", "crashes", "requeues"].into_iter();
    let record = forged.fold(site.message(failing), |record, name| {
        record.header(&format!("x-ganger-{name}"), "2")
    });
    site.kafka.send(&[record]);
    site.all_done(&daemon);
    assert_eq!(
        began(&site),
        [(failing.to_owned(), 1), (failing.to_owned(), 2)]
    );
    daemon.stop();
}

/// One waits in its place, one in a tier; both have two attempts behind them when it is killed.
fn what_its_worker_puts_off_at_a_stop_waits_in_a_tier_uncharged() {
    let site = KafkaSite::new(1);
    let pool = waits(site.pool(&["--v2=1"]), 2, "1s");
    let daemon = site.start(&pool);
    let held = "mode:until-cancelled,answer:429:1000";
    site.send(&[held]);
    site.begun(&daemon, &[held]);
    daemon.signal(Signal::SIGTERM);
    daemon.logged("stopping: messages in hand are finished first");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.exit().success());
    let daemon = site.start(&pool);
    daemon.eventually("it to come again", || began(&site).len() == 2);
    not_early(&site, held, 1000);
    assert_eq!(began(&site)[1].1, 1, "uncharged");
}

fn a_daemons_end_forgets_no_attempt() {
    let site = KafkaSite::new(1);
    let retry = r#"{ attempts = 4, initial = "20ms", factor = 1.0, max = "1m", jitter = 0.0, in_place_max = "10s" }"#;
    let pool = site.pool(&["--v2=1"]).set("retry", retry);
    let daemon = site.start(&pool);
    let held = "mode:until-attempt:2:500,until-attempt:3:429:5000 held";
    let away = "mode:until-attempt:2:500,until-attempt:3:429:11000 away";
    let record = |key: &str, text: &str| site.message(text).key(key);
    site.kafka
        .send(&[record("a", held), record("b", away), record("a", "behind")]);
    daemon.eventually("both to have failed twice", || {
        let failed = daemon.times_logged("attempt failed");
        failed == 4
            && site
                .tier_topics()
                .iter()
                .any(|tier| !site.kafka.read(tier).is_empty())
    });
    let noted = site.group.committed(&site.topic);
    site.kafka.send(&[record("c", "a marker")]);
    daemon.eventually("the attempts to be committed", || {
        site.group.committed(&site.topic) != noted
    });
    daemon.crash();
    let daemon = site.start(&pool);
    site.done(&daemon, 4);
    site.all_done(&daemon);
    let began = began(&site);
    let attempts = |text: &str| {
        of(&began, &[text])
            .iter()
            .map(|(_, n)| *n)
            .collect::<Vec<_>>()
    };
    assert_eq!(attempts(held), [1, 2, 3]);
    assert_eq!(attempts(away), [1, 2, 3]);
    assert!(
        began.iter().position(|(text, _)| text == "behind")
            > began.iter().position(|(text, n)| text == held && *n == 3)
    );
    daemon.stop();
}

fn a_tier_is_waited_out_by_whoever_is_there() {
    let site = KafkaSite::new(1);
    let pool = waits(site.pool(&["--v2=1"]), 2, "2s");
    let daemon = site.start(&pool);
    let failing = "mode:until-attempt:2:500 a";
    site.send(&[failing]);
    daemon.eventually("it to be in the tier", || used_tiers(&site) == ["4s"]);
    daemon.stop();
    let other = site.start(&pool);
    site.done(&other, 1);
    site.all_done(&other);
    not_early(&site, failing, 2_000);
    assert_eq!(of(&began(&site), &[failing]), [(failing, 1), (failing, 2)]);
    other.stop();
}

/// Once there was one for each power of two.
fn a_tier_of_an_older_daemon_is_read_until_it_is_empty() {
    let site = KafkaSite::new(1);
    let tier = format!("{}.{}.retry.2s", site.topic, site.group.name());
    site.kafka.make_topic(&tier, 1);
    site.kafka.send(&[NewRecord::new(&tier, "left over")]);
    let daemon = site.start(&waits(site.pool(&["--v2=1"]), 2, "2s"));
    site.send(&["mode:until-attempt:2:500 a"]);
    site.done(&daemon, 2);
    site.all_done(&daemon);
    site.record().assert_done_once(&["left over"]);
    let mut used = used_tiers(&site);
    used.sort_unstable();
    assert_eq!(used, ["2s", "4s"], "nothing new goes there");
    daemon.stop();
}

/// Its policy may have longer waits than ours.
fn a_tier_that_another_daemon_makes_is_read() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let tier = format!("{}.{}.retry.4096s", site.topic, site.group.name());
    site.kafka.make_topic(&tier, 1);
    site.kafka.send(&[NewRecord::new(&tier, "theirs")]);
    site.done(&daemon, 1);
    site.all_done(&daemon);
    daemon.stop();
}

/// The copy's own time is that of the copy: a broker deletes by it.
fn copies_keep_key_headers_and_time() {
    let site = Plan::new(1).topic("retention.ms", "-1").make();
    let daemon = site.start(&waits(site.pool(&["--v2=1"]), 2, "600ms"));
    let body =
        "mode:note:header:colour,note:header:CorrelationId,note:property:timestamp,answer:500 a";
    let made = 1_600_000_000_123;
    let record = site
        .message(body)
        .key([0xff, 0, b'k'])
        .header("colour", "red")
        .header("binary", [0xfe, 0xff])
        .header("colour", "green")
        .null_header("nothing")
        .header("CorrelationId", "c-1")
        .timestamp(made);
    site.kafka.send(&[record]);
    let dead = one_dead(&site, &daemon);
    let tier = site
        .kafka
        .read(&format!("{}.{}.retry.1s", site.topic, site.group.name()));
    assert_eq!(tier.len(), 1);
    let original = site.kafka.read(&site.topic).remove(0);
    for copy in [&tier[0], &dead] {
        assert_eq!(copy.value, original.value);
        let theirs = |record: &Stored| {
            let mut headers = record.headers.clone();
            headers.retain(|(name, _)| !name.starts_with("x-ganger-"));
            headers
        };
        assert_eq!(theirs(copy), original.headers);
    }
    assert_eq!(tier[0].key, original.key);
    assert!(tier[0].timestamp > Some(made), "{tier:?}");
    let noted = site.record();
    let texts = noted.texts(Event::Noted);
    let time = format!("property:timestamp=Integer({made})");
    let twice = ["header:colour=green", "header:CorrelationId=c-1", &time];
    assert_eq!(texts, [twice, twice].concat(), "both attempts see the same");
    daemon.stop();
}

fn one_dead(site: &KafkaSite, daemon: &Daemon) -> Stored {
    let dead = daemon.eventually_some("a dead letter", || {
        let dead = site.kafka.read(&site.dead_topic());
        (!dead.is_empty()).then_some(dead)
    });
    assert_eq!(dead.len(), 1, "{dead:#?}");
    site.settled(daemon);
    dead.into_iter().next().unwrap()
}

fn a_crash_is_charged_and_its_neighbours_are_not() {
    let site = KafkaSite::new(1);
    let pool = site.pool(&["--v2=1"]).set("workers", "2");
    let daemon = site.start(&pool.attempts(100).set("crashes_max", "100"));
    let deadly = "mode:die-unless:go deadly";
    let neighbour = "mode:wait:go neighbour";
    let record = |key: &str, text: &str| site.message(text).key(key);
    site.kafka.send(&[
        record("b", neighbour),
        record("a", deadly),
        record("a", "behind"),
    ]);
    site.begun(&daemon, &[neighbour, deadly]);
    daemon.logged("worker lost");
    site.site.touch("go");
    site.all_done(&daemon);
    let began = began(&site);
    let neighbours = [(neighbour, 1), ("behind", 1)];
    assert_eq!(of(&began, &[neighbour, "behind"]), neighbours);
    // It may have died more often than once before the file was there.
    let deaths = of(&began, &[deadly]);
    let attempts: Vec<u32> = deaths.iter().map(|(_, attempt)| *attempt).collect();
    let last = u32::try_from(attempts.len()).unwrap();
    assert_eq!(attempts, (1..=last).collect::<Vec<u32>>());
    assert!(last >= 2);
    daemon.stop();
}

fn a_message_that_kills_its_workers_is_dead() {
    let site = KafkaSite::new(1);
    let pool = site.pool(&["--v2=1"]).attempts(10).set("crashes_max", "2");
    let daemon = site.start(&pool);
    let deadly = "mode:complain:ouch,die:exit:3 deadly";
    let record = |text: &str| site.message(text).key("a");
    site.kafka.send(&[record(deadly), record("behind")]);
    let dead = one_dead(&site, &daemon);
    assert_eq!(dead.text(), deadly);
    let began = began(&site);
    assert_eq!(
        of(&began, &[deadly, "behind"]),
        [(deadly, 1), (deadly, 2), ("behind", 1)]
    );
    daemon.stop();
}

fn several_in_a_dead_workers_hands_run_one_by_one_uncharged() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=3"]));
    let bodies = ["mode:wait:go a", "mode:wait:go b", "mode:wait:go c"];
    let record = |text: &str| site.message(text).key(text);
    site.kafka.send(&bodies.map(record));
    site.begun(&daemon, &bodies);
    let worker = Pid::from_raw(daemon.has_workers(1)[0]);
    kill(worker, Signal::SIGKILL).unwrap();
    daemon.logged("worker lost");
    site.site.touch("go");
    site.all_done(&daemon);
    let record = site.record();
    let entries: Vec<&Entry> = record.0.iter().skip(bodies.len()).collect();
    let again = entries.iter().filter(|entry| entry.event != Event::Told);
    let again: Vec<(Event, u32)> = again.map(|e| (e.event, e.attempt.unwrap())).collect();
    let one_by_one = [(Event::Began, 1), (Event::Done, 1)];
    assert_eq!(again, one_by_one.repeat(bodies.len()), "{entries:#?}");
    daemon.stop();
}

/// The broker makes no topics by itself: the reply has nowhere to go, and the work is not repeated.
fn what_is_done_cannot_fail_for_want_of_its_replys_topic() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let record = site
        .message("mode:reply a")
        .header("ReplyTo", site.named("nowhere"));
    site.kafka.send(&[record, site.message("behind")]);
    let dead = one_dead(&site, &daemon);
    assert_eq!(dead.text(), "mode:reply a");
    let record = site.record();
    let done: Vec<&Entry> = record.all(Event::Done);
    assert_eq!(done.len(), 2, "each once: {done:#?}");
    let reason = dead.header("x-ganger-reason");
    assert_eq!(reason.as_deref(), Some("unroutable_reply"), "{dead:?}");
    let error = dead.header("x-ganger-error").unwrap();
    assert!(error.contains("can't be delivered: "), "{error}");
    daemon.logs("message dead-lettered", |record| {
        field(record, "error") == error
    });
    daemon.stop();
}

fn tiers_and_dead_letters_have_topics_fit_for_them() {
    let plan = Plan::new(1).source("retry_retention = \"2h\"");
    let site = plan.topic("max.message.bytes", "2000000").make();
    let daemon = site.start(&waits(site.pool(&["--v2=1"]), 2, "2s"));
    let setting = |topic: &str, name: &str| site.kafka.topic_settings(topic)[name].clone();
    let dead = site.dead_topic();
    assert_eq!(setting(&dead, "cleanup.policy"), "compact");
    let longer = (2_000_000 + 64 * 1024).to_string();
    assert_eq!(setting(&dead, "max.message.bytes"), longer);
    let tiers = site.tier_topics();
    assert!(!tiers.is_empty());
    for tier in tiers {
        assert_eq!(setting(&tier, "cleanup.policy"), "delete", "{tier}");
        assert_eq!(setting(&tier, "max.message.bytes"), longer, "{tier}");
        let kept: u64 = setting(&tier, "retention.ms").parse().unwrap();
        assert!(kept >= 2 * 3600 * 1000, "{tier} keeps messages {kept} ms");
    }
    let record: NewRecord = site.message("still works");
    site.kafka.send(&[record]);
    site.all_done(&daemon);
    daemon.stop();
}

/// Makes a topic by hand that the daemon would have made otherwise; what it says to that.
fn complaint_of(name: impl Fn(&KafkaSite) -> String, setting: (&str, &str)) -> String {
    let site = KafkaSite::new(1);
    let name = name(&site);
    site.kafka.make_topic_with(&name, 1, &[setting]);
    let pool = waits(site.pool(&["--v2=1"]), 2, "2s");
    site.site.configure_commands(&[pool]);
    let wrong = site.site.ganger(&["run"]).bad(1);
    assert!(wrong.contains(&format!("`{name}`")), "{name} in: {wrong}");
    wrong
}

fn a_tier_that_forgets_too_soon_is_refused() {
    let tier = |site: &KafkaSite| format!("{}.{}.retry.4s", site.topic, site.group.name());
    let wrong = complaint_of(tier, ("retention.ms", "60000"));
    assert!(wrong.contains("retention"), "{wrong}");
}

fn a_dead_letter_topic_that_forgets_is_refused() {
    for policy in ["delete", "compact,delete"] {
        let wrong = complaint_of(KafkaSite::dead_topic, ("cleanup.policy", policy));
        assert!(wrong.contains("cleanup.policy"), "{wrong}");
    }
}
