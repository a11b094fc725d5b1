//! Tests of the forms.

use super::super::alert::{Alert, AlertKind, Ended, Finding};
use super::super::delivery_state::{End, Message};
use super::super::message::body;
use super::super::tests::webhook;
use super::*;
use ganger_config::model::{Secret, WebhookConfig};

fn message(summary: &str, end: Option<Ended>) -> Message {
    let finding = Finding {
        kind: AlertKind::RollStopped,
        subject: "p".into(),
        pool: Some("p".into()),
        source: Some("main".into()),
        queue: Some("q".into()),
        summary: summary.into(),
        details: [("cause".to_owned(), Value::from("exited"))]
            .into_iter()
            .collect(),
        error: Some("no module <b>".into()),
        stderr: vec!["line 1".into(), "line 2".into()],
        command: "ganger status --pool p".into(),
    };
    let since = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
    let at = since + Duration::from_secs(60);
    Message {
        alert: Alert { finding, since },
        end: end.map(|why| End { why, at }),
    }
}

fn sent(message: &Message, form: AlertForm) -> Value {
    let sender = Sender {
        host: "host".into(),
        version: "1.2.3",
        pid: 7,
        url: Some("https://ganger.example".to_owned()),
    };
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
    let config = WebhookConfig {
        form,
        integration_key: Some(Secret::new("k3y")),
        ..webhook()
    };
    serde_json::from_slice(&body(message, &config, &sender, at)).unwrap()
}

#[test]
fn the_json_form_is_as_it_is_documented() {
    let expected = json!({
        "version": 1,
        "id": "host/roll_stopped/p",
        "state": "firing",
        "kind": "roll_stopped",
        "severity": "warning",
        "pool": "p",
        "source": "main",
        "queue": "q",
        "summary": "it has stopped",
        "details": { "cause": "exited" },
        "error": "no module <b>",
        "stderr": ["line 1", "line 2"],
        "command": "ganger status --pool p",
        "url": "https://ganger.example/ui/pools/p",
        "since": 1.5,
        "at": 100.0,
        "ended": null,
        "daemon": { "host": "host", "version": "1.2.3", "pid": 7 },
    });
    let firing = sent(&message("it has stopped", None), AlertForm::Json);
    assert_eq!(firing, expected);
    let over = sent(
        &message("it has stopped", Some(Ended::Over)),
        AlertForm::Json,
    );
    let changed = ["state", "summary", "url", "at", "ended"];
    for (name, value) in over.as_object().unwrap() {
        assert_eq!(
            *value == expected[name],
            !changed.contains(&&**name),
            "{name}"
        );
    }
    assert_eq!(
        (&over["ended"], &over["at"]),
        (&"over".into(), &61.5.into())
    );
}

#[test]
fn what_others_wrote_is_nothing_but_text_for_slack() {
    let evil = "<!channel> <https://evil|click> & \u{1b}[2J\nforged";
    let text = sent(&message(evil, None), AlertForm::Slack);
    assert_eq!(text.as_object().unwrap().len(), 1);
    let text = text["text"].as_str().unwrap();
    let expected = "[firing] &lt;!channel&gt; &lt;https://evil|click&gt; &amp; \\u{1b}[2J\\nforged\n\
                    last error: no module &lt;b&gt;\nstderr: line 1\nstderr: line 2\n\
                    run: ganger status --pool p\n\
                    see: https://ganger.example/ui/pools/p\nganger 1.2.3 on host, process 7";
    assert_eq!(text, expected);
    let over = sent(&message("x", Some(Ended::PoolGone)), AlertForm::Slack);
    let over = over["text"].as_str().unwrap();
    let expected = "[resolved] a rolling restart of pool `p` stopped: the pool has ended\n\
                    ganger 1.2.3 on host, process 7";
    assert_eq!(over, expected);
}

#[test]
fn nobody_is_sent_more_than_it_takes() {
    for sign in ["<", "\u{1b}", "漢"] {
        let mut long = message(&sign.repeat(100_000), None);
        long.alert.finding.error = Some(sign.repeat(1000));
        long.alert.finding.stderr = vec![sign.repeat(1000); 20];
        let text = sent(&long, AlertForm::Slack);
        let text = text["text"].as_str().unwrap();
        assert!(text.chars().count() < 40_000, "{}", text.len());
        assert!(text.contains("on host"), "the end is there");
        let teams = sent(&long, AlertForm::Teams).to_string();
        assert!(teams.len() < 28_000, "{}", teams.len());
        let event = sent(&long, AlertForm::PagerDuty);
        let summary = event["payload"]["summary"].as_str().unwrap();
        assert!(summary.chars().count() <= 1024);
    }
}

#[test]
fn pagerduty_is_told_of_one_incident_and_its_end() {
    let event = sent(&message("it has stopped", None), AlertForm::PagerDuty);
    assert_eq!(event["routing_key"], "k3y");
    assert_eq!(event["event_action"], "trigger");
    let payload = &event["payload"];
    assert_eq!(payload["summary"], "it has stopped");
    assert_eq!(payload["source"], "host");
    assert_eq!(payload["severity"], "warning");
    assert_eq!(payload["timestamp"], "1970-01-01T00:00:01.5Z");
    assert_eq!(payload["class"], "roll_stopped");
    assert_eq!(payload["custom_details"]["stderr"][1], "line 2");
    let over = sent(&message("x", Some(Ended::Over)), AlertForm::PagerDuty);
    let expected = json!({
        "routing_key": "k3y",
        "event_action": "resolve",
        "dedup_key": event["dedup_key"],
    });
    assert_eq!(over, expected);
}

#[test]
fn teams_is_shown_a_card_of_plain_text() {
    let card = sent(&message("[click](https://evil)", None), AlertForm::Teams);
    assert_eq!(card["type"], "message");
    let attachment = &card["attachments"][0];
    let kind = "application/vnd.microsoft.card.adaptive";
    assert_eq!(attachment["contentType"], kind);
    let content = &attachment["content"];
    assert_eq!(
        (&content["type"], &content["version"]),
        (&"AdaptiveCard".into(), &"1.4".into())
    );
    let body = content["body"].as_array().unwrap();
    let texts: Vec<&str> = body
        .iter()
        .map(|block| {
            assert_eq!(block["type"], "RichTextBlock", "it knows no markup");
            block["inlines"][0]["text"].as_str().unwrap()
        })
        .collect();
    assert_eq!(texts[0], "[firing] [click](https://evil)");
    assert_eq!(texts[4], "run: ganger status --pool p");
    assert_eq!(texts[5], "see: https://ganger.example/ui/pools/p");
    assert_eq!(texts[6], "ganger 1.2.3 on host, process 7");
}

#[test]
fn alertmanager_is_told_of_one_alert_and_its_end() {
    let firing = sent(&message("it has stopped", None), AlertForm::Alertmanager);
    let expected = json!([{
        "labels": {
            "alertname": "roll_stopped",
            "job": "ganger",
            "instance": "host",
            "severity": "warning",
            "pool": "p",
        },
        "annotations": {
            "summary": "it has stopped",
            "error": "no module <b>",
            "stderr": "line 1\nline 2",
            "command": "ganger status --pool p",
        },
        "startsAt": "1970-01-01T00:00:01.5Z",
        "endsAt": "1970-01-01T00:06:40Z",
        "generatorURL": "https://ganger.example/ui/pools/p",
    }]);
    assert_eq!(firing, expected);
    let over = sent(&message("x", Some(Ended::Over)), AlertForm::Alertmanager);
    assert_eq!(over[0]["labels"], firing[0]["labels"]);
    assert_eq!(over[0]["endsAt"], "1970-01-01T00:01:01.5Z");
}
