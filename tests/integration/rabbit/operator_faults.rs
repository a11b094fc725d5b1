//! What an operator with bad luck does, and what equal messages, full queues and limits make of it.

use lapin::types::AMQPValue;
use serde_json::Value;

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, kind, rabbit_site, rough, text};
use crate::harness::{Event, Flow, NewMessage, Pool, Proxy, Workspace, field, trials};
use crate::modes_worker;
use crate::servers::rabbit::binary;

trials![
    equal_replies_to_a_queue_that_is_not_there_are_all_kept,
    equal_copies_for_a_tier_that_is_gone_all_come_again,
    one_that_waits_to_run_alone_does_not_outwait_its_connection,
    one_that_waits_to_run_alone_goes_back_in_time,
    a_single_active_consumer_feeds_all_workers,
    a_single_active_consumer_waits_for_workers_that_start_slowly,
    a_full_reply_queue_outlasts_the_brokers_patience,
    messages_that_wait_long_do_not_run_alone,
    a_limit_on_connections_is_waited_for,
    work_goes_on_while_the_queues_are_looked_at,
    a_queue_is_purged_with_messages_in_hand,
    all_connections_are_closed_under_load,
    a_password_is_changed_and_changed_back,
    a_policy_limits_the_queue_that_retries_come_back_to,
    the_queue_is_changed_under_load,
    retries_fit_into_the_smallest_frames,
    bare_and_circular_messages,
];

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn has_in_hand(scene: &RabbitScene, count: u64) {
    let what = format!("{count} messages in hand");
    let in_hand = || scene.vhost.in_hand(&scene.client, "work");
    scene.daemon.eventually(&what, || in_hand() == count);
}

// -- equal messages --

const EQUAL: usize = 100;

/// A hundred that are alike in all parts, held by one worker and let go together.
fn equal_messages(body: &str) -> (RabbitScene, Vec<Letter>) {
    let pool = Pool::new(&["--v2=100"]).set("prefetch", "100");
    let scene = RabbitScene::of(pool);
    let letter = Letter::new("work", body).reply_to("nowhere");
    let letter = letter.with(|properties| properties.with_message_id("m-1".into()));
    let letters = vec![letter; EQUAL];
    scene.client.publish(&letters);
    scene.daemon.eventually("all to be begun", || {
        scene.record().all(Event::Began).len() == EQUAL
    });
    (scene, letters)
}

fn equal_replies_to_a_queue_that_is_not_there_are_all_kept() {
    let (scene, _) = equal_messages("mode:wait:go,reply");
    scene.site.touch("go");
    scene.settled();
    let dead = scene.client.take_all(DEAD);
    assert_eq!(dead.len(), EQUAL);
    let unroutable = |letter: &Letter| letter.says("x-ganger-reason", "unroutable_reply");
    assert!(dead.iter().all(unroutable), "{:#?}", dead[0]);
    scene.finish();
}

fn equal_copies_for_a_tier_that_is_gone_all_come_again() {
    let (scene, _) = equal_messages("mode:wait:go,until-attempt:2:503:250");
    scene.client.delete("work.retry.250ms");
    scene.site.touch("go");
    scene.done(EQUAL);
    scene.all_done();
    let record = scene.record();
    assert_eq!(record.all(Event::Done).len(), EQUAL);
    assert_eq!(record.all(Event::Began).len(), 2 * EQUAL);
    scene.has_no_problem();
    scene.finish();
}

// -- beside other messages --

const HELD: &str = "mode:wait:go held";
const WAITS: &str = "waits";

/// Two pools of one daemon: a table's has a suspect in hand, for which a suspect of the broker waits.
fn one_waits_to_run_alone(settings: &str) -> (Proxy, RabbitScene) {
    let vhost = Vhost::shared();
    let client = vhost.client();
    let proxy = Proxy::to(vhost.port());
    let url = Value::from(vhost.url_by(proxy.port()));
    let site = Workspace::with_sections(&format!(
        "[sources.broker]\nkind = \"rabbitmq\"\nurl = {url}\n{settings}\n\
         [sources.table]\nkind = \"table\"\nurl = \"sqlite:queue.db\""
    ));
    client.declare("work", &[kind("quorum")]);
    let suspect = Letter::new("work", WAITS).header("x-ganger-queue", text("work"));
    let suspect = suspect.header("x-ganger-lapses", text("2"));
    client.publish(&[suspect.signed("guest")]);
    // It waits in our hands, not in a tier, if it is less than half of what is sent ahead.
    let by_broker = Pool::new(&[]).text("source", "broker").set("prefetch", "4");
    let by_table = Pool::new(&[]).text("source", "table").text("name", "rows");
    let by_table = by_table.text("queue", "rows").set("workers", "2");
    proxy.flow(REFUSES);
    let scene = RabbitScene {
        daemon: site.start(&[by_table, by_broker]),
        client,
        site,
        vhost,
    };
    let suspect = "INSERT INTO consumer_messages (queue, body, lapses) VALUES ('rows', ?1, 2)";
    scene.site.table().0.execute(suspect, [HELD]).unwrap();
    scene.begun(&[HELD]);
    proxy.flow(Flow::default());
    scene
        .daemon
        .logged("suspect message held until others are settled; other messages unaffected");
    (proxy, scene)
}

fn insert_rows<T: AsRef<str>>(scene: &RabbitScene, bodies: &[T]) {
    let row = |body: &T| NewMessage::new(body.as_ref()).to("rows");
    let rows: Vec<NewMessage> = bodies.iter().map(row).collect();
    scene.site.table().insert(&rows);
}

/// The table's pool goes on while the broker is away.
fn one_that_waits_to_run_alone_does_not_outwait_its_connection() {
    let (proxy, scene) = one_waits_to_run_alone("");
    has_in_hand(&scene, 1);
    proxy.flow(REFUSES);
    proxy.cut();
    scene.daemon.eventually("the loss to be noticed", || {
        scene.daemon.times_logged("not connected to the broker") == 2
    });
    let rows = bodies("row", 10);
    insert_rows(&scene, &rows);
    scene.begun(&rows);
    proxy.flow(Flow::default());
    scene.site.touch("go");
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&rows);
    record.assert_done_once(&[HELD, WAITS]);
    scene.finish();
}

/// It goes back for its age, and waits again.
fn one_that_waits_to_run_alone_goes_back_in_time() {
    let (_proxy, scene) = one_waits_to_run_alone("consumer_timeout = \"2s\"");
    let rows = bodies("row", 10);
    insert_rows(&scene, &rows);
    scene.begun(&rows);
    scene.daemon.logged(
        "messages waited for a worker for half of the broker's consumer_timeout and are returned",
    );
    assert!(scene.record().of(Event::Began, WAITS).is_empty());
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&[HELD, WAITS]);
    assert_eq!(scene.daemon.times_logged("not connected to the broker"), 1);
    scene.finish();
}

const REFUSES: Flow = Flow {
    up_is_stalled: false,
    down_is_stalled: false,
    drips: false,
    up_becomes: None,
    up_ends: None,
    refuses: true,
};

const SINGLE: (&str, AMQPValue) = ("x-single-active-consumer", AMQPValue::Boolean(true));

/// Its prefetch can't be changed, so it is made for all workers that there are to be.
fn a_single_active_consumer_feeds_all_workers() {
    a_single_active_consumer_feeds(&Pool::new(&["--mode=wait:go"]), 4);
}

/// Each comes up four tenths of a second after the one before.
fn a_single_active_consumer_waits_for_workers_that_start_slowly() {
    let program = std::env::current_exe().unwrap();
    let script = "n=0; until mkdir \"$RECORD.$n\"; do sleep 0.4; n=$((n+1)); done; exec \"$@\"";
    let words = [
        "-c",
        script,
        "slow",
        program.to_str().unwrap(),
        modes_worker::NAME,
        "--mode=wait:go",
    ];
    a_single_active_consumer_feeds(&Pool::of_program("sh", &words), 6);
}

fn a_single_active_consumer_feeds(pool: &Pool, workers: usize) {
    let vhost = Vhost::shared();
    vhost.client().declare("work", &[kind("quorum"), SINGLE]);
    let pool = pool
        .clone()
        .set("workers", &workers.to_string())
        .set("prefetch", "1")
        .set("queue_arguments", "{ x-single-active-consumer = true }");
    let scene = RabbitScene::at(vhost, "", &[pool]);
    let all = bodies("message", 2 * workers);
    scene.send(&all);
    scene.daemon.eventually("all workers to have one", || {
        scene.record().all(Event::Began).len() == workers
    });
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&all);
    assert_eq!(scene.vhost.consumers().len(), 1);
    scene.finish();
}

// -- a broker without patience --

/// A queue that is full.
fn full(scene: &RabbitScene, queue: &str) {
    let most = ("x-max-length", AMQPValue::LongInt(1));
    let refuse = ("x-overflow", text("reject-publish"));
    scene.client.declare(queue, &[most, refuse]);
    scene.client.fill(queue);
}

/// The broker ends a channel on which a message is not settled in time. Ours goes back before that,
/// again and again, and nobody takes it for one that kills.
fn a_full_reply_queue_outlasts_the_brokers_patience() {
    let node = rough();
    set(&node, "consumer_timeout", "3000");
    set(&node, "channel_tick_interval", "500");
    let vhost = node.vhost();
    let url = vhost.url();
    let pool = Pool::new(&["--mode=reply:answers"]).set("crashes_max", "1");
    let mut scene = RabbitScene::by(&url, vhost, "consumer_timeout = \"3s\"", &[pool]);
    full(&scene, "answers");
    let connections = scene.vhost.connections();
    scene.send(&["slow to answer"]);
    scene.done(4);
    let now = scene.vhost.connections();
    assert!(now.starts_with(&connections), "it is kept: {now:?}");
    close_all_connections(&scene.vhost);
    scene.done(6);
    scene.client = scene.vhost.client();
    // The answer may come as soon as the first of them is out, and be among these.
    let mut answers = scene.client.take_all("answers");
    scene.all_done();
    answers.extend(scene.client.take_all("answers"));
    assert!(answers.iter().any(|one| one.text() == "re: slow to answer"));
    scene.finish();
    set(&node, "consumer_timeout", "1800000");
    set(&node, "channel_tick_interval", "60000");
}

fn set(node: &crate::servers::rabbit::Node, name: &str, value: &str) {
    node.order(&format!("application:set_env(rabbit, {name}, {value})"));
}

/// What is given back for its age has not killed anybody.
fn messages_that_wait_long_do_not_run_alone() {
    let pool = Pool::new(&["--v2=1", "--mode=note:property:redelivered,sleep:300"])
        .set("workers", "2")
        .set("prefetch", "10");
    let scene = RabbitScene::with("consumer_timeout = \"2s\"", pool);
    let all = bodies("message", 40);
    scene.send(&all);
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&all);
    let again = record.of(Event::Noted, "property:redelivered=Boolean(true)");
    assert!(!again.is_empty(), "none has waited");
    let spans: Vec<(u64, u64)> = all
        .iter()
        .map(|body| {
            let at = |event| record.of(event, body)[0].micros;
            (at(Event::Began), at(Event::Done))
        })
        .collect();
    let has_company = |(began, done): &&(u64, u64)| {
        spans
            .iter()
            .filter(|other| other.0 < *done && *began < other.1)
            .count()
            > 1
    };
    let alone = spans.iter().filter(|span| !has_company(span)).count();
    // The last one may be, or one that came while the others were on their way.
    assert!(alone <= 3, "{alone} ran with nothing beside them");
    scene.finish();
}

// -- at the start --

fn works(scene: &RabbitScene, body: &str) {
    scene.is_consumed();
    scene.send(&[body]);
    scene.all_done();
    scene.record().assert_done_once(&[body]);
    scene.has_no_problem();
}

fn a_limit_on_connections_is_waited_for() {
    let vhost = Vhost::shared();
    let site = rabbit_site(&vhost.url(), "");
    let name = binary(vhost.name());
    let limits = |text: &str| {
        let set = format!("rabbit_vhost_limit:set({name}, [{text}], <<\"tests\">>)");
        vhost.order(&set);
    };
    limits("{<<\"max-connections\">>, 0}");
    let daemon = site.start(&[Pool::new(&[])]);
    daemon.eventually("a word about the limit", || {
        let told = |record: &Value| field(record, "problem").contains("limit");
        !daemon.records(told).is_empty()
    });
    limits("{<<\"max-connections\">>, -1}");
    let scene = RabbitScene {
        client: vhost.client(),
        daemon,
        site,
        vhost,
    };
    works(&scene, "a");
    scene.finish();
}

// -- while it runs --

/// One of the queues does not answer.
fn work_goes_on_while_the_queues_are_looked_at() {
    let pool = Pool::new(&[]).text("queue_type", "classic");
    let scene = RabbitScene::with("connect_timeout = \"1m\"", pool.clone());
    let queue = |order: &str| {
        scene.vhost.order(&format!(
            "begin {{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r({}, queue, {})),
                sys:{order}(amqqueue:get_pid(Q)) end",
            binary(scene.vhost.name()),
            binary(DEAD),
        ));
    };
    queue("suspend");
    // There are more tiers now.
    let longer = r#"{ attempts = 2, initial = "10ms", max = "2m", jitter = 0.0 }"#;
    scene.reload(&[pool.set("retry", longer)]);
    scene.daemon.eventually("the new tiers", || {
        scene.vhost.queues().contains_key("work.retry.256s")
    });
    let all = bodies("message", 100);
    scene.send(&all);
    scene.daemon.eventually("all to be done", || {
        scene.record().all(Event::Done).len() == all.len()
    });
    queue("resume");
    scene.all_done();
    scene.record().assert_done_once(&all);
    scene.finish();
}

/// What is in hand is done and acknowledged; what waited is gone, as the operator wished.
fn a_queue_is_purged_with_messages_in_hand() {
    for kind in ["quorum", "classic"] {
        let pool = Pool::new(&["--mode=wait:go"])
            .set("prefetch", "5")
            .text("queue_type", kind);
        let scene = RabbitScene::of(pool);
        let all = bodies("message", 20);
        scene.send(&all);
        has_in_hand(&scene, 5);
        scene.client.purge("work");
        scene.site.touch("go");
        scene.all_done();
        scene.record().assert_done_once(&all[..5]);
        works(&scene, "after");
        assert_eq!(scene.record().all(Event::Done).len(), 6);
        scene.finish();
    }
}

/// Closes each by a process of its own: one may end by itself when another is closed, and as long as one of the
/// daemon's two is still there it goes on without the other, and all that it does meanwhile is done again.
fn close_all_connections(vhost: &Vhost) {
    let name = binary(vhost.name());
    vhost.order(&format!(
        "lists:foreach(fun([{{pid, Pid}}, {{vhost, Vhost}}]) ->
            [spawn(rabbit_networking, close_connection, [Pid, \"by order\"]) || Vhost =:= {name}]
        end, rabbit_networking:connection_info_all([pid, vhost]))"
    ));
}

fn all_connections_are_closed_under_load() {
    let (workers, prefetch) = (2, 10);
    let pool = Pool::new(&["--mode=sleep:1,reply:answers"])
        .set("workers", &workers.to_string())
        .set("prefetch", &prefetch.to_string());
    let mut scene = RabbitScene::of(pool);
    scene.client.declare("answers", &[kind("quorum")]);
    let all = bodies("message", 600);
    scene.send(&all);
    for times in 1..=3 {
        scene.done(150 * times);
        // One that is not there can't be lost.
        scene.has_no_problem();
        close_all_connections(&scene.vhost);
        scene.daemon.eventually("the loss to be noticed", || {
            scene.daemon.times_logged("not connected to the broker") == times
        });
    }
    scene.client = scene.vhost.client();
    scene.all_done();
    let twice = scene.record().assert_none_lost(&all);
    // What waits for the confirmation of its answer comes again beside what is in hand: of slow
    // confirmations the broker hands out more.
    let at_once = 2 * workers * prefetch;
    assert!(twice <= 3 * at_once, "{twice} done twice");
    scene.assert_answered("answers", &all);
    scene.has_no_problem();
    scene.finish();
}

fn a_password_is_changed_and_changed_back() {
    let vhost = Vhost::shared();
    vhost.add_user("changing", "first", vhost.name());
    let url = vhost.url().replace("guest:guest", "changing:first");
    let scene = RabbitScene::by(&url, vhost, "", &[Pool::new(&["--mode=wait:go"])]);
    let password = |password: &str| {
        let change = "rabbit_auth_backend_internal:change_password";
        let [user, password] = ["changing", password].map(binary);
        let actor = "<<\"tests\">>";
        scene
            .vhost
            .order(&format!("{change}({user}, {password}, {actor})"));
    };
    scene.send(&["held"]);
    scene.begun(&["held"]);
    password("second");
    close_all_connections(&scene.vhost);
    scene.has_problem("refuses the user `changing`");
    scene.site.touch("go");
    scene.done(1);
    password("first");
    scene.has_no_problem();
    let client = scene.vhost.client();
    client.publish(&[Letter::new("work", "after")]);
    scene.settled();
    scene.record().assert_none_lost(&["held", "after"]);
    scene.finish();
}

/// What failed comes back to a queue that takes no more, and waits there until it does.
fn a_policy_limits_the_queue_that_retries_come_back_to() {
    let pool = Pool::new(&["--v2=1", "--mode=until-attempt:2:503:250"])
        .set("workers", "2")
        .set("prefetch", "5")
        .text("breaker", "off");
    let node = rough();
    // After a refusal it waits so long before it tries again.
    set(&node, "dead_letter_worker_publisher_confirm_timeout", "500");
    let vhost = node.vhost();
    let url = vhost.url();
    let scene = RabbitScene::by(&url, vhost, "", &[pool]);
    let all = bodies("message", 200);
    scene.send(&all);
    let name = binary(scene.vhost.name());
    scene.vhost.order(&format!(
        "rabbit_policy:set({name}, <<\"small\">>, <<\"^work$\">>,
            [{{<<\"max-length\">>, 3}}, {{<<\"overflow\">>, <<\"reject-publish\">>}}],
            0, <<\"queues\">>, <<\"tests\">>)"
    ));
    scene.all_done();
    scene.record().assert_done_once(&all);
    scene.finish();
}

/// What waits in the tiers of the old queue stays there for whoever reads that.
fn the_queue_is_changed_under_load() {
    let pool = |queue: &str| {
        let pool = Pool::new(&["--v2=1", "--mode=sleep:1,until-attempt:2:503:250"]);
        let pool = pool.set("workers", "2").text("queue", queue);
        pool.text("breaker", "off")
    };
    let scene = RabbitScene::of(pool("work"));
    let all = bodies("message", 400);
    scene.send(&all);
    scene.done(100);
    scene.reload(&[pool("other")]);
    let there = bodies("there", 50);
    let letters = there.iter().map(|body| Letter::new("other", body));
    scene.client.publish(&letters.collect::<Vec<_>>());
    scene.daemon.eventually("the other's to be done", || {
        let record = scene.record();
        let done = |body: &String| !record.of(Event::Done, body).is_empty();
        there.iter().all(done)
    });
    scene.reload(&[pool("work")]);
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&all);
    record.assert_done_once(&there);
    assert_eq!(record.all(Event::Began).len(), 2 * 450, "each twice");
    scene.finish();
}

/// A broker may allow as little as 8192 bytes: bodies are cut, headers can't be.
fn retries_fit_into_the_smallest_frames() {
    let node = rough();
    set(&node, "frame_max", "8192");
    let vhost = node.vhost();
    let url = vhost.url();
    let pool = Pool::new(&["--v2=1"]).set("workers", "2");
    let pool = pool.text("breaker", "off");
    let scene = RabbitScene::by(&url, vhost, "", &[pool]);
    scene.client.declare("answers", &[kind("quorum")]);
    let body = |n: usize| {
        let steps = "mode:until-attempt:2:503:250,reply:answers";
        format!("{steps} {n} {}", "x".repeat(100_000))
    };
    let all: Vec<String> = (0..200).map(body).collect();
    scene.send(&all);
    scene.all_done();
    assert_eq!(scene.record().all(Event::Done).len(), all.len());
    scene.assert_answered("answers", &all);
    scene.finish();
    set(&node, "frame_max", "131072");
}

/// One has no properties at all; one asks for its answer where it came from.
fn bare_and_circular_messages() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]));
    let bare = Letter::new("work", "mode:until-attempt:2:503:250 bare");
    let bare = bare.with(|_| lapin::BasicProperties::default());
    let circular = Letter::new("work", "mode:reply").reply_to("work");
    scene.client.publish(&[bare, circular]);
    scene.done(1);
    assert_eq!(scene.one_dead().text(), "mode:reply");
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&["mode:until-attempt:2:503:250 bare", "mode:reply"]);
    scene.finish();
}
