//! A pool that reads several topics, or those whose names match a pattern: each has an order, retries and
//! dead letters of its own, and what appears later is read, too.

use std::time::Duration;

use crate::harness::kafka::{Group, KafkaSite, NewRecord, Plan, Stored, in_trouble, is_well};
use crate::harness::{Daemon, Event, Pool, Progress, field, said, trials};

trials![
    each_topic_has_an_order_of_its_own,
    a_worker_sees_which_topic_a_message_is_from,
    each_topic_has_retries_and_dead_letters_of_its_own,
    several_topics_may_share_one_for_dead_letters,
    what_matches_is_read_as_it_appears_and_forgotten_when_it_is_gone,
    a_topic_that_is_deleted_with_something_to_commit_holds_up_no_other,
    what_is_wrong_with_a_topic_that_appears_is_told_and_holds_up_no_other,
    what_waits_is_not_lost_when_a_pool_reads_more_topics,
    one_id_in_two_topics_is_two_messages,
    nothing_is_lost_on_any_topic_when_daemons_are_killed,
    what_is_missing_for_any_topic_is_told_by_check,
];

/// How long a great many messages may take, far more than they need.
const IN_TIME: Duration = Duration::from_secs(300);

/// A site with these topics of so many partitions, and their names.
fn site<const N: usize>(
    plan: Plan,
    names: [&str; N],
    partitions: usize,
) -> (KafkaSite, [String; N]) {
    let site = plan.make();
    let topics = names.map(|name| site.named(name));
    for topic in &topics {
        site.kafka.make_topic(topic, partitions);
    }
    (site, topics)
}

fn reading(pool: Pool, topics: &[impl AsRef<str>]) -> Pool {
    let topics: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
    pool.set("queue", &serde_json::to_string(&topics).unwrap())
}

/// The pattern of all topics of this test.
fn pattern(site: &KafkaSite) -> String {
    format!("^{}-", site.topic)
}

/// Records of these bodies in the first partition of that topic.
fn records(topic: &str, bodies: &[&str]) -> Vec<NewRecord> {
    let record = |body: &&str| NewRecord::new(topic, body).partition(0);
    bodies.iter().map(record).collect()
}

fn dead_topic(group: &Group, topic: &str) -> String {
    format!("{topic}.{}.dead", group.name())
}

fn committed(site: &KafkaSite, daemon: &Daemon, topics: &[String]) {
    for topic in topics {
        daemon.eventually(&format!("{topic} to be committed to its end"), || {
            site.group.lag(topic) == 0
        });
    }
}

/// The same key and the same number of a partition are another order's in another topic.
fn each_topic_has_an_order_of_its_own() {
    for order in ["key", "partition"] {
        let (site, topics) = site(Plan::new(0), ["a", "b"], 1);
        let pool = reading(site.pool(&["--v2=1"]), &topics);
        let daemon = site.start(&pool.set("workers", "2").text("order", order));
        let record = |topic: &str, body: &str| NewRecord::new(topic, body).key("k").partition(0);
        let held = "mode:wait:go held";
        site.kafka
            .send(&[record(&topics[0], held), record(&topics[0], "behind")]);
        site.begun(&daemon, &[held]);
        site.kafka.send(&[record(&topics[1], "free")]);
        site.done(&daemon, 1);
        assert_eq!(site.record().texts(Event::Done), ["free"]);
        let lag = |topic: &str, lag: &str| {
            daemon.eventually(&format!("the lag of {topic}"), || {
                daemon.signal(nix::sys::signal::Signal::SIGUSR1);
                let of = format!("{topic}/0");
                let is_of = |record: &serde_json::Value| {
                    said(record, "status of the partition") && record["partition"] == *of
                };
                let told = daemon.records(is_of);
                told.last().is_some_and(|last| field(last, "lag") == lag)
            });
        };
        lag(&topics[0], "2");
        lag(&topics[1], "0");
        site.site.touch("go");
        committed(&site, &daemon, &topics);
        assert_eq!(site.record().texts(Event::Done), ["free", held, "behind"]);
        daemon.stop();
    }
}

fn a_worker_sees_which_topic_a_message_is_from() {
    let (site, topics) = site(Plan::new(0), ["a", "b"], 1);
    let pool = site.pool(&["--v2=1", "--mode=note:property:topic"]);
    let daemon = site.start(&reading(pool, &topics));
    // It sends a part of its work to the queue that it was told.
    for topic in &topics {
        site.kafka
            .send(&records(topic, &["mode:switch:1", "plain"]));
    }
    site.done(&daemon, 6);
    committed(&site, &daemon, &topics);
    for topic in &topics {
        assert_eq!(site.kafka.read(topic).len(), 3, "{topic}");
        let noted = format!("property:topic={topic}");
        let record = site.record();
        let noted_here = record.texts(Event::Noted);
        assert!(noted_here.contains(&&*noted), "{noted} in {noted_here:?}");
    }
    daemon.stop();
}

/// So many attempts, each but the first out of a tier.
fn failing(site: &KafkaSite, attempts: u32) -> Pool {
    let retry =
        r#"{ initial = "600ms", factor = 1.0, jitter = 0.0, max = "1s", in_place_max = "0ms" "#;
    site.pool(&["--v2=1", "--mode=unless:mended:500"])
        .set("retry", &format!("{retry}, attempts = {attempts} }}"))
}

fn each_topic_has_retries_and_dead_letters_of_its_own() {
    let (site, topics) = site(Plan::new(0), ["a", "b"], 1);
    let pool = reading(failing(&site, 2), &topics);
    site.site.configure_commands(std::slice::from_ref(&pool));
    let daemon = site.start(&pool);
    for topic in &topics {
        site.kafka.send(&records(topic, &[topic]));
    }
    for topic in &topics {
        let dead = dead_topic(&site.group, topic);
        daemon.eventually(&format!("a letter of {topic}"), || {
            site.kafka.texts(&dead) == [topic.as_str()]
        });
        let tier = format!("{topic}.{}.retry.1s", site.group.name());
        assert_eq!(site.kafka.texts(&tier), [topic.as_str()]);
    }
    retried(&site, &daemon, &topics);
}

fn several_topics_may_share_one_for_dead_letters() {
    let (site, topics) = site(Plan::new(0), ["a", "b"], 1);
    let dead = site.named("graves");
    let pool = reading(failing(&site, 2), &topics).text("dead_letter", &dead);
    site.site.configure_commands(std::slice::from_ref(&pool));
    let daemon = site.start(&pool);
    for topic in &topics {
        site.kafka.send(&records(topic, &[topic]));
    }
    daemon.eventually("both letters", || site.kafka.read(&dead).len() == 2);
    let made = site.kafka.topics();
    assert!(
        !made.contains(&dead_topic(&site.group, &topics[0])),
        "{made:?}"
    );
    retried(&site, &daemon, &topics);
}

/// Each letter says which topic it is from, and goes back there.
fn retried(site: &KafkaSite, daemon: &Daemon, topics: &[String]) {
    let listed = || site.site.ganger(&["dead", "list", "-o", "json"]).json();
    let letters = listed();
    let mut queues: Vec<&str> = letters.as_array().unwrap().iter().map(queue).collect();
    queues.sort_unstable();
    assert_eq!(queues, topics);
    site.site.touch("mended");
    assert_eq!(
        site.site.ganger(&["dead", "retry", "--all"]).good(),
        "retried 2\n"
    );
    site.done(daemon, topics.len());
    committed(site, daemon, topics);
    for topic in topics {
        assert_eq!(site.kafka.texts(topic), [topic.as_str(), topic]);
        assert_eq!(site.record().of(Event::Done, topic).len(), 1, "{topic}");
    }
    assert_eq!(listed(), serde_json::json!([]));
    daemon.stop();
}

fn queue(letter: &serde_json::Value) -> &str {
    letter["queue"].as_str().unwrap()
}

fn what_matches_is_read_as_it_appears_and_forgotten_when_it_is_gone() {
    let site = Plan::new(0).make();
    let pool = site.pool(&["--v2=1"]).text("queue", &pattern(&site));
    let daemon = site.start(&pool);
    daemon.logged("no topic matches yet: topics are read as they appear");
    let [first, second, other] = ["first", "second", "other"].map(|name| site.named(name));
    let appears = |topic: &str, bodies: &[&str]| {
        site.kafka.make_topic(topic, 2);
        // Before anybody has noticed.
        site.kafka.send(&records(topic, bodies));
    };
    appears(&first, &["a", "mode:answer:400 b"]);
    site.done(&daemon, 1);
    let dead = dead_topic(&site.group, &first);
    daemon.eventually("the letter", || site.kafka.read(&dead).len() == 1);
    appears(&second, &["c"]);
    site.done(&daemon, 2);
    // What others make is not read, nor what was made for the first.
    let strangers = [
        format!("{first}.stranger.dead"),
        format!("{first}.stranger.retry.4s"),
    ];
    for topic in &strangers {
        appears(topic, &["not for us"]);
    }
    site.kafka.delete_topic(&first);
    daemon.logs("topic that matched a pattern no longer exists", |record| {
        field(record, "topic") == first
    });
    appears(&other, &["d"]);
    site.done(&daemon, 3);
    is_well(&daemon);
    committed(&site, &daemon, &[second, other]);
    let record = site.record();
    record.assert_done_once(&["a", "c", "d"]);
    assert!(record.of(Event::Began, "not for us").is_empty());
    assert_eq!(record.all(Event::Began).len(), 4);
    assert_eq!(site.kafka.texts(&dead), ["mode:answer:400 b"]);
    daemon.stop();
}

/// All partitions leave together, and each waits until it is committed, far longer than this test.
fn a_topic_that_is_deleted_with_something_to_commit_holds_up_no_other() {
    let plan = Plan::new(0).consumer("partition.assignment.strategy", "range");
    let (site, topics) = site(plan, ["first", "second"], 1);
    let [first, second] = &topics;
    let daemon = site.start(&reading(site.pool(&["--v2=2"]), &topics));
    let held = "mode:wait:go held";
    site.kafka.send(&records(first, &[held]));
    daemon.eventually("it to be begun", || {
        site.record().all(Event::Began).len() == 1
    });
    site.kafka.delete_topic(first);
    daemon.logs("partitions revoked", |record| {
        field(record, "partitions").contains(first.as_str())
    });
    site.site.touch("go");
    site.done(&daemon, 1);
    site.kafka.send(&records(second, &["a", "b"]));
    site.done(&daemon, 3);
    committed(&site, &daemon, std::slice::from_ref(second));
    site.record().assert_done_once(&[held, "a", "b"]);
    daemon.stop();
}

fn what_is_wrong_with_a_topic_that_appears_is_told_and_holds_up_no_other() {
    let plan = Plan::new(0).source("declare = false");
    let (site, [old]) = site(plan, ["old"], 1);
    let compacted = [
        ("cleanup.policy", "compact"),
        ("max.message.bytes", "2000000"),
    ];
    let bury = |topic: &str| {
        let dead = dead_topic(&site.group, topic);
        site.kafka.make_topic_with(&dead, 1, &compacted);
    };
    bury(&old);
    // No wait is long enough for a tier.
    let retry = r#"{ attempts = 2, initial = "10ms", max = "1s", in_place_max = "2s" }"#;
    let pool = site
        .pool(&["--v2=1"])
        .text("queue", &pattern(&site))
        .set("retry", retry);
    let daemon = site.start(&pool);
    let new = site.named("new");
    site.kafka.make_topic(&new, 1);
    site.kafka.send(&records(&new, &["b"]));
    in_trouble(&daemon, &dead_topic(&site.group, &new));
    site.kafka.send(&records(&old, &["a"]));
    site.done(&daemon, 1);
    assert_eq!(site.record().texts(Event::Began), ["a"]);
    bury(&new);
    site.done(&daemon, 2);
    is_well(&daemon);
    site.record().assert_done_once(&["a", "b"]);
    daemon.stop();
}

/// It waits where the pool put it when it read that topic alone.
fn what_waits_is_not_lost_when_a_pool_reads_more_topics() {
    let site = KafkaSite::new(1);
    let more = site.named("more");
    let pool = failing(&site, 1000);
    let daemon = site.start(&pool);
    site.send(&["early"]);
    let tier = format!("{}.{}.retry.1s", site.topic, site.group.name());
    daemon.eventually("its copy", || !site.kafka.read(&tier).is_empty());
    daemon.stop();
    site.site.touch("mended");
    let daemon = site.start(&reading(pool, &[&site.topic, &more]));
    daemon.eventually("the other topic to be made", || {
        site.kafka.topics().contains(&more)
    });
    site.kafka.send(&records(&more, &["other"]));
    daemon.eventually("both to be done", || {
        site.record().texts(Event::Done).len() == 2
    });
    site.all_done(&daemon);
    let record = site.record();
    assert!(record.of(Event::Done, "early")[0].attempt > Some(1));
    record.assert_done_once(&["early", "other"]);
    daemon.stop();
}

fn one_id_in_two_topics_is_two_messages() {
    let memory = "[sources.memory]\nkind = \"table\"\nurl = \"sqlite:memory.db\"";
    let (site, topics) = site(Plan::new(0).tables(memory), ["a", "b"], 1);
    let pool = reading(site.pool(&["--v2=1"]).text("source", "main"), &topics);
    let daemon = site.start(&pool.set("idempotency", "{ store = \"memory\" }"));
    let send = |topic: &str, body: &str| {
        let record = NewRecord::new(topic, body).partition(0);
        site.kafka.send(&[record.header("MessageId", "m")]);
    };
    send(&topics[0], "a");
    send(&topics[1], "b");
    site.done(&daemon, 2);
    send(&topics[1], "b");
    daemon.logged("repetition acknowledged without being processed");
    committed(&site, &daemon, &topics);
    assert_eq!(site.record().all(Event::Began).len(), 2);
    daemon.stop();
}

/// Two daemons share them; one is killed, another comes, twice. A topic appears in between.
fn nothing_is_lost_on_any_topic_when_daemons_are_killed() {
    const EACH: usize = 3_000;
    const KEYS: usize = 100;
    let (site, [a, b]) = site(Plan::new(0), ["a", "b"], 3);
    let pool = site
        .pool(&["--mode=sleep:1"])
        .text("queue", &pattern(&site));
    let pool = pool
        .set("workers", "3")
        .attempts(1000)
        .set("crashes_max", "1000");
    let mut progress = Progress::of(&site.site);
    let mut bodies: Vec<String> = Vec::new();
    let mut fill = |topic: &str| {
        let body = |n: usize| format!("{topic} {n}");
        let record = |n: usize| NewRecord::new(topic, &body(n)).key((n % KEYS).to_string());
        site.kafka.send(&(0..EACH).map(record).collect::<Vec<_>>());
        bodies.extend((0..EACH).map(body));
        bodies.len()
    };
    fill(&a);
    let mut given = fill(&b);
    let mut daemons = [site.start(&pool), site.start(&pool)].map(Some);
    let later = ["c", "d"].map(|name| site.named(name));
    for (dying, topic) in later.iter().enumerate() {
        let enough = given - EACH;
        daemons[1]
            .as_ref()
            .unwrap()
            .within(IN_TIME, "half of it to be done", || {
                progress.done() >= enough
            });
        daemons[dying].take().unwrap().crash();
        daemons[dying] = Some(site.start(&pool));
        site.kafka.make_topic(topic, 2);
        given = fill(topic);
    }
    let [first, second] = daemons.map(Option::unwrap);
    first.within(IN_TIME, "everything to be done", || {
        progress.done() >= given
    });
    for topic in [&a, &b, &later[0], &later[1]] {
        first.within(IN_TIME, &format!("{topic} to be committed"), || {
            site.group.lag(topic) == 0
        });
        let dead = site.kafka.read(&dead_topic(&site.group, topic));
        assert_eq!(dead.iter().map(Stored::text).collect::<Vec<_>>(), [""; 0]);
    }
    first.stop();
    second.stop();
    site.record().assert_none_lost(&bodies);
}

fn what_is_missing_for_any_topic_is_told_by_check() {
    let plan = Plan::new(0).source("declare = false");
    let (site, [there]) = site(plan, ["there"], 1);
    let named = "never-made";
    let retry = r#"{ attempts = 2, initial = "10ms", max = "1s", in_place_max = "2s" }"#;
    let pool = reading(site.pool(&[]), &[named, &pattern(&site)]).set("retry", retry);
    site.site.configure_commands(&[pool]);
    let wrong = site
        .site
        .ganger(&["check", "--online"])
        .bad(1)
        .replace([' ', '\n'], "");
    for missing in [
        named,
        &dead_topic(&site.group, named),
        &dead_topic(&site.group, &there),
    ] {
        assert!(wrong.contains(missing), "{missing} in: {wrong}");
    }
}
