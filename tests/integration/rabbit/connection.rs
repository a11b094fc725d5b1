//! How the daemon gets to the broker: TLS, names and passwords, several hosts; and what it says when
//! it does not.

use std::fs;
use std::sync::Arc;

use nix::sys::signal::Signal;

use crate::harness::rabbit::{
    Letter, RabbitScene, Vhost, complaint, rabbit_site, refused, rough, shared, text,
};
use crate::harness::tls::{Authority, KNOWN, SERVER_NAME, quoted};
use crate::harness::{Daemon, Flow, Pool, Proxy, field, trials};
use crate::servers::process::free_port;
use crate::servers::rabbit::Node;

trials![
    by_tls,
    by_tls_with_a_wrong_authority,
    by_tls_with_another_name,
    by_tls_with_a_certificate_of_our_own,
    without_tls_to_a_port_that_wants_it,
    to_a_broker_that_allows_few_channels,
    more_channels_one_after_the_other_than_there_are_numbers,
    to_a_broker_that_takes_larger_frames,
    of_many_pools_take_little_memory,
    a_wrong_password,
    a_user_that_nobody_knows,
    names_and_passwords_that_need_escapes,
    a_password_from_a_file,
    a_virtual_host_that_is_not_there,
    a_virtual_host_that_the_user_may_not_use,
    the_hosts_are_tried_in_turn,
    a_broker_that_is_not_there_is_waited_for,
    a_host_that_never_answers_is_left_in_time,
    pools_wait_for_a_silent_host_side_by_side,
    the_connection_has_a_name,
    a_frozen_broker_is_noticed_by_its_silence,
];

fn pool() -> Pool {
    Pool::new(&[])
}

/// A message goes through.
fn works(scene: &RabbitScene) {
    scene.send(&["a"]);
    scene.all_done();
    scene.record().assert_done_once(&["a"]);
}

// -- TLS --

fn tls_url(vhost: &Vhost, node: &Node) -> String {
    let url = vhost.url_by(node.tls_port());
    url.replace("amqp:", "amqps:")
}

fn ca_file(authority: &Authority) -> String {
    format!("ca_file = {}", quoted(&authority.path("ca.pem")))
}

fn by_tls() {
    let vhost = Vhost::shared();
    let url = tls_url(&vhost, &shared());
    let settings = ca_file(Authority::shared());
    let scene = RabbitScene::by(&url, vhost, &settings, &[pool()]);
    works(&scene);
    scene.finish();
}

fn by_tls_with_a_wrong_authority() {
    let vhost = Vhost::shared();
    let url = tls_url(&vhost, &shared());
    // The second may have been made anew, without the server's knowing.
    for authority in ["other authority", KNOWN] {
        let authority = Authority::called(authority);
        let why = refused(&url, &ca_file(&authority), &[pool()]);
        for part in ["certificate", "`ca_file`"] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}

/// By another name than the host's, which the certificate holds or not.
fn by_tls_with_another_name() {
    let vhost = Vhost::shared();
    let url = tls_url(&vhost, &shared());
    let ca_file = ca_file(Authority::shared());
    let named = |name: &str| format!("{ca_file}\nserver_name = \"{name}\"");
    let why = refused(&url, &named("other.test"), &[pool()]);
    assert!(why.contains("other.test"), "{why}");
    let scene = RabbitScene::by(&url, vhost, &named(SERVER_NAME), &[pool()]);
    works(&scene);
    scene.finish();
}

/// To a server that asks for one.
fn by_tls_with_a_certificate_of_our_own() {
    let authority = Authority::shared();
    let asks = "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true";
    let node = Arc::new(Node::start(&authority.server_settings(asks)));
    let vhost = Vhost::at(Arc::clone(&node));
    let url = tls_url(&vhost, &node);
    let ca_file = ca_file(authority);
    let wants = "wants a client certificate";
    // The server may hang up before its alert arrives: then this is told as a possible cause.
    complaint(&url, &ca_file, wants);
    let of = |authority: &Authority| {
        let [cert, key] = ["client.pem", "client.key"].map(|file| quoted(&authority.path(file)));
        format!("{ca_file}\ncert_file = {cert}\nkey_file = {key}")
    };
    let unknown = Authority::called("other authority");
    complaint(&url, &of(&unknown), wants);
    let scene = RabbitScene::by(&url, vhost, &of(authority), &[pool()]);
    works(&scene);
    scene.finish();
}

fn to_a_broker_that_allows_few_channels() {
    let node = Arc::new(Node::start("channel_max = 15"));
    let vhost = Vhost::at(Arc::clone(&node));
    let why = refused(&vhost.url(), "", &[pool()]);
    assert!(why.contains("allows 15 channels on a connection"), "{why}");
    assert!(why.contains("`channel_max`"), "{why}");
}

/// Each question has a channel, and those that the broker says no to use up its number.
fn more_channels_one_after_the_other_than_there_are_numbers() {
    let node = Arc::new(Node::start("channel_max = 16"));
    let vhost = Vhost::at(Arc::clone(&node));
    let pool = pool().set("workers", "{ min = 1, max = 2, cooldown = \"100ms\" }");
    let scene = RabbitScene::at(vhost, "", &[pool]);
    works(&scene);
    let config = scene.daemon.config().to_str().unwrap();
    let ganger = |args: &[&str]| scene.site.ganger(&[args, &["--config", config]].concat());
    ganger(&["pause", "work"]).good();
    for sent in 1..=20 {
        scene.send(&["waits"]);
        scene.daemon.eventually("the backlog to be asked for", || {
            let told = ganger(&["status", "-o", "json"]).json();
            let backlog = &told["pools"][0]["backlog"];
            assert!(backlog.is_object(), "a question had no answer");
            backlog["depth"] == sent
        });
    }
    let connected = scene.daemon.times_logged("connected to RabbitMQ");
    assert_eq!(connected, 1, "no channel was refused");
    scene.finish();
}

/// Headers of messages may need larger frames than those that a connection begins with.
fn to_a_broker_that_takes_larger_frames() {
    for limit in ["0", "1048576"] {
        let node = Arc::new(Node::start(&format!("frame_max = {limit}")));
        let scene = RabbitScene::at(Vhost::at(node), "", &[pool()]);
        works(&scene);
        let filler = text(&"x".repeat(200_000));
        let letter = Letter::new("work", "large").header("filler", filler);
        scene.client.publish(&[letter]);
        scene.all_done();
        scene.record().assert_done_once(&["a", "large"]);
        assert_eq!(scene.daemon.times_logged("not connected to the broker"), 0);
        scene.finish();
    }
}

/// Each has a connection, whose buffers take memory as they are used.
fn of_many_pools_take_little_memory() {
    const POOLS: usize = 20;
    let of = |number: usize| {
        let name = format!("pool-{number}");
        pool().text("name", &name).text("queue", &name)
    };
    let pools: Vec<Pool> = (0..POOLS).map(of).collect();
    let scene = RabbitScene::at(Vhost::shared(), "", &pools);
    scene.daemon.has_workers(POOLS);
    let resident = scene.daemon.resident_kib_max() / 1024;
    // With the memory that each connection may use it were 160 MiB more.
    assert!(resident < 150, "{resident} MiB");
    scene.finish();
}

fn without_tls_to_a_port_that_wants_it() {
    let vhost = Vhost::shared();
    let url = vhost.url_by(shared().tls_port());
    let port = shared().tls_port().to_string();
    complaint(&url, "connect_timeout = \"1s\"", &port);
}

// -- who we are --

fn with_user(url: &str, user: &str, password: &str) -> String {
    url.replace("guest:guest", &format!("{user}:{password}"))
}

fn a_wrong_password() {
    let vhost = Vhost::shared();
    let url = with_user(&vhost.url(), "guest", "hunter2");
    let why = refused(&url, "", &[pool()]);
    for part in ["password", "`guest`"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(!why.contains("hunter2"), "a secret is told: {why}");
}

fn a_user_that_nobody_knows() {
    let vhost = Vhost::shared();
    let why = refused(&with_user(&vhost.url(), "nobody", "hunter2"), "", &[pool()]);
    assert!(why.contains("`nobody`"), "{why}");
}

fn names_and_passwords_that_need_escapes() {
    let (name, user, password) = ("a/b c", "o'neil@home", "p@ss/w%rd:#?é");
    let vhost = Vhost::called(shared(), name);
    vhost.add_user(user, password, name);
    let port = vhost.port();
    let escaped = "amqp://o'neil%40home:p%40ss%2Fw%25rd%3A%23%3F%C3%A9@127.0.0.1";
    let url = format!("{escaped}:{port}/a%2fb%20c");
    let scene = RabbitScene::by(&url, vhost, "", &[pool()]);
    works(&scene);
    scene.daemon.stop();
    let plain = |text: &str| serde_json::Value::from(text);
    let settings = format!(
        "username = {}\npassword = {}\nvhost = {}",
        plain(user),
        plain(password),
        plain(name)
    );
    let url = format!("amqp://127.0.0.1:{port}");
    let scene = RabbitScene::by(&url, scene.vhost, &settings, &[pool()]);
    works(&scene);
    scene.finish();
}

fn a_password_from_a_file() {
    let vhost = Vhost::shared();
    vhost.add_user("filed", "secret", vhost.name());
    let site = rabbit_site(
        &vhost.url().replace("guest:guest", "filed"),
        "password_file = \"password\"",
    );
    fs::write(site.path("password"), "secret\n").unwrap();
    let daemon = site.start(&[pool()]);
    daemon.eventually("its connection", || vhost.connections().len() == 1);
    daemon.stop();
}

fn a_virtual_host_that_is_not_there() {
    let url = shared().url("missing");
    let why = refused(&url, "", &[pool()]);
    for part in ["virtual host", "`missing`"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

fn a_virtual_host_that_the_user_may_not_use() {
    let vhost = Vhost::shared();
    vhost.add_user("stranger", "secret", "/");
    let url = with_user(&vhost.url(), "stranger", "secret");
    let why = refused(&url, "", &[pool()]);
    for part in ["virtual host", vhost.name(), "`stranger`"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

// -- where the broker is --

/// What the daemon says of its source.
fn problem(daemon: &Daemon) -> String {
    daemon.eventually_some("a problem", || {
        daemon.signal(nix::sys::signal::Signal::SIGUSR1);
        let told = daemon.records(|record| !record["source_problem"].is_null());
        told.last().map(|record| field(record, "source_problem"))
    })
}

fn the_hosts_are_tried_in_turn() {
    let vhost = Vhost::shared();
    let (first, second) = (Proxy::to(vhost.port()), Proxy::to(vhost.port()));
    first.flow(Flow {
        refuses: true,
        ..Flow::default()
    });
    let hosts = format!(
        "hosts = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]",
        free_port(),
        second.port()
    );
    let url = vhost.url_by(first.port());
    let scene = RabbitScene::by(&url, vhost, &hosts, &[pool()]);
    works(&scene);
    assert!(first.accepted() >= 1 && second.accepted() >= 1);
    // The second goes, the first is back.
    first.flow(Flow::default());
    second.flow(Flow {
        refuses: true,
        ..Flow::default()
    });
    second.cut();
    scene.send(&["b"]);
    scene.all_done();
    assert!(first.accepted() >= 2, "it has changed over");
    scene.finish();
}

fn a_broker_that_is_not_there_is_waited_for() {
    let vhost = Vhost::shared();
    let proxy = Proxy::to(vhost.port());
    proxy.flow(Flow {
        refuses: true,
        ..Flow::default()
    });
    let url = vhost.url_by(proxy.port());
    let scene = RabbitScene::by(&url, vhost, "", &[pool()]);
    let told = problem(&scene.daemon);
    assert!(told.contains(&proxy.port().to_string()), "{told}");
    proxy.flow(Flow::default());
    scene.is_consumed();
    works(&scene);
    scene.has_no_problem();
    scene.finish();
}

/// It takes the connection and says nothing.
fn a_host_that_never_answers_is_left_in_time() {
    let vhost = Vhost::shared();
    let (silent, other) = (Proxy::to(vhost.port()), Proxy::to(vhost.port()));
    silent.flow(Flow {
        up_is_stalled: true,
        ..Flow::default()
    });
    let settings = format!(
        "connect_timeout = \"500ms\"\nhosts = [\"127.0.0.1:{}\"]",
        other.port()
    );
    let url = vhost.url_by(silent.port());
    let scene = RabbitScene::by(&url, vhost, &settings, &[pool()]);
    scene.is_consumed();
    works(&scene);
    assert!(silent.accepted() >= 1);
    scene.finish();
}

/// A reload opens pools on a host that says nothing: all of them ask before one gives up.
fn pools_wait_for_a_silent_host_side_by_side() {
    let vhost = Vhost::shared();
    let proxy = Proxy::to(vhost.port());
    let url = vhost.url_by(proxy.port());
    let scene = RabbitScene::by(&url, vhost, "connect_timeout = \"60s\"", &[pool()]);
    works(&scene);
    let before = proxy.accepted();
    proxy.flow(Flow {
        up_is_stalled: true,
        ..Flow::default()
    });
    let named = |name| pool().text("name", name).text("queue", name);
    let pools = [pool(), named("second"), named("third"), named("fourth")];
    scene.site.reconfigure(&scene.daemon, &pools);
    scene.daemon.signal(Signal::SIGHUP);
    scene
        .daemon
        .eventually("all three to have asked", || proxy.accepted() == before + 3);
    proxy.flow(Flow::default());
    scene.daemon.logged("configuration reloaded");
    scene.send(&["b"]);
    scene.all_done();
    scene.record().assert_done_once(&["b"]);
    scene.finish();
}

fn the_connection_has_a_name() {
    let settings = "connection_name = \"billing\"";
    let scene = RabbitScene::with(settings, pool());
    let connections = scene.vhost.connections();
    assert_eq!(connections.len(), 1, "{connections:?}");
    let name = &connections[0];
    assert!(name.contains("billing") && name.contains("work"), "{name}");
    scene.finish();
}

/// Its connections stay open, and not a byte comes.
fn a_frozen_broker_is_noticed_by_its_silence() {
    let node = rough();
    let vhost = node.vhost();
    let url = vhost.url();
    let settings = "heartbeat = \"1s\"\nconnect_timeout = \"1s\"";
    let scene = RabbitScene::by(&url, vhost, settings, &[pool()]);
    works(&scene);
    let before = scene.vhost.connections();
    node.freeze();
    scene.daemon.logged("not connected to the broker");
    node.thaw();
    scene.send(&["b"]);
    scene.all_done();
    scene.record().assert_done_once(&["a", "b"]);
    let after = scene.vhost.connections();
    assert_eq!((before.len(), after.len()), (1, 1));
    assert_ne!(before, after);
    scene.finish();
}
