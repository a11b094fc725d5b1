//! The queues: those that exist are used as they are, those that are missing are declared or named,
//! and what can't be used is refused in words that say why.

use lapin::BasicProperties;
use lapin::types::AMQPValue;
use serde_json::Value;

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, kind, rabbit_site, refused, text};
use crate::harness::{Pool, Workspace, trials};
use crate::servers::rabbit::binary;

trials![
    missing_queues_are_declared_so_that_nothing_in_them_is_lost,
    the_kind_and_the_arguments_may_be_chosen,
    a_pools_kind_and_arguments_count_more_than_the_sources,
    without_leave_to_declare_all_that_is_missing_is_named,
    without_leave_to_declare_what_exists_is_enough,
    a_queue_that_exists_is_used_as_it_is,
    a_stream_is_refused,
    a_tier_with_other_arguments_is_refused,
    what_waits_in_a_tier_of_former_times_comes_back,
    a_dead_letter_queue_with_other_arguments_is_refused,
    a_dead_letter_queue_of_an_older_version_is_used,
    a_limit_on_the_dead_letters_drops_none,
    without_leave_to_declare_a_tier_that_leads_nowhere_is_refused,
    a_second_start_finds_what_the_first_has_declared,
    a_user_that_may_not_declare_needs_queues_that_exist,
    a_name_without_room_for_ours_is_refused,
];

/// A pool whose longest delay is a second: but REQUEUE may wait for half a minute.
fn pool() -> Pool {
    Pool::new(&[]).attempts(2)
}

const TIERS: [&str; 8] = ["250ms", "500ms", "1s", "2s", "4s", "8s", "16s", "32s"];

fn tier(delay: &str) -> String {
    format!("work.retry.{delay}")
}

fn missing_queues_are_declared_so_that_nothing_in_them_is_lost() {
    let scene = RabbitScene::of(pool());
    let queues = scene.vhost.queues();
    let names: Vec<&str> = queues.keys().map(String::as_str).collect();
    let mut expected = vec!["work".to_owned(), DEAD.to_owned()];
    expected.extend(TIERS.map(tier));
    expected.sort_unstable();
    assert_eq!(names, expected);
    for (queue, arguments) in &queues {
        for part in [
            "{true,",
            "<<\"quorum\">>",
            "<<\"x-delivery-limit\">>",
            "1000000000",
        ] {
            assert!(arguments.contains(part), "{queue}: {part}: {arguments}");
        }
    }
    for tier in TIERS.map(tier) {
        let arguments = &queues[&tier];
        for part in [
            "<<\"at-least-once\">>",
            "<<\"reject-publish\">>",
            "<<\"work\">>",
        ] {
            assert!(arguments.contains(part), "{tier}: {part}: {arguments}");
        }
    }
    scene.finish();
}

fn the_kind_and_the_arguments_may_be_chosen() {
    let settings = "queue_type = \"classic\"\nqueue_arguments = { x-max-priority = 5 }";
    let scene = RabbitScene::with(settings, pool());
    let arguments = &scene.vhost.queues()["work"];
    for part in ["<<\"classic\">>", "<<\"x-max-priority\">>", ",5}"] {
        assert!(arguments.contains(part), "{part}: {arguments}");
    }
    scene.send(&["a"]);
    scene.all_done();
    scene.record().assert_done_once(&["a"]);
    scene.finish();
}

fn a_pools_kind_and_arguments_count_more_than_the_sources() {
    let settings = "queue_type = \"classic\"\nqueue_arguments = { x-max-length = 5 }";
    let pool = pool()
        .text("queue_type", "quorum")
        .set("queue_arguments", "{ x-max-length = 7 }");
    let scene = RabbitScene::with(settings, pool);
    let arguments = &scene.vhost.queues()["work"];
    for part in ["<<\"quorum\">>", "<<\"x-max-length\">>", ",7}"] {
        assert!(arguments.contains(part), "{part}: {arguments}");
    }
    scene.finish();
}

fn without_leave_to_declare_all_that_is_missing_is_named() {
    let vhost = Vhost::shared();
    let other = pool().text("name", "other").text("queue", "other");
    let why = refused(&vhost.url(), "declare = false", &[pool(), other]);
    let mut missing = vec!["`work`".to_owned(), format!("`{DEAD}`")];
    missing.extend(TIERS.map(|delay| format!("`{}`", tier(delay))));
    for queue in missing {
        assert!(why.contains(&queue), "{queue}: {why}");
    }
    assert!(vhost.queues().is_empty(), "nothing was declared");
}

fn without_leave_to_declare_what_exists_is_enough() {
    let scene = RabbitScene::of(pool());
    scene.daemon.stop();
    let vhost = scene.vhost;
    let scene = RabbitScene::at(vhost, "declare = false", &[pool()]);
    scene.send(&["a"]);
    scene.all_done();
    scene.record().assert_done_once(&["a"]);
    scene.finish();
}

fn a_queue_that_exists_is_used_as_it_is() {
    let vhost = Vhost::shared();
    let arguments = [("x-max-priority", AMQPValue::LongInt(9))];
    vhost.client().declare("work", &arguments);
    let before = vhost.queues()["work"].clone();
    let scene = RabbitScene::at(vhost, "", &[pool()]);
    scene.send(&["a", "mode:answer:400"]);
    assert_eq!(scene.one_dead().text(), "mode:answer:400");
    scene.record().assert_done_once(&["a"]);
    assert_eq!(scene.vhost.queues()["work"], before);
    scene.finish();
}

fn a_stream_is_refused() {
    let vhost = Vhost::shared();
    vhost.client().declare("work", &[kind("stream")]);
    let why = refused(&vhost.url(), "", &[pool()]);
    assert!(why.contains("stream") && why.contains("`work`"), "{why}");
}

fn a_tier_with_other_arguments_is_refused() {
    let vhost = Vhost::shared();
    let tier = tier("500ms");
    vhost.client().declare(
        &tier,
        &[kind("quorum"), ("x-max-length", AMQPValue::LongInt(3))],
    );
    let why = refused(&vhost.url(), "", &[pool()]);
    for part in [tier.as_str(), "x-"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

/// Its queue is one that we do not ask for any more.
fn what_waits_in_a_tier_of_former_times_comes_back() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    let former = tier("128s");
    client.declare("work", &[kind("quorum")]);
    client.declare(
        &former,
        &[
            kind("quorum"),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text("work")),
            ("x-dead-letter-strategy", text("at-least-once")),
            ("x-overflow", text("reject-publish")),
        ],
    );
    let soon = |properties: BasicProperties| properties.with_expiration("300".into());
    client.publish(&[Letter::new(&former, "from long ago").with(soon)]);
    let pool = Pool::new(&[]).set("retry", r#"{ max = "1h" }"#);
    let scene = RabbitScene::at(vhost, "", &[pool]);
    scene.done(1);
    scene.record().assert_done_once(&["from long ago"]);
    assert_eq!(scene.client.ready(&former), Some(0));
    let queues = scene.vhost.queues();
    assert!(queues.contains_key(&tier("4096s")) && !queues.contains_key(&tier("512s")));
    scene.finish();
}

fn a_dead_letter_queue_with_other_arguments_is_refused() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    client.declare(DEAD, &[kind("classic")]);
    client.publish(&[Letter::new(DEAD, "an old one")]);
    let why = refused(&vhost.url(), "", &[pool()]);
    for part in [DEAD, "x-queue-type", "classic", "quorum"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(client.ready(DEAD), Some(1), "nothing is taken or deleted");
}

const UNLIMITED: (&str, AMQPValue) = ("x-delivery-limit", AMQPValue::LongLongInt(1_000_000_000));

/// It was declared without a word on what becomes of too many.
fn a_dead_letter_queue_of_an_older_version_is_used() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    client.declare(DEAD, &[kind("quorum"), UNLIMITED]);
    client.publish(&[Letter::new(DEAD, "an old one")]);
    let before = vhost.queues()[DEAD].clone();
    let scene = RabbitScene::at(vhost, "", &[pool()]);
    let warns = |record: &Value| {
        record
            .to_string()
            .contains("was declared without `x-overflow")
    };
    assert_eq!(scene.daemon.records(warns).len(), 1);
    scene.send(&["mode:answer:400"]);
    scene.settled();
    assert_eq!(scene.client.take_all(DEAD).len(), 2);
    assert_eq!(scene.vhost.queues()[DEAD], before);
    scene.finish();
}

/// By a policy that says nothing else: the head would go, were it not for the argument.
fn a_limit_on_the_dead_letters_drops_none() {
    let scene = RabbitScene::of(pool());
    let name = binary(scene.vhost.name());
    scene.vhost.order(&format!(
        "rabbit_policy:set({name}, <<\"few\">>, <<\"dead$\">>, [{{<<\"max-length\">>, 2}}],
            0, <<\"queues\">>, <<\"tests\">>)"
    ));
    let bad: Vec<String> = (0..10)
        .map(|n| format!("mode:answer:400 bad {n}"))
        .collect();
    scene.send(&bad);
    scene.begun(&bad);
    // The limit is a soft one: some more are taken before the first is refused.
    scene.daemon.eventually("a full queue", || {
        scene.client.ready(DEAD).unwrap_or_default() >= 2
    });
    let mut buried = Vec::new();
    scene.daemon.eventually("all letters", || {
        let letters = scene.client.take_all(DEAD);
        buried.extend(letters.iter().map(|letter| letter.text().to_owned()));
        buried.len() >= bad.len()
    });
    buried.sort_unstable();
    assert_eq!(buried, bad);
    scene.settled();
    scene.finish();
}

/// What waits in it would be gone when its time is over.
fn without_leave_to_declare_a_tier_that_leads_nowhere_is_refused() {
    let scene = RabbitScene::of(pool());
    scene.daemon.stop();
    let vhost = scene.vhost;
    let tier = tier("1s");
    scene.client.delete(&tier);
    scene.client.declare(&tier, &[kind("quorum"), UNLIMITED]);
    let why = refused(&vhost.url(), "declare = false", &[pool()]);
    for part in [tier.as_str(), "x-dead-letter"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // To whoever may not configure it the broker does not tell.
    vhost.add_user("untold", "secret", vhost.name());
    vhost.permit_to_declare("untold", vhost.name(), "^nothing$");
    let url = vhost.url().replace("guest:guest", "untold:secret");
    let scene = RabbitScene::by(&url, vhost, "declare = false", &[pool()]);
    scene.send(&["a"]);
    scene.all_done();
    scene.finish();
}

fn a_second_start_finds_what_the_first_has_declared() {
    let scene = RabbitScene::of(pool());
    let declared = scene.vhost.queues();
    scene.daemon.stop();
    let site: Workspace = rabbit_site(&scene.vhost.url(), "");
    let again = site.start(&[pool()]);
    assert_eq!(scene.vhost.queues(), declared);
    again.stop();
}

fn a_user_that_may_not_declare_needs_queues_that_exist() {
    let vhost = Vhost::shared();
    vhost.add_user("reader", "secret", vhost.name());
    vhost.permit_to_declare("reader", vhost.name(), "^work\\.retry");
    let url = vhost.url().replace("guest:guest", "reader:secret");
    let why = refused(&url, "", &[pool()]);
    assert!(why.contains("`work`") && why.contains("refused"), "{why}");
    let scene = RabbitScene::at(vhost, "", &[pool()]);
    scene.daemon.stop();
    let scene = RabbitScene::by(&url, scene.vhost, "declare = false", &[pool()]);
    scene.send(&["a", "mode:answer:400"]);
    assert_eq!(scene.one_dead().text(), "mode:answer:400");
    scene.record().assert_done_once(&["a"]);
    scene.finish();
}

fn a_name_without_room_for_ours_is_refused() {
    let vhost = Vhost::shared();
    let long = "q".repeat(250);
    let why = refused(&vhost.url(), "", &[pool().text("queue", &long)]);
    assert!(
        why.contains("255 bytes") && why.contains(".retry."),
        "{why}"
    );
}
