//! Permissions: named tokens and their roles, the sessions of browsers, and users whom a proxy names.

use std::io::Write;
use std::net::TcpStream;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{api, command, open, site, socket};
use crate::harness::{Answer, Api, Pool, Scene, said, trials};
use crate::ledger::{schedule, trigger};

trials![
    a_token_is_made_and_its_section_loads,
    a_role_allows_what_it_says,
    forms_need_the_role_of_what_they_do,
    a_token_is_refused_once_it_has_expired,
    a_reload_revokes_tokens_sessions_and_streams,
    changes_are_recorded_with_the_name_of_the_token,
    a_login_form_takes_a_token,
    a_login_leads_to_our_own_pages_only,
    parts_of_messages_are_hidden_from_viewers,
    logins_of_strangers_hold_up_nobody,
    a_session_ends_with_its_streams,
    changes_are_logged_with_their_author,
    without_a_dashboard_there_are_no_logins,
    a_browser_is_told_why_it_would_keep_no_session,
    a_page_leads_to_the_login,
    a_trusted_proxy_names_its_user,
];

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
const OWN_ORIGIN: &str = "Origin: http://localhost";

/// A token, and its section of the configuration.
struct Made {
    token: String,
    section: String,
}

/// Makes a token with the command.
fn made(name: &str, role: &str) -> Made {
    let ran = site("").ganger(&["token", "new", name, "--role", role, "-o", "json"]);
    let made = ran.json();
    let of = |key: &str| made[key].as_str().unwrap().to_owned();
    let sha256 = of("sha256");
    let section =
        format!("[[admin.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n");
    Made {
        token: of("token"),
        section,
    }
}

fn pool(sections: &str) -> Pool {
    Pool::new(&[]).after(sections)
}

/// A daemon whose configuration has those sections.
fn scene(sections: &str) -> Scene {
    scene_at("", sections)
}

/// Likewise, with lines under `[admin]`.
fn scene_at(admin: &str, sections: &str) -> Scene {
    let scene = Scene::at(site(admin), &[pool(sections)]);
    scene.site.configure_commands(&[pool(sections)]);
    scene
}

fn reload(scene: &Scene, sections: &str) {
    let times = scene.daemon.times_logged("configuration reloaded");
    scene.site.reconfigure(&scene.daemon, &[pool(sections)]);
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.eventually("the reload", || {
        scene.daemon.times_logged("configuration reloaded") > times
    });
}

fn with(scene: &Scene, token: &str) -> Api {
    Api::Authorized {
        port: open(&scene.daemon).port(),
        token: token.to_owned(),
    }
}

fn a_token_is_made_and_its_section_loads() {
    let site = site("");
    let args = [
        "token",
        "new",
        "ops",
        "--role",
        "operator",
        "--expires",
        "90d",
    ];
    let text = site.ganger(&args).good();
    let (head, section) = text.split_once("[[admin.tokens]]").unwrap();
    let token = head.lines().next().unwrap().rsplit(' ').next().unwrap();
    let section = format!("[[admin.tokens]]{section}");
    assert!(!section.contains(token), "{text}");
    assert!(section.contains("expires = \"20"), "{text}");
    let scene = scene(&section);
    assert_eq!(with(&scene, token).get("/v1/status").status, 200);
    let printed = command(&scene, &["config", "print"]).good();
    assert!(!printed.contains(token), "{printed}");
    scene.finish();
    let ran = site.ganger(&["token", "new", "a b"]).bad(2);
    assert!(ran.contains("the name must be"), "{ran}");
    let ran = site.ganger(&["token", "new", "a", "--role", "root"]).bad(2);
    assert!(ran.contains("operator"), "{ran}");
}

fn a_role_allows_what_it_says() {
    let [viewer, operator, admin] = ["viewer", "operator", "admin"].map(|role| made(role, role));
    let sections = [&viewer, &operator, &admin].map(|made| made.section.as_str());
    let scene = scene(&sections.concat());
    assert!(!socket(&scene.daemon).with_extension("token").exists());
    let table = [
        ("GET", "/v1/status", "", "viewer"),
        ("GET", "/v1/dead/main", "", "viewer"),
        ("GET", "/v1/queues/work/messages", "", "viewer"),
        ("GET", "/openapi.json", "", "viewer"),
        ("GET", "/ui", "", "viewer"),
        ("GET", "/ui/config", "", "viewer"),
        ("GET", "/v1/events/recent", "", "viewer"),
        ("GET", "/v1/config", "", "admin"),
        ("POST", "/v1/pools/work/pause", "", "operator"),
        ("POST", "/v1/pools/work/resume", "", "operator"),
        (
            "POST",
            "/v1/pools/work/scale",
            r#"{"workers": 1}"#,
            "operator",
        ),
        (
            "POST",
            "/v1/queues/work/messages",
            r#"{"body": "one"}"#,
            "operator",
        ),
        ("DELETE", "/v1/dead/main", "", "operator"),
        ("POST", "/v1/reload", "", "admin"),
        ("POST", "/v1/logins", "", "admin"),
        ("POST", "/v1/log-level", r#"{"level": "info"}"#, "admin"),
        ("PUT", "/v1/schedules/a", "{}", "admin"),
    ];
    let roles = ["viewer", "operator", "admin"];
    let rank = |role: &str| roles.iter().position(|one| *one == role);
    for (method, path, body, needs) in table {
        for made in [&viewer, &operator, &admin] {
            let api = with(&scene, &made.token);
            let answer = api.ask(method, path, &[], body);
            let own = roles
                .iter()
                .find(|role| made.section.contains(&format!("\"{role}\"")));
            let own = *own.unwrap();
            if rank(own) >= rank(needs) {
                assert_ne!(answer.status, 403, "{own} {method} {path} {answer:?}");
                assert_ne!(answer.status, 401, "{own} {method} {path}");
            } else {
                let why = answer.problem(403);
                let expected = format!("; this needs {needs}");
                assert!(why.starts_with(&format!("token {own} is a")), "{why}");
                assert!(why.ends_with(&expected), "{why}");
            }
        }
    }
    let api = with(&scene, &viewer.token);
    api.ask("POST", "/v1/nowhere", &[], "").problem(404);
    let document = api.get("/openapi.json").json();
    assert_eq!(document["paths"]["/v1/reload"]["post"]["x-role"], "admin");
    scene.all_done();
    scene.finish();
}

/// As browsers send them.
fn forms_need_the_role_of_what_they_do() {
    let roles = ["viewer", "operator", "admin"];
    let made = roles.map(|role| made(role, role));
    let scene = scene(&made.each_ref().map(|made| made.section.as_str()).concat());
    let form = [
        FORM,
        OWN_ORIGIN,
        "Sec-Fetch-Site: same-origin",
        "Accept: text/html",
    ];
    let letters = || with(&scene, &made[0].token).get("/v1/dead/main").json()["letters"].clone();
    scene.send(&["mode:answer:400 1", "mode:answer:400 2"]);
    scene.daemon.eventually("both to be dead", || {
        letters().as_array().unwrap().len() == 2
    });
    for (role, made) in roles.iter().zip(&made) {
        let letter = letters()[0]["id"].as_str().unwrap().to_owned();
        for (path, fields) in [
            (
                "/ui/queues/work/send?source=main".to_owned(),
                format!("body=sent+by+{role}"),
            ),
            (
                format!("/ui/dead/main/{letter}/edit"),
                format!("body=edited+by+{role}&step=send"),
            ),
            (
                "/ui/do/post/v1/pools/work/pause".to_owned(),
                "reason=x".to_owned(),
            ),
            ("/ui/do/post/v1/pools/work/resume".to_owned(), String::new()),
        ] {
            let answer = with(&scene, &made.token).ask("POST", &path, &form, &fields);
            let expected = if *role == "viewer" { 403 } else { 303 };
            assert_eq!(answer.status, expected, "{role} {path} {answer:?}");
        }
    }
    scene.all_done();
    let bodies = ["operator", "admin"]
        .map(|role| ["sent", "edited"].map(|what| format!("{what} by {role}")));
    scene.record().assert_done_once(&bodies.concat());
    scene.finish();
}

fn a_token_is_refused_once_it_has_expired() {
    let (old, good) = (made("old", "admin"), made("good", "viewer"));
    let expired = format!("{}expires = \"2001-02-03T04:05:06Z\"\n", old.section);
    let scene = scene(&(expired + &good.section));
    let why = with(&scene, &old.token).get("/v1/status").problem(401);
    assert_eq!(why, "token old has expired, at 2001-02-03T04:05:06Z");
    assert_eq!(with(&scene, &good.token).get("/v1/status").status, 200);
    let warned = scene.site.ganger(&["check"]);
    let all = format!("{}{}", warned.out, warned.err);
    assert!(all.contains("admin.tokens.old has expired"), "{all}");
    scene.finish();
}

/// Logs in with the form: the answer.
fn enter(scene: &Scene, token: &str, next: &str) -> Answer {
    let body = format!("token={token}&next={next}");
    open(&scene.daemon).ask("POST", "/ui/login", &[FORM, OWN_ORIGIN], &body)
}

fn header(answer: &Answer, name: &str) -> String {
    let start = format!("{name}: ");
    let mut lines = answer.head.lines();
    let found = lines.find_map(|line| line.strip_prefix(&start));
    found
        .unwrap_or_else(|| panic!("no {name}: {answer:?}"))
        .to_owned()
}

/// The header with the session of an answer.
fn session(answer: &Answer) -> String {
    let cookie = header(answer, "set-cookie");
    format!("Cookie: {}", cookie.split(';').next().unwrap())
}

fn a_reload_revokes_tokens_sessions_and_streams() {
    let (kept, gone) = (made("kept", "operator"), made("gone", "operator"));
    let scene = scene(&(kept.section.clone() + &gone.section));
    let browser = open(&scene.daemon);
    let cookies = [&kept, &gone].map(|made| session(&enter(&scene, &made.token, "")));
    let statuses = || {
        let by_token =
            [&kept, &gone].map(|made| with(&scene, &made.token).get("/v1/status").status);
        let asked = |cookie: &String| browser.ask("GET", "/v1/status", &[cookie], "").status;
        (by_token, cookies.each_ref().map(asked))
    };
    assert_eq!(statuses(), ([200, 200], [200, 200]));
    let mut stream = with(&scene, &gone.token).events(None);
    assert!(stream.is_served());
    reload(&scene, &kept.section);
    assert_eq!(statuses(), ([200, 401], [200, 401]));
    stream.ends();
    let viewer = kept.section.replace("operator", "viewer");
    reload(&scene, &viewer);
    let pause = ["Sec-Fetch-Site: same-origin", &cookies[0]];
    let why = browser
        .ask("POST", "/v1/pools/work/pause", &pause, "")
        .problem(403);
    assert_eq!(why, "token kept is a viewer; this needs operator");
    // Without named tokens there is none: the daemon has started with some.
    reload(&scene, "");
    assert_eq!(statuses(), ([401, 401], [401, 401]));
    let socket = Api::Socket(socket(&scene.daemon));
    assert_eq!(socket.get("/v1/status").status, 200);
    scene.finish();
}

fn changes_are_recorded_with_the_name_of_the_token() {
    let ops = made("ops", "admin");
    let schedule = "[[schedules]]\nname = \"a\"\ncron = \"0 0 1 1 *\"\nqueue = \"work\"\n";
    let scene = scene(&(ops.section.clone() + schedule));
    let api = with(&scene, &ops.token);
    let path = "/v1/schedules/a/pause";
    scene.daemon.eventually("the schedule", || {
        api.post(path, r#"{"reason": "one"}"#).status == 200
    });
    let cookie = session(&enter(&scene, &ops.token, ""));
    let same = "Sec-Fetch-Site: same-origin";
    let resumed = open(&scene.daemon).ask("POST", "/v1/schedules/a/resume", &[&cookie, same], "");
    assert_eq!(resumed.status, 200, "{resumed:?}");
    let changes = api.get("/v1/audit?subject=a").json();
    let actors = changes.as_array().unwrap().iter().map(|one| &one["actor"]);
    let actors: Vec<&Value> = actors.collect();
    assert_eq!(actors, [&json!("token ops"), &json!("token ops")]);
    let logged = scene.daemon.records(|record| record["by"] == "token ops");
    assert!(logged.len() >= 3, "{logged:?}");
    scene.finish();
}

fn a_login_form_takes_a_token() {
    let ops = made("ops", "operator");
    let scene = scene(&ops.section);
    let browser = open(&scene.daemon);
    let form = browser.get("/ui/login?next=/ui/pools%3Fa=%22%3E%3Cscript%3E");
    assert_eq!(form.status, 200);
    for part in ["name=\"token\"", "value=\"/ui/pools?a=%22%3E%3Cscript%3E\""] {
        assert!(form.body.contains(part), "{form:?}");
    }
    assert!(form.head.contains("form-action 'self'"), "{form:?}");
    for token in ["wrong", "", "%3Cscript%3E"] {
        let refused = enter(&scene, token, "");
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(
            refused.body.contains("this token is unknown"),
            "{refused:?}"
        );
        assert!(!refused.body.contains("ops"), "no names: {refused:?}");
    }
    let entered = enter(&scene, &ops.token, "/ui/pools?a=b");
    assert_eq!(entered.status, 303, "{entered:?}");
    assert_eq!(header(&entered, "location"), "/ui/pools?a=b");
    let cookie = header(&entered, "set-cookie");
    for part in ["; httponly", "; samesite=strict", "; max-age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("; secure"), "{cookie}");
    let cookie = session(&entered);
    let home = browser.ask("GET", "/ui", &[&cookie], "");
    assert!(home.body.contains("token ops, operator"), "{home:?}");
    // Another site can't log a browser in, or out.
    let body = format!("token={}", ops.token);
    for origin in ["Origin: https://evil.example", "Origin: null", "X-None: x"] {
        let refused = browser.ask("POST", "/ui/login", &[FORM, origin], &body);
        assert!(refused.problem(403).contains("must pass on Host"));
        browser
            .ask("POST", "/ui/logout", &[&cookie, origin], "")
            .problem(403);
    }
    let host = "Host: ganger.example";
    let origin = "Origin: https://ganger.example";
    let afar = browser.ask("POST", "/ui/login", &[FORM, host, origin], &body);
    assert!(header(&afar, "set-cookie").contains("; secure"), "{afar:?}");
    let same = "Sec-Fetch-Site: same-origin";
    let left = browser.ask("POST", "/ui/logout", &[&cookie, same], "");
    assert_eq!(
        (left.status, header(&left, "location")),
        (303, "/ui/login".to_owned())
    );
    assert!(header(&left, "set-cookie").contains("max-age=0"));
    browser
        .ask("GET", "/v1/status", &[&cookie], "")
        .problem(401);
    scene.finish();
}

fn a_login_leads_to_our_own_pages_only() {
    let ops = made("ops", "operator");
    let scene = scene(&ops.section);
    for (next, expected) in [
        ("/ui/dead", "/ui/dead"),
        ("//evil", "/ui"),
        ("///evil/ui/", "/ui"),
        ("https://evil", "/ui"),
        ("https://evil/ui/", "/ui"),
        ("/ui/../v1", "/ui"),
        ("/ui/%252e%252e/v1", "/ui"),
        ("/%5Cevil/ui/", "/ui"),
        ("/ui/%0D%0Aset-cookie:a=b", "/ui/set-cookie:a=b"),
        ("javascript:alert(1)", "/ui"),
    ] {
        let entered = enter(&scene, &ops.token, next);
        assert_eq!(header(&entered, "location"), expected, "{next}");
    }
    scene.finish();
}

fn parts_of_messages_are_hidden_from_viewers() {
    let [viewer, operator] = ["viewer", "operator"].map(|role| made(role, role));
    let keys = "at = \"2100-01-01T00:00:00\"\nbody = \"mode:print:{\\\"card\\\":4111}\"";
    let sections = format!(
        "{}{}{}",
        viewer.section,
        operator.section,
        schedule("logs", keys)
    );
    let redact = "redact = [\"$..card\", \"x-key\"]";
    let pools = [Pool::new(&["--v2=1", "--mode=die:exit:3"])
        .attempts(1)
        .after(&sections)];
    let scene = Scene::at(site(redact), &pools);
    scene.site.configure_commands(&pools);
    let dead = r#"{"body": "{\"card\": 4111, \"mode\": \"none\"}", "headers": {"x-key": "4111", "x-shop": "7"}}"#;
    let [viewer, operator] = [&viewer, &operator].map(|made| with(&scene, &made.token));
    assert_eq!(operator.post("/v1/queues/work/messages", dead).status, 200);
    // Of one that is cut nothing can be taken out, and one is no text.
    let cut = json!({ "body": format!("{{\"card\": 4111, \"pad\": \"{}\"}}", "x".repeat(5000)) });
    let binary = json!({ "body_base64": "/zQxMTE=" });
    for (queue, message) in [
        ("whole", dead),
        ("cut", &cut.to_string()),
        ("binary", &binary.to_string()),
        ("work", &binary.to_string()),
    ] {
        let path = format!("/v1/queues/{queue}/messages");
        assert_eq!(operator.post(&path, message).status, 200);
    }
    scene.daemon.entered();
    trigger(&scene.site, "logs");
    scene.daemon.eventually("the end of all", || {
        scene.table.dead().len() == 2
            && viewer
                .get("/v1/occurrences?state=completed")
                .body
                .contains("logs")
    });
    let run = viewer.get("/v1/occurrences").json()["occurrences"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let letters = operator.get("/v1/dead/main").json()["letters"].clone();
    let mut letters = letters.as_array().unwrap().iter();
    let is_binary = |letter: &&Value| letter["body_base64"] == binary["body_base64"];
    let dead_binary = letters.find(is_binary).unwrap()["id"].as_str().unwrap();
    let paths = [
        "/v1/dead/main".to_owned(),
        format!("/ui/dead/main/{dead_binary}"),
        "/ui/dead/main".to_owned(),
        "/v1/queues/whole/messages".to_owned(),
        "/v1/queues/cut/messages".to_owned(),
        "/ui/queues/whole".to_owned(),
        "/ui/queues/cut".to_owned(),
        "/ui/queues/binary".to_owned(),
        "/v1/schedules/logs".to_owned(),
        "/ui/schedules/logs".to_owned(),
        format!("/v1/occurrences/{run}/log"),
        format!("/v1/occurrences/{run}/log?follow"),
        format!("/ui/occurrences/{run}"),
    ];
    for path in paths {
        let [shown, whole] = [&viewer, &operator].map(|api| api.get(&path));
        assert_eq!((shown.status, whole.status), (200, 200), "{path} {shown:?}");
        assert!(whole.body.contains("4111"), "{path} {whole:?}");
        assert!(!shown.body.contains("4111"), "{path} {shown:?}");
        assert!(shown.body.contains("(hidden)"), "{path} {shown:?}");
    }
    scene.finish();
}

fn logins_of_strangers_hold_up_nobody() {
    let ops = made("ops", "operator");
    let scene = scene(&ops.section);
    let browser = open(&scene.daemon);
    // As many as there are places, each with a body that never comes.
    let slow = "POST /ui/login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\
                Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ntoken=";
    let mut strangers = Vec::new();
    scene.daemon.eventually("all places to be taken", || {
        let mut stranger = TcpStream::connect(("127.0.0.1", browser.port())).unwrap();
        stranger.write_all(slow.as_bytes()).unwrap();
        strangers.push(stranger);
        enter(&scene, &ops.token, "").status == 503
    });
    assert_eq!(with(&scene, &ops.token).get("/v1/status").status, 200);
    let url = command(&scene, &["open", "--print"]).good();
    let (_, path) = url.trim().split_once("/ui/").unwrap();
    let page = browser.get(&format!("/ui/{path}"));
    assert_eq!(page.status, 200, "{page:?}");
    drop(strangers);
    scene
        .daemon
        .eventually("a login", || enter(&scene, &ops.token, "").status == 303);
    let long = "x".repeat(5000);
    assert_eq!(enter(&scene, &long, "").status, 413);
    scene.finish();
}

fn a_session_ends_with_its_streams() {
    let ops = made("ops", "operator");
    let scene = scene(&ops.section);
    let browser = open(&scene.daemon);
    let [own, others] = [(); 2].map(|()| session(&enter(&scene, &ops.token, "")));
    let mut streams = [&own, &others].map(|cookie| browser.events_with(Some(cookie)));
    assert!(streams.iter_mut().all(|stream| stream.is_served()));
    let same = "Sec-Fetch-Site: same-origin";
    let left = browser.ask("POST", "/ui/logout", &[&own, same], "");
    assert_eq!(left.status, 303, "{left:?}");
    let [ended, goes_on] = streams;
    ended.ends();
    assert_eq!(browser.ask("GET", "/v1/status", &[&others], "").status, 200);
    drop(goes_on);
    // One that has ended before leads to the login as well.
    let again = browser.ask("POST", "/ui/logout", &[&own, same], "");
    assert_eq!(header(&again, "location"), "/ui/login");
    scene.finish();
}

/// Changes that the ledger has recorded, but those of the configuration.
fn recorded(api: &Api) -> Vec<String> {
    let audit = api.get("/v1/audit").json();
    let of = |change: &Value| {
        let of = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
        let (actor, action, subject) = (of("actor"), of("action"), of("subject"));
        let detail = &change["detail"];
        let (asked, before) = (&detail["asked"], &detail["before"]["workers_wanted"]);
        let after = &detail["answered"]["workers"];
        format!("{actor} {action} {subject} {asked} {before} {after}")
    };
    let changes = audit.as_array().unwrap().iter();
    let changes = changes.filter(|one| one["actor"] != "the configuration");
    let mut changes: Vec<String> = changes.map(of).collect();
    changes.sort();
    changes
}

fn changes_are_logged_with_their_author() {
    let ops = made("ops", "operator");
    let nightly = schedule("nightly", "cron = \"0 0 1 1 *\"");
    let scene = scene(&(ops.section.clone() + &nightly));
    scene.daemon.entered();
    let api = with(&scene, &ops.token);
    assert_eq!(api.post("/v1/pools/work/pause", "{}").status, 200);
    let cookie = session(&enter(&scene, &ops.token, ""));
    let headers = [&cookie, "Sec-Fetch-Site: same-origin", FORM];
    let resumed = open(&scene.daemon).ask("POST", "/ui/do/post/v1/pools/work/resume", &headers, "");
    assert_eq!(resumed.status, 200, "{resumed:?}");
    api.post("/v1/queues/work/messages", r#"{"body": "one"}"#);
    api.post("/v1/reload", "{}").problem(403);
    command(&scene, &["scale", "work", "2"]).good();
    let login = command(&scene, &["open", "--print"]).good();
    let changes = || {
        let logged = scene
            .daemon
            .records(|record| said(record, "change through the admin API"));
        let of = |record: &Value, key: &str| record[key].to_string().trim_matches('"').to_owned();
        let shown = |record: &Value| {
            ["by", "role", "method", "path", "status"]
                .map(|key| of(record, key))
                .join(" ")
        };
        logged.iter().map(shown).collect::<Vec<_>>()
    };
    let uid = nix::unistd::Uid::effective();
    assert_eq!(
        changes(),
        [
            "token ops operator POST /v1/pools/work/pause 200".to_owned(),
            "token ops operator POST /v1/pools/work/resume 200".to_owned(),
            format!("uid {uid} on the socket admin POST /v1/pools/work/scale 200"),
            format!("uid {uid} on the socket admin POST /v1/logins 200"),
        ]
    );
    // In the ledger is what was changed, and how.
    let expected = [
        "token ops pause pools/work {} 1 null".to_owned(),
        "token ops resume pools/work {} 1 null".to_owned(),
        format!("uid {uid} on the socket create logins null null null"),
        format!("uid {uid} on the socket scale pools/work {{\"workers\":2}} 1 2"),
    ];
    scene
        .daemon
        .eventually("the record", || recorded(&api).len() == 4);
    assert_eq!(recorded(&api), expected);
    let code = login.trim().split_once("code=").unwrap().1;
    let audit = api.get("/v1/audit").json().to_string();
    assert!(!audit.contains(code), "{audit}");
    scene.all_done();
    scene.finish();
}

fn without_a_dashboard_there_are_no_logins() {
    let ops = made("ops", "operator");
    let scene = scene_at("ui = false", &ops.section);
    let browser = open(&scene.daemon);
    let off = "the dashboard is off";
    for path in ["/", "/ui", "/ui/", "/ui/dead", "/ui/login"] {
        let answer = with(&scene, &ops.token).get(path);
        assert!(answer.problem(404).contains(off), "{path}");
    }
    assert!(enter(&scene, &ops.token, "").problem(404).contains(off));
    let form = with(&scene, &ops.token).post("/ui/do/post/v1/pools/work/pause", "");
    form.problem(404);
    assert!(command(&scene, &["open", "--print"]).bad(1).contains(off));
    assert_eq!(with(&scene, &ops.token).get("/v1/status").status, 200);
    let html = "Accept: text/html";
    let led = browser.ask("GET", "/", &[html], "");
    assert_eq!(header(&led, "location"), "/ui/login?next=%2f");
    scene.finish();
}

fn a_browser_is_told_why_it_would_keep_no_session() {
    let ops = made("ops", "operator");
    let body = format!("token={}", ops.token);
    let enter = |scene: &Scene| {
        let (host, origin) = ("Host: 10.0.0.7:9464", "Origin: http://10.0.0.7:9464");
        open(&scene.daemon).ask("POST", "/ui/login", &[FORM, host, origin], &body)
    };
    let other = scene(&ops.section);
    let refused = enter(&other);
    other.finish();
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(
        refused.body.contains("sent without encryption"),
        "{refused:?}"
    );
    assert!(!refused.head.contains("set-cookie"), "{refused:?}");
    let scene = scene_at("public_url = \"http://10.0.0.7:9464\"", &ops.section);
    let entered = enter(&scene);
    let cookie = header(&entered, "set-cookie");
    assert!(
        cookie.starts_with("ganger_session_9464=") && !cookie.contains("secure"),
        "{cookie}"
    );
    let url = command(&scene, &["open", "--print"]).good();
    assert!(
        url.starts_with("http://10.0.0.7:9464/ui/login?code="),
        "{url}"
    );
    let spent = open(&scene.daemon).get("/ui/login?code=spent&next=/ui/dead");
    assert_eq!(spent.status, 401, "{spent:?}");
    for part in [
        "was used or has expired",
        "name=\"token\"",
        "value=\"/ui/dead\"",
    ] {
        assert!(spent.body.contains(part), "{spent:?}");
    }
    scene.finish();
}

fn a_page_leads_to_the_login() {
    let scene = scene("");
    let browser = open(&scene.daemon);
    let html = "Accept: text/html,application/xhtml+xml";
    let led = browser.ask("GET", "/ui/pools?a=b&c", &[html], "");
    assert_eq!(led.status, 303);
    let location = header(&led, "location");
    assert_eq!(location, "/ui/login?next=%2fui%2fpools%3fa%3db%26c");
    let form = browser.get(&location);
    assert!(
        form.body.contains("value=\"/ui/pools?a=b&amp;c\""),
        "{form:?}"
    );
    browser.get("/ui").problem(401);
    browser.ask("GET", "/v1/status", &[html], "").problem(401);
    let same = "Sec-Fetch-Site: same-origin";
    let left = browser.ask("POST", "/ui/logout", &[html, same], "");
    assert_eq!(header(&left, "location"), "/ui/login");
    let token = api(&scene.daemon).token().unwrap().to_owned();
    assert_eq!(enter(&scene, &token, "").status, 303, "the generated token");
    scene.finish();
}

fn a_trusted_proxy_names_its_user() {
    let proxy = |from: &str| {
        format!(
            "[admin.proxy_auth]\nheader = \"X-Forwarded-User\"\nfrom = [\"{from}\"]\nrole = \"operator\"\n\
             role_header = \"X-Role\"\n"
        )
    };
    let scene = scene_at(
        "public_url = \"https://ganger.example\"",
        &proxy("127.0.0.0/8"),
    );
    let browser = open(&scene.daemon);
    let (user, same) = ("X-Forwarded-User: ann", "Sec-Fetch-Site: same-origin");
    for (host, status) in [("Host: ganger.example", 200), ("Host: evil.example", 403)] {
        let answer = browser.ask("GET", "/v1/status", &[user, host], "");
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let pause = |headers: &[&str]| browser.ask("POST", "/v1/pools/work/pause", headers, "");
    assert_eq!(browser.ask("GET", "/v1/status", &[user], "").status, 200);
    assert_eq!(pause(&[user, same]).status, 200);
    pause(&[same]).problem(401);
    let why = pause(&[user]).problem(403);
    assert!(why.contains("must pass on Host"), "{why}");
    let why = pause(&[user, same, "X-Role: viewer"]).problem(403);
    assert_eq!(
        why,
        "user ann of the proxy is a viewer; this needs operator"
    );
    pause(&[user, "X-Forwarded-User: root", same]).problem(403);
    let reload_now = |headers: &[&str]| browser.ask("POST", "/v1/reload", headers, "");
    reload_now(&[user, same]).problem(403);
    assert_eq!(reload_now(&[user, same, "X-Role: admin"]).status, 200);
    let logins = browser.ask("POST", "/v1/logins", &[user, same, "X-Role: admin"], "");
    assert!(logins.problem(409).contains("the proxy logs"));
    let home = browser.ask("GET", "/ui", &[user], "");
    assert!(
        home.body.contains("user ann of the proxy, operator"),
        "{home:?}"
    );
    reload(&scene, &proxy("10.0.0.0/8"));
    browser.ask("GET", "/v1/status", &[user], "").problem(401);
    pause(&[user, same, "X-Role: admin"]).problem(401);
    scene.finish();
}
