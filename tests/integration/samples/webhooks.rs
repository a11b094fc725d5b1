//! `samples/webhooks`: events reach their receivers, signed, as soon as these want them and no sooner.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::web::{Answer, Heard, Web, answer};
use super::{Sample, errors, run_well, settled};
use crate::harness::rabbit::{Letter, Vhost, text};
use crate::harness::trials;
use crate::sdk::node::node_built;

trials![events_are_delivered_when_their_receivers_want_them];

const SECRET: &str = "a secret of two";
const EVENT: &str = r#"{"order": 17, "name": "Zoë"}"#;

/// The sample, compiled as its README says, with what that has one install.
fn compiled() -> Sample {
    let sample = Sample::of("webhooks");
    let (site, node) = (&sample.site, node_built());
    let modules = site.path("node_modules");
    std::fs::create_dir(&modules).unwrap();
    std::os::unix::fs::symlink(&node, modules.join("ganger-worker")).unwrap();
    std::os::unix::fs::symlink(node.join("node_modules/@types"), modules.join("@types")).unwrap();
    let mut tsc = Command::new(node.join("node_modules/.bin/tsc"));
    run_well(tsc.current_dir(site.path("")));
    sample
}

/// An event for that URL, which is its name as well.
fn event(url: &str) -> Letter {
    let letter = Letter::new("webhooks", EVENT).header("url", text(url));
    letter.with(|properties| properties.with_message_id(url.into()))
}

/// A time so many seconds from now, as HTTP writes it.
fn in_seconds(seconds: u32) -> (SystemTime, String) {
    let date = |format: &str| {
        let mut command = Command::new("date");
        command.env("LC_ALL", "C").args(["-u", "-d"]);
        run_well(command.arg(format!("+{seconds} seconds")).arg(format))
    };
    let written = date("+%s %a, %d %b %Y %H:%M:%S GMT");
    let (epoch, written) = written.trim().split_once(' ').unwrap();
    let epoch = Duration::from_secs(epoch.parse().unwrap());
    (SystemTime::UNIX_EPOCH + epoch, written.to_owned())
}

/// What the receiver says, the first time.
fn says(request: &Heard, date: &str) -> Answer {
    match (&*request.path, request.before) {
        ("/busy", 0) => answer(429, &[("retry-after", "2")], ""),
        ("/away", 0) => answer(503, &[("retry-after", date)], ""),
        ("/wrong", 0) => answer(500, &[], "a stack trace"),
        ("/gone", _) => answer(410, &[], ""),
        ("/moved", _) => answer(301, &[("location", "/elsewhere")], ""),
        _ => answer(204, &[], ""),
    }
}

fn events_are_delivered_when_their_receivers_want_them() {
    let (sample, vhost) = (compiled(), Vhost::shared());
    let (then, date) = in_seconds(4);
    let receiver = Web::that(move |request| {
        let answer = says(&request, &date);
        async move { answer }
    });
    let silent = silent_once();
    let timeouts = format!("{{\"{}\": 300}}", silent.host());
    let daemon = sample.start(&[
        ("RABBITMQ_URL", &vhost.url()),
        ("WEBHOOK_SECRET", SECRET),
        ("GANGER_POOLS__WEBHOOKS__ENV__HOST_TIMEOUTS", &timeouts),
        ("GANGER_POOLS__WEBHOOKS__RETRY__INITIAL", "100ms"),
    ]);
    let paths = ["/well", "/busy", "/away", "/wrong", "/gone", "/moved"];
    let client = vhost.client();
    client.publish(&paths.map(|path| event(&receiver.url(path))));
    let nameless = Letter::new("webhooks", EVENT).header("url", text(&receiver.url("/nameless")));
    client.publish(&[
        nameless,
        event("ftp://example.org/"),
        event(&silent.url("/")),
    ]);

    let dead = errors(&settled(&daemon, &vhost, "webhooks"));
    let host = receiver.host();
    let expected = [
        format!("rejected by the worker: {host} answered 301"),
        format!("rejected by the worker: {host} answered 410"),
        "rejected by the worker: the header url must be a http or https URL: ftp://example.org/"
            .into(),
        "rejected by the worker: the message must have a message id".into(),
    ];
    assert_eq!(dead, expected);
    let times: BTreeMap<&str, usize> = paths.map(|path| (path, receiver.heard(path).len())).into();
    let twice = ["/busy", "/away", "/wrong"];
    let expected = paths.map(|path| (path, if twice.contains(&path) { 2 } else { 1 }));
    assert_eq!(times, expected.into());
    assert_eq!(receiver.heard("/elsewhere").len(), 0);

    let [busy, away] = ["/busy", "/away"].map(|path| receiver.heard(path));
    assert!(waited(&busy) >= Duration::from_secs(2), "{busy:?}");
    assert!(away[1].at >= then, "{away:?}");
    // It was not given the time that others have.
    let silent = silent.heard("/");
    assert!(waited(&silent) < Duration::from_secs(9), "{silent:?}");
    for request in &busy {
        assert_eq!(request.header("webhook-id"), receiver.url("/busy"));
        assert_eq!(request.body, EVENT);
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(
            request.header("webhook-signature"),
            signature(&sample, request)
        );
    }
    daemon.stop();
}

/// The time from the first request to the second.
fn waited(heard: &[Heard]) -> Duration {
    heard[1].at.duration_since(heard[0].at).unwrap()
}

/// A receiver that leaves the first request without an answer.
fn silent_once() -> Web {
    Web::that(|request| async move {
        match request.before {
            0 => std::future::pending().await,
            _ => answer(204, &[], ""),
        }
    })
}

/// What the signature must be, by another implementation.
fn signature(sample: &Sample, request: &Heard) -> String {
    let program = "import base64, hmac, sys\n\
        made = hmac.digest(sys.argv[1].encode(), sys.argv[2].encode(), 'sha256')\n\
        print('v1,' + base64.b64encode(made).decode())";
    let (id, time) = (
        request.header("webhook-id"),
        request.header("webhook-timestamp"),
    );
    let body = std::str::from_utf8(&request.body).unwrap();
    let signed = format!("{id}.{time}.{body}");
    let mut python = sample.python();
    let made = run_well(python.args(["-c", program, SECRET, &signed]));
    made.trim().to_owned()
}
