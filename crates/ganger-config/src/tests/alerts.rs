//! The keys of `[alerts]`, their problems, and the redaction of its URL.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LEAST, messages, printed, read};
use crate::diff::{Change, difference};
use crate::model::{AlertForm, AlertsConfig, Secret, WebhookConfig};
use crate::{Environment, Places};
use crate::{Problems, load, warnings};

fn alerts(lines: &str) -> Result<Option<AlertsConfig>, Problems> {
    read(&format!("{lines}\n{LEAST}"), &[]).map(|config| config.alerts)
}

const URL: &str = "[alerts]\nwebhook = \"https://hooks.example/T0/s3cret\"\n";

fn webhook() -> WebhookConfig {
    WebhookConfig {
        name: "hooks.example:443".to_owned(),
        webhook: Secret::new("https://hooks.example/T0/s3cret"),
        form: AlertForm::Json,
        headers: BTreeMap::new(),
        signing_secret: None,
        integration_key: None,
        ca_file: None,
        timeout: Duration::from_secs(10),
    }
}

#[test]
fn several_webhooks_are_told_each_in_its_way() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let more = format!(
        "{URL}[[alerts.webhooks]]\nname = \"pager\"\nwebhook = \"https://events.example/\"\n\
         form = \"pagerduty\"\nintegration_key = \"s3cret-k\"\ntimeout = \"1s\"\n\
         [[alerts.webhooks]]\nwebhook = \"https://hooks.example/other\"\n\
         headers = {{ Authorization = \"Bearer s3cret\" }}\nsigning_secret = \"{secret}\"\n"
    );
    let config = read(&format!("{more}\n{LEAST}"), &[]).unwrap();
    let told = config.alerts.clone().unwrap();
    let pager = WebhookConfig {
        name: "pager".to_owned(),
        webhook: Secret::new("https://events.example/"),
        form: AlertForm::PagerDuty,
        integration_key: Some(Secret::new("s3cret-k")),
        timeout: Duration::from_secs(1),
        ..webhook()
    };
    let signed = WebhookConfig {
        name: "hooks.example:443#2".to_owned(),
        webhook: Secret::new("https://hooks.example/other"),
        headers: [("authorization".to_owned(), Secret::new("Bearer s3cret"))].into(),
        signing_secret: Some(Secret::new(secret)),
        ..webhook()
    };
    assert_eq!(told.webhooks, [webhook(), pager, signed]);
    let shown = format!("{config:?}{}", printed(&format!("{more}\n{LEAST}"), &[]));
    assert!(
        !shown.contains("s3cret") && !shown.contains("whsec_"),
        "{shown}"
    );
    let only_list = more.replace(URL, "");
    assert_eq!(alerts(&only_list).unwrap().unwrap().webhooks.len(), 2);
}

#[test]
fn nobody_is_told_unless_a_webhook_is_named() {
    assert_eq!(alerts("").unwrap(), None);
    assert!(!printed(LEAST, &[]).contains("alerts"));
    let told = alerts(URL).unwrap().unwrap();
    let expected = AlertsConfig {
        webhooks: vec![webhook()],
        dead_letters: Some(10),
        crashes: Some(5),
        waiting: Some(Duration::from_secs(3600)),
        window: Duration::from_secs(60),
        paused: Some(Duration::from_secs(3600)),
        hold: Duration::from_secs(30),
        repeat: None,
    };
    assert_eq!(told, expected);
    assert!(!format!("{told:?}").contains("s3cret"), "{told:?}");
    let by_variable = [("GANGER_ALERTS__WEBHOOK", "http://127.0.0.1:1/")];
    assert!(read(LEAST, &by_variable).unwrap().alerts.is_some());
}

#[test]
fn mistakes_are_told_without_the_secret() {
    let url = "webhook = \"https://hooks.example/s3cret\"\n";
    for (lines, told) in [
        ("", "alerts.webhook is missing"),
        ("form = \"json\"", "alerts.webhook is missing"),
        (
            "webhook = \"hooks.example/s3cret\"",
            "alerts.webhook must be a URL with http://",
        ),
        (
            "webhook = \"ftp://hooks.example/s3cret\"",
            "alerts.webhook must be a URL with http://",
        ),
        (
            "webhook = \"\"",
            "alerts.webhook must be a URL with http://",
        ),
        (
            "webhook_file = \"/nowhere/s3cret\"",
            "alerts.webhook_file can't be read",
        ),
        (
            &format!("{url}paused = 0"),
            "alerts.paused must be a duration",
        ),
        (
            &format!("{url}dead_letters = -1"),
            "alerts.dead_letters must be within 0..=1000000000 or `\"off\"`",
        ),
        (
            &format!("{url}crashes = 0"),
            "alerts.crashes must be within 1..=1000000 or `\"off\"`",
        ),
        (&format!("{url}hold = 30"), "alerts.hold must be a duration"),
        (
            &format!("{url}repeat = \"1s\""),
            "alerts.repeat must be within 1m..=720h or `\"off\"`",
        ),
        (
            &format!("{url}timeout = \"0s\""),
            "alerts.timeout must be within 100ms..=1h",
        ),
        (
            &format!("{url}webhok = 1"),
            "alerts.webhok is not a known key",
        ),
        (
            &format!("{url}webhook_file = \"x\""),
            "alerts.webhook_file and `webhook` can't both be given",
        ),
    ] {
        assert_told(lines, told);
    }
}

#[test]
fn mistakes_of_one_webhook_are_told_without_the_secret() {
    let url = "webhook = \"https://hooks.example/s3cret\"\n";
    for (lines, told) in [
        (
            &format!("{url}form = \"email\""),
            "alerts.form must be `\"json\"`, `\"slack\"`, `\"teams\"`, `\"pagerduty\"` or `\"alertmanager\"`",
        ),
        (
            &format!("{url}form = \"pagerduty\""),
            "alerts.integration_key is missing",
        ),
        (
            &format!("{url}integration_key = \"s3cret\""),
            "alerts.integration_key has an effect with the form `pagerduty` only",
        ),
        (
            &format!("{url}signing_secret = \"whsec_s3cret\""),
            "alerts.signing_secret must be 24 to 64 bytes in Base64",
        ),
        (
            &format!("{url}headers = {{ Authorization = \"s3cret\\n\" }}"),
            "alerts.headers has a value with characters other",
        ),
        (
            &format!("{url}headers = {{ Host = \"s3cret\" }}"),
            "alerts.headers.Host is a header that ganger sets itself",
        ),
        (
            &format!("{url}[[alerts.webhooks]]\nform = \"json\""),
            "alerts.webhooks[0].webhook is missing",
        ),
    ] {
        assert_told(lines, told);
    }
}

fn assert_told(lines: &str, told: &str) {
    let problems = messages(read(&format!("[alerts]\n{lines}\n{LEAST}"), &[]));
    assert!(problems[0].starts_with(told), "{lines}: {problems:?}");
    assert!(
        !format!("{problems:?}").contains("s3cret"),
        "{lines}: {problems:?}"
    );
}

#[test]
fn a_file_may_hold_the_url_and_must_be_as_safe_as_one() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (secret, config) = (
        directory.path().join("hook"),
        directory.path().join("g.toml"),
    );
    let text = format!("[alerts]\nwebhook_file = \"hook\"\n{LEAST}");
    std::fs::write(&config, text).unwrap();
    let said = |url: &str, mode| {
        std::fs::write(&secret, url).unwrap();
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&secret, mode).unwrap();
        let environment = Environment::new();
        let config = match load(&config, &environment) {
            Ok(config) => config,
            Err(problems) => return format!("{problems:?}"),
        };
        let places = Places::read(&directory.path().join("g.toml"), &environment);
        let warnings = warnings(&config, &places);
        let warnings = warnings.iter().filter(|it| it.path.starts_with("alerts"));
        warnings.map(|it| it.message.clone()).collect()
    };
    assert_eq!(said("https://hooks.example/s3cret\n", 0o600), "");
    assert!(said("https://hooks.example/s3cret", 0o644).contains("has mode 0644"));
    assert_eq!(said("http://[::1]:8080/s3cret", 0o600), "");
    let plain = said("http://hooks.example/s3cret", 0o600);
    assert!(
        plain.contains("unencrypted") && plain.ends_with("`hooks.example`"),
        "{plain}"
    );
    let wrong = said("hooks.example/s3cret", 0o600);
    assert!(wrong.contains("holds a URL that must be"), "{wrong}");
    assert!(!wrong.contains("s3cret") && !plain.contains("s3cret"));
}

#[test]
fn a_reload_changes_them_in_place() {
    let config = |lines: &str| read(&format!("{lines}\n{LEAST}"), &[]).unwrap();
    let (none, some) = (config(""), config(URL));
    let other = config(&format!("{URL}hold = \"1s\""));
    for (old, new, expected) in [
        (&none, &none, vec![]),
        (&some, &some, vec![]),
        (&none, &some, vec![Change::Alerts]),
        (&some, &other, vec![Change::Alerts]),
        (&some, &none, vec![Change::Alerts]),
    ] {
        assert_eq!(difference(old, new), expected);
    }
}
