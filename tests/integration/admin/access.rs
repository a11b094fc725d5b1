//! Who may ask, where, and what bad requests are told.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;

use super::{api, command, open, pool, scene, site, socket};
use crate::harness::{Api, Daemon, PROGRAM, Pool, Scene, Workspace, trials};

trials![
    the_socket_is_its_owners_and_goes_with_the_daemon,
    a_second_daemon_takes_the_socket_over_and_keeps_it,
    the_socket_is_had_again_when_who_took_it_is_gone,
    an_address_that_was_asked_for_must_be_had,
    an_address_has_a_port,
    beyond_loopback_a_token_is_needed,
    the_token_opens_the_api_and_its_absence_does_not,
    a_page_of_another_site_is_refused,
    over_tcp_a_token_is_wanted_and_made,
    a_made_token_stays_as_long_as_a_daemon_answers_at_the_socket,
    readiness_names_no_pool_without_the_token,
    a_login_is_good_once,
    a_browser_is_opened_at_a_page_of_its_user,
    bad_requests_are_told_what_would_be_right,
    a_daemon_that_is_not_there_is_said_to_be,
    telemetry_has_a_listener_of_its_own,
    a_dashboard_that_is_off_serves_no_page,
];

fn the_socket_is_its_owners_and_goes_with_the_daemon() {
    let scene = scene(Pool::new(&[]));
    let path = socket(&scene.daemon);
    assert_eq!(path, scene.daemon.config().with_extension("sock"));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let status = Api::Socket(path.clone()).get("/v1/status").json();
    assert_eq!(status["pid"], scene.daemon.pid().as_raw());
    assert_eq!(status["state"], "running");
    scene.finish();
    assert!(!path.exists());
}

/// As in a deploy: the new one starts before the old one has ended.
fn a_second_daemon_takes_the_socket_over_and_keeps_it() {
    let site = site(r#"socket = "shared.sock""#);
    let old = site.start(&[Pool::new(&[])]);
    let path = socket(&old);
    let new = site.start(&[Pool::new(&[]).text("name", "other").text("queue", "other")]);
    assert_eq!(socket(&new), path);
    old.stop();
    let status = Api::Socket(path.clone()).get("/v1/status").json();
    assert_eq!(status["pid"], new.pid().as_raw());
    new.stop();
    assert!(!path.exists());
}

/// As in a deploy that is given up: the new one ends, and the old one stays.
fn the_socket_is_had_again_when_who_took_it_is_gone() {
    let site = site(r#"socket = "shared.sock""#);
    let old = site.start(&[Pool::new(&[])]);
    let path = socket(&old);
    let answers = |daemon: &Daemon| {
        let status = site.ganger(&[
            "status",
            "--config",
            daemon.config().to_str().unwrap(),
            "-o",
            "json",
        ]);
        status.code == Some(0) && status.json()["pid"] == daemon.pid().as_raw()
    };
    for end in [Daemon::stop, Daemon::crash] {
        let new = site.start(&[Pool::new(&[]).text("name", "other").text("queue", "other")]);
        assert!(answers(&new));
        end(&new);
        old.eventually("the socket to be the old one's", || answers(&old));
    }
    std::fs::remove_file(&path).unwrap();
    old.eventually("the socket to be there again", || answers(&old));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    old.stop();
    assert!(!path.exists());
}

fn an_address_that_was_asked_for_must_be_had() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    let table = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"";
    let asked = format!("{table}\n[admin]\nlisten = \"{address}\"");
    let site = Workspace::make("", &asked);
    site.configure_commands(&[Pool::new(&[])]);
    let refused = site.ganger(&["run"]).bad(1);
    assert!(refused.contains("admin.listen"), "{refused}");
    assert!(refused.contains(&address.to_string()), "{refused}");
}

fn an_address_has_a_port() {
    let site = site("");
    site.configure_commands(&[Pool::new(&[])]);
    let text = std::fs::read_to_string(site.path("ganger.toml")).unwrap();
    let text = text.replace("127.0.0.1:0", "127.0.0.1");
    site.put("ganger.toml", &text, false);
    let refused = site.ganger(&["check"]).bad(2);
    assert!(
        refused.contains("must be an IP address with a port"),
        "{refused}"
    );
}

fn beyond_loopback_a_token_is_needed() {
    let site = site("");
    site.configure_commands(&[Pool::new(&[])]);
    let text = std::fs::read_to_string(site.path("ganger.toml")).unwrap();
    site.put(
        "ganger.toml",
        &text.replace("127.0.0.1:0", "0.0.0.0:0"),
        false,
    );
    let refused = site.ganger(&["check"]).bad(2);
    assert!(
        refused.contains("unless a token is configured"),
        "{refused}"
    );
    assert!(refused.contains("token_file"), "{refused}");
}

fn the_token_opens_the_api_and_its_absence_does_not() {
    let site = site(r#"token_file = "token""#);
    site.put("token", "s3cret\n", false);
    let scene = Scene::at(site, &[Pool::new(&[])]);
    let api = open(&scene.daemon);
    assert!(!socket(&scene.daemon).with_extension("token").exists());
    let told = api.get("/v1/status").problem(401);
    assert!(told.contains("Authorization: Bearer"), "{told}");
    for wrong in ["Bearer s3cre", "Basic s3cret"] {
        let header = format!("Authorization: {wrong}");
        let answer = api.ask("GET", "/v1/status", &[&header], "");
        assert!(
            answer.head.contains("www-authenticate: bearer"),
            "{answer:?}"
        );
        answer.problem(401);
    }
    let right = ["Authorization: Bearer s3cret", "Host: ganger.example"];
    assert_eq!(api.ask("GET", "/v1/status", &right, "").status, 200);
    assert_eq!(api.get("/livez").status, 200);
    let host = format!("http://127.0.0.1:{}", api.port());
    let token = scene.site.path("token");
    let token = token.to_str().unwrap();
    let status = scene.site.ganger(&[
        "status",
        "-o",
        "json",
        "--host",
        &host,
        "--token-file",
        token,
    ]);
    assert_eq!(status.json()["pid"], scene.daemon.pid().as_raw());
    let refused = scene.site.ganger(&["status", "--host", &host]).bad(1);
    assert!(refused.contains("Authorization: Bearer"), "{refused}");
    scene.finish();
}

fn a_page_of_another_site_is_refused() {
    let scene = scene(Pool::new(&[]));
    let api = open(&scene.daemon);
    let rebound = api.ask("GET", "/metrics", &["Host: evil.example"], "");
    assert!(rebound.problem(403).contains("loopback"));
    let cross = ["Host: localhost", "Origin: https://evil.example"];
    api.ask("GET", "/metrics", &cross, "").problem(403);
    assert_eq!(
        api.ask("GET", "/livez", &["Host: 10.0.0.7"], "").status,
        200
    );
    scene.finish();
}

/// Any program of any user can ask at a port of this machine, a worker too.
fn over_tcp_a_token_is_wanted_and_made() {
    let scene = scene(Pool::new(&[]));
    let (stranger, friend) = (open(&scene.daemon), api(&scene.daemon));
    let file = socket(&scene.daemon).with_extension("token");
    let metadata = std::fs::metadata(&file).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.uid(), nix::unistd::Uid::effective().as_raw());
    let asked = [
        ("GET", "/v1/status"),
        ("GET", "/v1/pools"),
        ("POST", "/v1/pools/work/pause"),
        ("POST", "/v1/pools/work/drain"),
        ("POST", "/v1/queues/work/messages"),
        ("GET", "/v1/dead/main"),
        ("DELETE", "/v1/dead/main"),
        ("GET", "/v1/events"),
        ("POST", "/v1/reload"),
        ("POST", "/v1/logins"),
        ("GET", "/openapi.json"),
        ("GET", "/ui"),
    ];
    for (method, path) in asked {
        let told = stranger.ask(method, path, &[], "").problem(401);
        assert!(told.contains("beside the daemon's socket"), "{told}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        scene
            .daemon
            .eventually(path, || stranger.get(path).status == 200);
    }
    assert_eq!(pool(&friend)["state"], "running", "nobody has steered it");
    let host = format!("http://127.0.0.1:{}", stranger.port());
    let refused = scene.site.ganger(&["status", "--host", &host]).bad(1);
    assert!(refused.contains("Authorization: Bearer"), "{refused}");
    let token = [
        "status",
        "--host",
        &host,
        "--token-file",
        file.to_str().unwrap(),
    ];
    scene.site.ganger(&token).good();
    // On this machine commands go over the socket.
    command(&scene, &["status"]).good();
    scene.finish();
    assert!(!file.exists());
}

fn a_made_token_stays_as_long_as_a_daemon_answers_at_the_socket() {
    let site = site(r#"socket = "shared.sock""#);
    let other = || Pool::new(&[]).text("name", "other").text("queue", "other");
    let old = site.start(&[Pool::new(&[])]);
    let file = socket(&old).with_extension("token");
    let new = site.start(&[other()]);
    for daemon in [&old, &new] {
        assert_eq!(api(daemon).get("/v1/status").status, 200);
    }
    old.stop();
    assert_eq!(api(&new).get("/v1/status").status, 200);
    std::fs::remove_file(&file).unwrap();
    new.eventually("the token to be there again", || file.exists());
    assert_eq!(api(&new).get("/v1/status").status, 200);
    new.stop();
    assert!(!file.exists());
}

fn readiness_names_no_pool_without_the_token() {
    let site = site("[telemetry]\nlisten = \"127.0.0.1:0\"");
    let program = Pool::of_program("/nonexistent/program", &[]).text("name", "billing");
    let scene = Scene::at(site, &[program]);
    let telemetry = scene
        .daemon
        .logs("listening", |record| record["key"] == "telemetry.listen");
    let telemetry = telemetry["address"].as_str().unwrap();
    let telemetry = Api::Port(telemetry.rsplit_once(':').unwrap().1.parse().unwrap());
    let friend = api(&scene.daemon);
    scene.daemon.eventually("it fails", || {
        friend
            .get("/readyz")
            .body
            .contains("pool `billing` keep failing")
    });
    for stranger in [open(&scene.daemon), telemetry] {
        let health = stranger.get("/readyz");
        assert_eq!(health.status, 503);
        let reasons = &health.json()["reasons"];
        assert_eq!(reasons, &json!(["pools whose workers keep failing: 1"]));
    }
    scene.daemon.signal(nix::sys::signal::Signal::SIGTERM);
    scene.daemon.exit();
}

/// The path and the code of the URL that `ganger open` prints, and where it leads.
fn login(scene: &Scene) -> String {
    let url = command(scene, &["open", "--print"]).good();
    let port = open(&scene.daemon).port();
    let path = url.trim().strip_prefix(&format!("http://127.0.0.1:{port}"));
    path.unwrap_or_else(|| panic!("{url}")).to_owned()
}

fn a_login_is_good_once() {
    let scene = scene(Pool::new(&[]));
    let browser = open(&scene.daemon);
    let path = login(&scene);
    let page = browser.get(&path);
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("url=/ui\""), "{page:?}");
    let cookie = page
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.unwrap();
    for part in ["; httponly", "; samesite=strict", "; max-age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    for spent in [&path, "/ui/login?code=guessed"] {
        let answer = browser.get(spent);
        assert_eq!(answer.status, 401, "{answer:?}");
        assert!(!answer.head.contains("set-cookie"), "{answer:?}");
    }
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let with = |method, path, more: &[&str]| {
        browser.ask(method, path, &[&[cookie.as_str()], more].concat(), "")
    };
    let home = with("GET", "/ui", &[]);
    assert!(
        home.head
            .contains("content-security-policy: default-src 'none'"),
        "{home:?}"
    );
    assert_eq!(with("GET", "/v1/status", &[]).status, 200);
    let pause = "/v1/pools/work/pause";
    with("POST", pause, &[]).problem(403);
    with("POST", pause, &["Origin: http://localhost:8000"]).problem(403);
    assert_eq!(
        with("POST", pause, &["Sec-Fetch-Site: same-origin"]).status,
        200
    );
    browser.ask("POST", pause, &[], "").problem(401);
    scene.finish();
}

/// The browser is a script, which shows with what it was called.
fn a_browser_is_opened_at_a_page_of_its_user() {
    let scene = scene(Pool::new(&[]));
    let script = "#!/bin/sh\nstat -c %a \"$1\" > opened\ncat \"$1\" >> opened\n";
    scene.site.put("xdg-open", script, true);
    let path = std::env::var("PATH").unwrap();
    let own = scene.site.path("");
    let own = own.to_str().unwrap().trim_end_matches('/');
    let (path, runtime) = (
        format!("PATH={own}:{path}"),
        format!("XDG_RUNTIME_DIR={own}"),
    );
    let config = scene.daemon.config().to_str().unwrap();
    let args = [&path, &runtime, PROGRAM, "open", "--config", config];
    let ran = scene.site.ganger_of("env", &args, b"");
    assert_eq!(ran.good(), "");
    let opened = std::fs::read_to_string(scene.site.path("opened")).unwrap();
    let url = format!(
        "0; url=http://127.0.0.1:{}/ui/login?code=",
        open(&scene.daemon).port()
    );
    assert!(
        opened.starts_with("600\n") && opened.contains(&url),
        "{opened}"
    );
    scene.site.put("xdg-open", "#!/bin/sh\nexit 3\n", true);
    let ran = scene.site.ganger_of("env", &args, b"");
    assert!(ran.err.contains("xdg-open failed"), "{ran:?}");
    assert!(ran.err.contains("Open this URL"), "{ran:?}");
    assert!(ran.good().starts_with("http://127.0.0.1:"));
    scene.finish();
}

fn bad_requests_are_told_what_would_be_right() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    let told = api.post("/v1/pools/nobody/pause", "").problem(404);
    assert_eq!(told, "there is no pool `nobody`; the pools are: work");
    let told = api
        .post("/v1/pools/work/scale", r#"{"workers": 5000}"#)
        .problem(409);
    assert!(told.contains("0..=1024"), "{told}");
    for body in [r#"{"workers": "two"}"#, r#"{"count": 2}"#, "{}", "{"] {
        let status = api.post("/v1/pools/work/scale", body).status;
        assert!((400..=422).contains(&status), "{status} for {body}");
    }
    assert!(api.get("/v2/status").problem(404).contains("/openapi.json"));
    api.ask("DELETE", "/v1/status", &[], "").problem(405);
    let large = format!(r#"{{"workers": {}}}"#, "1".repeat(9 << 20));
    assert_eq!(api.post("/v1/pools/work/scale", &large).status, 413);
    let told = api
        .ask("GET", "/v1/events", &["Last-Event-ID: last"], "")
        .problem(400);
    assert!(told.contains("id of an event"), "{told}");
    let document = api.get("/openapi.json").json();
    assert_eq!(document["info"]["title"], json!("ganger"));
    scene.finish();
}

fn a_daemon_that_is_not_there_is_said_to_be() {
    let site = site("");
    let missing = site.ganger(&["status"]).bad(2);
    assert!(
        missing.contains("--config") && missing.contains("--host"),
        "{missing}"
    );
    site.configure_commands(&[Pool::new(&[])]);
    let silent = site.ganger(&["status"]).bad(1);
    assert!(silent.contains("no daemon answers at"), "{silent}");
    assert!(silent.contains("ganger.sock"), "{silent}");
    let far = site
        .ganger(&["status", "--host", "https://10.0.0.7"])
        .bad(2);
    assert!(far.contains("http://HOST:PORT"), "{far}");
}

fn telemetry_has_a_listener_of_its_own() {
    let site = site("token = \"s3cret\"\n[telemetry]\nlisten = \"127.0.0.1:0\"");
    let scene = Scene::at(site, &[Pool::new(&[])]);
    let listening = scene
        .daemon
        .logs("listening", |record| record["key"] == "telemetry.listen");
    let address = listening["address"].as_str().unwrap().to_owned();
    let open = Api::Port(address.rsplit_once(':').unwrap().1.parse().unwrap());
    scene
        .daemon
        .eventually("it is ready", || open.get("/readyz").status == 200);
    for path in ["/metrics", "/livez", "/readyz"] {
        let answer = open.ask("GET", path, &["Host: 10.0.0.7"], "");
        assert_eq!(answer.status, 200, "{path} {answer:?}");
    }
    open.get("/v1/status").problem(404);
    super::open(&scene.daemon).get("/metrics").problem(401);
    assert_eq!(command(&scene, &["health", "--ready"]).good(), "ok\n");
    scene.finish();
}

fn a_dashboard_that_is_off_serves_no_page() {
    let site = site("ui = false");
    let scene = Scene::at(site, &[Pool::new(&[])]);
    let api = api(&scene.daemon);
    let html = ["Accept: text/html"];
    for path in ["/ui", "/ui/pools/work", "/ui/audit", "/ui/nothing"] {
        for headers in [&[][..], &html] {
            let answer = api.ask("GET", path, headers, "");
            assert_eq!(answer.status, 404, "{path} {answer:?}");
        }
    }
    let why = api.get("/ui").problem(404);
    assert_eq!(why, "the dashboard is off: `ui = false` in [admin]");
    assert_eq!(api.get("/v1/status").status, 200);
    assert_eq!(api.post("/v1/pools/work/pause", "").status, 200);
    let config = scene.daemon.config();
    let text = std::fs::read_to_string(config).unwrap();
    std::fs::write(config, text.replace("ui = false", "ui = true")).unwrap();
    command(&scene, &["reload", "--wait"]).good();
    assert!(api.get("/ui/pools/work").body.contains("<html"));
    scene.finish();
}
