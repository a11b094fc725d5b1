//! `bind`: what is published to an exchange reaches the pool, by its key, its headers or in any case.

use lapin::ExchangeKind;
use nix::sys::signal::Signal;

use crate::harness::rabbit::{Letter, RabbitScene, Vhost, rabbit_site, refused, text};
use crate::harness::{Pool, trials};

trials![
    what_is_published_to_exchanges_reaches_the_pool,
    a_reload_adds_bindings_and_takes_none_away,
    an_exchange_that_is_missing_refuses_the_start,
    an_exchange_of_another_type_refuses_the_start,
    a_lost_exchange_is_made_again_when_its_queue_is,
];

const TOPIC: &str = r#"{ exchange = "jobs", type = "topic", routing_key = "email.*" }"#;

fn pool(bindings: &[&str]) -> Pool {
    Pool::new(&[]).set("bind", &format!("[{}]", bindings.join(", ")))
}

fn what_is_published_to_exchanges_reaches_the_pool() {
    let scene = RabbitScene::of(pool(&[
        TOPIC,
        r#"{ exchange = "jobs", routing_key = "sms.#" }"#,
        r#"{ exchange = "all", type = "fanout" }"#,
        r#"{ exchange = "exact", type = "direct", routing_key = "now" }"#,
        r#"{ exchange = "by", type = "headers", arguments = { tenant = "blue", x-match = "all" } }"#,
    ]));
    let blue = |letter: Letter, tenant: &str| letter.header("tenant", text(tenant));
    scene.client.publish(&[
        Letter::new("", "topic").through("jobs", "email.new"),
        Letter::new("", "second").through("jobs", "sms.new.now"),
        Letter::new("", "fanout").through("all", "anything"),
        Letter::new("", "direct").through("exact", "now"),
        blue(Letter::new("", "headers").through("by", ""), "blue"),
    ]);
    scene.all_done();
    let bodies = ["topic", "second", "fanout", "direct", "headers"];
    scene.record().assert_done_once(&bodies);
    // Nobody is there for these, which their publisher is told.
    for (exchange, key) in [("jobs", "email.new.now"), ("exact", "later"), ("by", "")] {
        let stray = blue(Letter::new("", "stray").through(exchange, key), "red");
        assert!(!scene.client.is_routed(&stray), "{exchange} {key}");
    }
    scene.finish();
}

fn a_reload_adds_bindings_and_takes_none_away() {
    let scene = RabbitScene::of(pool(&[TOPIC]));
    let fanout = r#"{ exchange = "all", type = "fanout" }"#;
    scene.site.reconfigure(&scene.daemon, &[pool(&[fanout])]);
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.logged("configuration reloaded");
    let new = Letter::new("", "new").through("all", "");
    let old = Letter::new("", "old").through("jobs", "email.new");
    scene.client.publish(&[new, old]);
    scene.all_done();
    scene.record().assert_done_once(&["new", "old"]);
    scene.finish();
}

fn an_exchange_that_is_missing_refuses_the_start() {
    let vhost = Vhost::shared();
    let untyped = pool(&[r#"{ exchange = "jobs", routing_key = "a" }"#]);
    let complaint = refused(&vhost.url(), "", std::slice::from_ref(&untyped));
    let says = "the exchange `jobs` is missing: create it, or set its `type` in `bind`";
    assert!(complaint.contains(says), "{complaint}");
    let site = rabbit_site(&vhost.url(), "");
    site.configure_commands(&[untyped]);
    let complaint = site.ganger(&["check", "--online"]).bad(1);
    assert!(complaint.contains(says), "{complaint}");
    // It makes nothing, and does not miss what will be made.
    site.configure_commands(&[pool(&[TOPIC])]);
    site.ganger(&["check", "--online"]).good();
    assert!(!vhost.client().has_exchange("jobs"));
}

fn an_exchange_of_another_type_refuses_the_start() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    client.declare_exchange("jobs", ExchangeKind::Fanout);
    let complaint = refused(&vhost.url(), "", &[pool(&[TOPIC])]);
    for part in [
        "no queue can be bound to the exchange `jobs`",
        "inequivalent arg 'type'",
    ] {
        assert!(complaint.contains(part), "{complaint}");
    }
    let site = rabbit_site(&vhost.url(), "");
    site.configure_commands(&[pool(&[TOPIC])]);
    let complaint = site.ganger(&["check", "--online"]).bad(1);
    assert!(complaint.contains("inequivalent arg 'type'"), "{complaint}");
}

fn a_lost_exchange_is_made_again_when_its_queue_is() {
    let scene = RabbitScene::of(pool(&[TOPIC]));
    scene.client.delete_exchange("jobs");
    scene.client.delete("work");
    scene.daemon.eventually("all is there again", || {
        scene.client.has_exchange("jobs")
            && scene
                .client
                .is_routed(&Letter::new("", "a").through("jobs", "email.a"))
    });
    scene.all_done();
    scene.record().assert_done_once(&["a"]);
    scene.finish();
}
