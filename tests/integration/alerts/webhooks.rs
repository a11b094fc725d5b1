//! The webhooks that alerts go to: what fails or changes there, and the forms that others take.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{
    AWAY, DEGRADED, WORKS, broken, change, degraded, keeps_the_secret, reload, scene, section,
    site, told,
};
use crate::harness::tls::{Authority, quoted};
use crate::harness::{Api, Heard, Hook, Pool, Scene, Table, Word, Workspace, field, look, trials};
use crate::servers::process::{Server, free_port};

trials![
    a_webhook_that_fails_is_asked_again,
    a_webhook_that_never_answers_is_in_nobodys_way,
    a_webhook_that_comes_later_is_told_what_is_still_so,
    what_a_webhook_refuses_is_not_sent_again,
    slack_is_told_in_its_form,
    a_reload_changes_the_webhook_and_takes_it_away,
    a_daemon_that_stops_says_that_it_looks_no_more,
    the_webhook_may_speak_tls,
    the_webhook_can_be_tried,
    each_webhook_is_sent_its_form_with_headers_and_a_signature,
    alertmanager_takes_alerts_and_their_ends,
    links_begin_with_the_url_of_the_last_reload,
];

fn a_webhook_that_fails_is_asked_again() {
    let hook = Hook::new();
    hook.says(&[Word::Status(500), Word::Status(503), Word::Wait(429, 2)]);
    let scene = degraded(&hook, "");
    hook.is_told(DEGRADED);
    let mut heard = hook.has_heard(4);
    heard.truncate(4);
    let ids: Vec<&Value> = heard.iter().map(|it| &it.body["id"]).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{heard:#?}");
    for one in &heard {
        let has = |name: &str, value: &str| {
            let mut headers = one.headers.iter();
            headers.any(|(n, v)| n == name && v.starts_with(value))
        };
        assert!(one.path.ends_with("/s3cret?key=t0ps3cret"), "{one:?}");
        assert!(
            has("content-type", "application/json") && has("user-agent", "ganger/"),
            "{one:?}"
        );
    }
    scene.daemon.logged("the webhook accepts alerts again");
    let away = scene.daemon.logged(AWAY);
    assert!(field(&away, "error").contains("500"), "{away}");
    assert_eq!(field(&away, "webhook"), hook.address().to_string());
    assert_eq!(scene.daemon.times_logged(AWAY), 1);
    scene.site.touch("up");
    hook.is_told(WORKS);
    assert_eq!(told(&hook), [DEGRADED, WORKS]);
    keeps_the_secret(&scene.daemon);
    scene.finish();
}

fn a_webhook_that_never_answers_is_in_nobodys_way() {
    const COUNT: usize = 2_000;
    let hook = Hook::new();
    hook.always_says(Word::Nothing);
    let other = Pool::new(&[]).text("name", "other").text("queue", "other");
    let pools = [
        broken().text("queue", "broken"),
        other.text("queue", "work"),
    ];
    let scene = scene(&hook, "timeout = \"1h\"", &pools);
    hook.has_heard(1);
    let bodies: Vec<String> = (0..COUNT).map(|n| format!("message {n}")).collect();
    scene.send(&bodies);
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(hook.heard().len(), 1, "one at a time");
    // Within what a test waits for an end, with all else that there is to do.
    scene.daemon.stop();
    let late = "the webhook did not accept the last alerts within 3s";
    scene.daemon.logged(late);
}

fn a_webhook_that_comes_later_is_told_what_is_still_so() {
    let gone = Hook::new();
    let (address, alerts) = (gone.address(), section(&gone, ""));
    drop(gone);
    let stays = broken().text("name", "stays").text("queue", "stays");
    let pools = [Pool::new(&["--mode=wait:go"]), stays];
    let scene = Scene::at(site(&alerts), &pools);
    let alert = |what: &str, of: &str| {
        let (what, of) = (what.to_owned(), of.to_owned());
        scene.daemon.logs(&what, |record| field(record, "of") == of)
    };
    alert("alert", "stays");
    scene.daemon.logged(AWAY);
    // Something comes and goes while nobody is there to be told.
    scene.send(&["one"]);
    scene.begun(&["one"]);
    let table = Table::open(&scene.site.path("queue.db"));
    table.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.site.touch("go");
    alert("alert", "main");
    table.0.execute_batch("COMMIT").unwrap();
    alert("alert resolved", "main");
    let hook = Hook::at(address);
    hook.is_told(DEGRADED);
    hook.is_told("firing crash_loop");
    scene.daemon.logged("the webhook accepts alerts again");
    assert_eq!(scene.daemon.times_logged(AWAY), 1);
    scene.daemon.stop();
    let told = hook.told();
    let never = |it: &String| it.ends_with("source_down");
    assert!(!told.iter().any(never), "{told:?}");
    keeps_the_secret(&scene.daemon);
}

fn what_a_webhook_refuses_is_not_sent_again() {
    for word in [Word::Status(404), Word::Elsewhere] {
        let hook = Hook::new();
        hook.says(&[word]);
        let scene = degraded(&hook, "");
        let refused = "the webhook rejected an alert, which is not sent again";
        let refused = scene.daemon.logged(refused);
        hook.has_heard(2);
        let why = if word == Word::Elsewhere {
            "redirects are not followed"
        } else {
            "404"
        };
        assert!(field(&refused, "error").contains(why), "{refused}");
        scene.site.touch("up");
        hook.is_told(WORKS);
        let heard = hook.heard();
        assert_eq!(heard[0].word, word);
        let again = heard[1..].iter().filter(|it| {
            let same = |name: &str| it.body[name] == heard[0].body[name];
            same("id") && same("state")
        });
        assert_eq!(again.count(), 0, "{heard:#?}");
        keeps_the_secret(&scene.daemon);
        scene.finish();
    }
}

fn slack_is_told_in_its_form() {
    let hook = Hook::new();
    let scene = degraded(&hook, "form = \"slack\"");
    let texts = || {
        let heard = hook.heard().into_iter();
        let texts = heard.map(|it| {
            assert_eq!(it.body.as_object().unwrap().len(), 1, "{it:?}");
            it.body["text"].as_str().unwrap().to_owned()
        });
        texts.collect::<Vec<_>>()
    };
    hook.has_heard(2);
    scene.site.touch("up");
    hook.has_heard(4);
    let texts = texts();
    for start in [
        "[firing] pool `work` is degraded: ",
        "[resolved] pool `work` was degraded: ",
        "[firing] workers of pool `work` can't start: ",
        "[resolved] workers of pool `work` could not start: ",
    ] {
        let told = texts.iter().filter(|text| text.starts_with(start));
        assert_eq!(told.count(), 1, "{start}: {texts:?}");
    }
    let firing = texts.iter().find(|text| text.starts_with("[firing]"));
    let firing = firing.unwrap();
    assert!(
        firing.contains("\nstderr: this worker never starts\n"),
        "{firing}"
    );
    assert!(firing.contains("\nrun: ganger output work 0\n"), "{firing}");
    scene.finish();
}

fn a_reload_changes_the_webhook_and_takes_it_away() {
    let (first, second) = (Hook::new(), Hook::new());
    let scene = degraded(&first, "");
    first.is_told(DEGRADED);
    change(&scene, &first.url(), &second.url());
    second.is_told(DEGRADED);
    assert_eq!(first.is_told(WORKS)["ended"], "unwatched");
    // In another form it is another webhook.
    change(&scene, "hold = \"0s\"", "hold = \"0s\"\nform = \"slack\"");
    assert_eq!(second.is_told(WORKS)["ended"], "unwatched");
    let slack = |start: &str| {
        let texts = second.heard().into_iter();
        let mut texts = texts.filter_map(|it| Some(it.body["text"].as_str()?.to_owned()));
        texts.find(|text| text.starts_with(start))
    };
    for begun in [
        "pool `work` is degraded",
        "workers of pool `work` can't start",
    ] {
        look(|| slack(&format!("[firing] {begun}"))).expect("it to be told");
    }
    let text = fs::read_to_string(scene.daemon.config()).unwrap();
    let (before, rest) = text.split_once("[alerts]").unwrap();
    let after = &rest[rest.find("[daemon]").unwrap()..];
    fs::write(scene.daemon.config(), format!("{before}{after}")).unwrap();
    reload(&scene);
    scene.daemon.logged("alerts are no longer sent");
    let last = look(|| slack("[resolved] pool `work` was degraded")).expect("its end");
    let process = format!("process {}", scene.daemon.pid());
    assert!(last.ends_with(&process), "{last}");
    assert!(last.contains("no longer sent here"), "{last}");
    // Both alerts, in each form, begin and end.
    second.has_heard(8);
    assert_eq!(told(&first), [DEGRADED, WORKS]);
    scene.site.touch("up");
    scene.daemon.has_workers(1);
    scene.daemon.stop();
    assert_eq!((first.heard().len(), second.heard().len()), (4, 8));
    keeps_the_secret(&scene.daemon);
}

fn a_daemon_that_stops_says_that_it_looks_no_more() {
    let hook = Hook::new();
    let pools = [
        broken(),
        Pool::new(&[]).text("name", "fine").text("queue", "fine"),
    ];
    let scene = scene(&hook, "crashes = \"off\"", &pools);
    hook.is_told(DEGRADED);
    scene.daemon.stop();
    assert_eq!(told(&hook), [DEGRADED, WORKS]);
    assert_eq!(hook.is_told(WORKS)["ended"], "daemon_stops");
    assert_eq!(
        scene
            .daemon
            .times_logged("the webhook did not accept the last alerts within 3s"),
        0
    );
}

fn the_webhook_may_speak_tls() {
    let authority = Authority::shared();
    let hook = Hook::new();
    let alerts = |ca: &Authority| {
        let url = Value::from(hook.tls_url(authority));
        let ca = quoted(&ca.path("ca.pem"));
        format!("[alerts]\nwebhook = {url}\nhold = \"0s\"\nca_file = {ca}\n")
    };
    let scene = Scene::at(site(&alerts(authority)), &[broken()]);
    hook.is_told(DEGRADED);
    scene.finish();
    let heard = hook.heard().len();
    let stranger = Authority::called("stranger");
    let scene = Scene::at(site(&alerts(&stranger)), &[broken()]);
    let away = scene.daemon.logged(AWAY);
    assert!(
        field(&away, "error").to_lowercase().contains("certificate"),
        "{away}"
    );
    assert_eq!(hook.heard().len(), heard, "nothing is sent to a stranger");
    // The right one is taken up in place.
    change(
        &scene,
        &quoted(&stranger.path("ca.pem")),
        &quoted(&authority.path("ca.pem")),
    );
    look(|| (hook.heard().len() > heard).then_some(())).expect("it to be told");
    scene.finish();
    fs::remove_file(stranger.path("ca.pem")).unwrap();
    let scene = Scene::at(site(&alerts(&stranger)), &[broken()]);
    let away = scene.daemon.logged(AWAY);
    assert!(field(&away, "error").contains("ca.pem` failed"), "{away}");
    scene.finish();
}

fn the_webhook_can_be_tried() {
    let hook = Hook::new();
    let site = site(&section(&hook, ""));
    let pool = Pool::of_program("true", &[]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["check"]).good();
    assert!(hook.heard().is_empty());
    site.ganger(&["check", "--send-alert"]).good();
    assert_eq!(hook.told(), ["firing test", "resolved test"]);
    hook.says(&[Word::Status(403)]);
    let refused = site.ganger(&["check", "--send-alert"]).bad(1);
    assert!(refused.contains("403"), "{refused}");
    assert!(refused.contains(&hook.address().to_string()), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
    let silent = Workspace::new();
    silent.configure_commands(&[pool]);
    let missing = silent.ganger(&["check", "--send-alert"]).bad(1);
    assert!(missing.contains("alerts.webhook is missing"), "{missing}");
}

fn each_webhook_is_sent_its_form_with_headers_and_a_signature() {
    const KEY: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let hooks: Vec<Hook> = (0..4).map(|_| Hook::new()).collect();
    let forms = ["slack", "teams", "pagerduty", "alertmanager"];
    let more: String = hooks.iter().zip(forms).map(|(hook, form)| {
        let key = match form {
            "pagerduty" => "integration_key = \"k3y\"\n",
            _ => "",
        };
        let url = Value::from(hook.url());
        format!(
            "[[alerts.webhooks]]\nform = \"{form}\"\nwebhook = {url}\nsigning_secret = \"whsec_{KEY}\"\n\
             headers = {{ X-Team = \"s3cret-{form}\" }}\n{key}"
        )
    }).collect();
    let plain = Hook::new();
    let scene = degraded(&plain, &more);
    let told = plain.is_told(DEGRADED);
    let signed = |heard: &Heard| {
        let header = |name: &str| {
            let mut headers = heard.headers.iter();
            headers
                .find(|(n, _)| n == name)
                .map(|(_, value)| value.clone())
        };
        let (id, at) = (
            header("webhook-id").unwrap(),
            header("webhook-timestamp").unwrap(),
        );
        let key = STANDARD.decode(KEY).unwrap();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
        let text = [format!("{id}.{at}.").as_bytes(), &heard.raw].concat();
        let mac = STANDARD.encode(ring::hmac::sign(&key, &text));
        assert_eq!(header("webhook-signature"), Some(format!("v1,{mac}")));
        header("x-team").unwrap()
    };
    for (hook, form) in hooks.iter().zip(forms) {
        for heard in hook.has_heard(2) {
            assert_eq!(signed(&heard), format!("s3cret-{form}"));
        }
        let text = hook
            .heard()
            .iter()
            .map(|it| it.body.to_string())
            .collect::<String>();
        for part in [
            "is degraded",
            "this worker never starts",
            "ganger output work 0",
        ] {
            assert!(text.contains(part), "{form} without {part}: {text}");
        }
    }
    let header = plain.heard()[0]
        .headers
        .iter()
        .any(|(name, _)| name.starts_with("webhook-"));
    assert!(!header, "it has no secret to sign with");
    assert_eq!(hooks[2].heard()[0].body["routing_key"], "k3y");
    assert_eq!(told["stderr"], json!(["this worker never starts"]));
    keeps_the_secret(&scene.daemon);
    scene.finish();
}

/// The real one: it refuses what is not as its API has it.
fn alertmanager_takes_alerts_and_their_ends() {
    let site = Workspace::new();
    let config = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n";
    site.put("alertmanager.yml", config, false);
    let port = free_port();
    let _server = Server::start("prometheus-alertmanager", |command| {
        let file = site.path("alertmanager.yml");
        let storage = site.path("alertmanager");
        command.args([
            &format!("--config.file={}", file.display()),
            &format!("--storage.path={}", storage.display()),
            &format!("--web.listen-address=127.0.0.1:{port}"),
            "--cluster.listen-address=",
        ]);
    });
    let url = format!("http://127.0.0.1:{port}/api/v2/alerts");
    let section = format!(
        "[alerts]\nwebhook = \"{url}\"\nform = \"alertmanager\"\nhold = \"0s\"\ncrashes = \"off\"\n"
    );
    let scene = Scene::at(self::site(&section), &[broken()]);
    let api = Api::Port(port);
    let firing = || {
        let alerts = api.get("/api/v2/alerts").json();
        let alerts = alerts.as_array().unwrap().iter();
        let alerts = alerts.map(|it| (it["labels"]["alertname"].to_string(), it.clone()));
        alerts.collect::<std::collections::BTreeMap<String, Value>>()
    };
    // By then it answers: what it did not take before is sent again.
    scene.daemon.eventually("both to be taken", || {
        let taken = scene.daemon.config().to_str().unwrap();
        let args = ["status", "--config", taken, "--output", "json"];
        scene.site.ganger(&args).json()["alerts"]["sent"].as_u64() >= Some(2)
    });
    let degraded = firing()["\"pool_degraded\""].clone();
    assert_eq!(degraded["status"]["state"], "active");
    assert_eq!(degraded["labels"]["pool"], "work");
    assert_eq!(degraded["annotations"]["command"], "ganger output work 0");
    let stderr = &degraded["annotations"]["stderr"];
    assert!(
        stderr
            .as_str()
            .unwrap()
            .contains("this worker never starts")
    );
    scene.site.touch("up");
    scene
        .daemon
        .eventually("both to be over", || firing().is_empty());
    let refused = "the webhook rejected an alert, which is not sent again";
    assert_eq!(scene.daemon.times_logged(refused), 0);
    scene.finish();
}

fn links_begin_with_the_url_of_the_last_reload() {
    let hook = Hook::new();
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\npublic_url = \"https://old.example/\"\n";
    let alerts = section(&hook, "crashes = \"off\"") + admin;
    let scene = Scene::at(site(&alerts), &[broken()]);
    let config = scene.daemon.config().to_str().unwrap();
    let is_linked = |host: &str| {
        let url = format!("https://{host}/ui/pools/work");
        let is_it = |heard: &Heard| {
            let body = &heard.body;
            body["url"] == url && body["kind"] == "pool_degraded" && body["state"] == "firing"
        };
        let what = format!("an alert with a link to {url}");
        let is_told = || hook.heard().iter().any(is_it);
        scene.daemon.eventually(&what, is_told);
        let login = format!("https://{host}/ui/login?code=");
        let printed = scene.site.ganger(&["open", "--print", "--config", config]);
        assert!(printed.good().starts_with(&login), "{login}");
    };
    is_linked("old.example");
    scene.site.touch("up");
    hook.is_told(WORKS);
    let resolved = hook.heard().into_iter();
    let resolved = resolved.filter(|heard| heard.body["state"] == "resolved");
    let urls: Vec<Value> = resolved.map(|heard| heard.body["url"].clone()).collect();
    assert!(urls.iter().all(Value::is_null), "{urls:?}");
    change(&scene, "https://old.example/", "https://new.example");
    fs::remove_file(scene.site.path("up")).unwrap();
    let kill = ["kill", "work", "0", "--config", config];
    scene.site.ganger(&kill).good();
    is_linked("new.example");
    scene.finish();
}
