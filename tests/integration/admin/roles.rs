//! Named tokens and their roles: what each may do and see, and the record of what was done.

use serde_json::{Value, json};

use super::tokens::{FORM, OWN_ORIGIN, enter, made, reload, scene, session, with};
use super::{command, open, site, socket};
use crate::harness::{Api, Pool, Scene, said, trials};
use crate::ledger::{schedule, trigger};

trials![
    a_token_is_made_and_its_section_loads,
    a_role_allows_what_it_says,
    forms_need_the_role_of_what_they_do,
    a_token_is_refused_once_it_has_expired,
    a_reload_revokes_tokens_sessions_and_streams,
    changes_are_recorded_with_the_name_of_the_token,
    parts_of_messages_are_hidden_from_viewers,
    changes_are_logged_with_their_author,
];

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
            let is_page = answer.head.contains("text/html");
            assert!(expected == 303 || is_page, "{role} {path} {answer:?}");
            let logged_out = open(&scene.daemon).ask("POST", &path, &form, &fields);
            assert_eq!(logged_out.status, 401, "{path} {logged_out:?}");
            assert!(
                logged_out.body.contains("your session has ended"),
                "{path} {logged_out:?}"
            );
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
    let logged = || {
        scene
            .daemon
            .records(|record| record["by"] == "token ops")
            .len()
    };
    scene.daemon.eventually("their records", || logged() >= 3);
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
    // A record is written after its answer.
    scene
        .daemon
        .eventually("their records", || changes().len() == 4);
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
