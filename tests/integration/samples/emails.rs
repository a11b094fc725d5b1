//! `samples/emails`: a relay's yes, not now and never, and what is known of a mail that may have gone
//! out before.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::Sample;
use super::relay::Relay;
use crate::harness::{Daemon, NewMessage, Table, trials};

trials![
    mails_go_out_once_are_tried_again_or_rejected,
    one_that_may_have_gone_out_has_the_same_id,
    a_relay_that_is_away_is_no_mails_fault,
];

fn mail(to: &str) -> NewMessage {
    let body = json!({"to": to, "subject": "Für Zoë", "text": "Hello.\n.\nBye."});
    NewMessage::new(&body.to_string()).to("emails")
}

/// The sample with that relay, and retries that do not wait for long.
fn start(sample: &Sample, port: &str) -> Daemon {
    sample.start(&[
        ("SMTP_HOST", "127.0.0.1"),
        ("SMTP_PORT", port),
        ("GANGER_POOLS__EMAILS__RETRY__INITIAL", "50ms"),
    ])
}

fn settled(daemon: &Daemon, table: &Table) {
    daemon.eventually("the queue to be empty", || table.count("emails") == 0);
}

fn mails_go_out_once_are_tried_again_or_rejected() {
    let (sample, relay) = (Sample::of("emails"), Relay::new());
    let table = sample.table();
    let rejected = [
        ("nobody@example.org", "550 no such mailbox"),
        ("spam@example.org", "554 not this"),
        ("ann@example.org, bob@example.org", "must be one address"),
        ("zoë@example.org", "no way to say this"),
    ];
    table.insert(&rejected.map(|(to, _)| mail(to)));
    table.insert(&[NewMessage::new("Hello").to("emails")]);
    table.insert(&["full@example.org", "rude@example.org"].map(mail));
    let daemon = start(&sample, &relay.port());
    settled(&daemon, &table);
    assert_eq!(relay.mails("full@example.org").len(), 1);
    assert_eq!(relay.mails("rude@example.org").len(), 1);

    // Its sender sends it again, under its name: because it is not sure that it has, say.
    let named = || mail("ann@example.org").message_id("order-17");
    table.insert(&[named()]);
    settled(&daemon, &table);
    table.insert(&[named(), mail("ann@example.org")]);
    settled(&daemon, &table);
    let mails = relay.mails("ann@example.org");
    let [first, second] = &mails[..] else {
        panic!("{mails:#?}");
    };
    assert!(first.text.contains("\n\nHello.\n..\nBye.\n"), "{first:?}");
    assert_eq!(first.header("To"), "ann@example.org");
    assert_ne!(first.header("Message-ID"), second.header("Message-ID"));

    let dead = table.dead();
    assert_eq!(dead.len(), rejected.len() + 1, "{dead:#?}");
    assert!(dead.iter().all(|it| it.reason == "rejected"), "{dead:#?}");
    for (_, why) in rejected {
        let found = dead.iter().filter(|it| it.error.contains(why));
        assert_eq!(found.count(), 1, "{why}: {dead:#?}");
    }
    daemon.stop();
}

fn one_that_may_have_gone_out_has_the_same_id() {
    let (sample, relay) = (Sample::of("emails"), Relay::new());
    let table = sample.table();
    table.insert(&[mail("silent@example.org")]);
    let daemon = start(&sample, &relay.port());
    let taken = || relay.mails("silent@example.org");
    daemon.eventually("the relay to have the mail", || taken().len() == 1);
    for pid in daemon.has_workers(2) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    settled(&daemon, &table);
    let mails = taken();
    assert_eq!(mails.len(), 2, "{mails:#?}");
    assert_eq!(mails[0].header("Message-ID"), mails[1].header("Message-ID"));
    assert!(table.dead().is_empty(), "{:#?}", table.dead());
    daemon.stop();
}

fn a_relay_that_is_away_is_no_mails_fault() {
    let sample = Sample::of("emails");
    let port = {
        let relay = Relay::new();
        relay.port()
    };
    let table = sample.table();
    table.insert(&[mail("ann@example.org")]);
    let daemon = start(&sample, &port);
    daemon.eventually("two attempts", || {
        let waiting = table.messages("emails");
        waiting.iter().any(|mail| mail.attempts >= 2)
    });
    assert!(table.dead().is_empty(), "{:#?}", table.dead());
    daemon.stop();
}
