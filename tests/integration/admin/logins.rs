//! Logins of browsers and their sessions, and users whom a proxy names.

use std::io::Write;
use std::net::TcpStream;

use super::tokens::{FORM, enter, header, made, reload, scene, scene_at, session, with};
use super::{api, command, open};
use crate::harness::{Scene, trials};

trials![
    a_login_form_takes_a_token,
    a_login_leads_to_our_own_pages_only,
    logins_of_strangers_hold_up_nobody,
    a_session_ends_with_its_streams,
    without_a_dashboard_there_are_no_logins,
    a_browser_is_told_why_it_would_keep_no_session,
    a_page_leads_to_the_login,
    a_trusted_proxy_names_its_user,
];

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
