//! Due times and giving up of publications in flight.

use super::*;
use crate::broker::load::OPEN_MAX;

/// Creates a producer with `count` publications in flight, for an external topic or an internal one.
fn with(count: usize, compressed: bool) -> Producer<usize> {
    let source = settings::tests::source(&[]);
    let mut producer = Producer::new(&source, "p", Arc::default()).unwrap();
    let record = Outbound {
        topic: "answers".to_owned(),
        compressed,
        ..Outbound::default()
    };
    (1..=count).for_each(|id| producer.send(record.clone(), id));
    producer
}

#[test]
fn a_line_that_nobody_needs_wakes_nobody() {
    let mut producer = with(1, false);
    let now = Instant::now();
    let usual = ProducerProfile::default();
    let other = ProducerProfile {
        compressed: true,
        ..usual
    };
    let mut client = producer.client(other).unwrap();
    client.plan_renewal(now);
    producer.clients.insert(other, client);
    let soon = now + SILENCE_MAX / 2;
    assert!(producer.next_due().is_none_or(|due| due > soon));
    let client = producer.clients.get_mut(&usual).unwrap();
    client.plan_renewal(now);
    let renewal = client.renew_at(now);
    assert!(renewal.is_some() && producer.next_due() == renewal);
}

#[test]
fn a_line_that_reaches_no_broker_is_made_anew_if_something_waits_for_it() {
    let mut producer = with(1, false);
    let usual = ProducerProfile::default();
    let patience = settings::out_of_reach_max(&producer.source);
    let since = producer.jobs.values().next().unwrap().since;
    let long_ago = since.checked_sub(patience * 2).unwrap();
    producer
        .clients
        .get_mut(&usual)
        .unwrap()
        .record_unreachable(long_ago);
    assert_eq!(producer.renew_at(usual), Some(since + patience));
    producer.clients.get_mut(&usual).unwrap().record_success();
    assert_eq!(
        producer.renew_at(usual),
        None,
        "it has taken something since"
    );
    producer
        .clients
        .get_mut(&usual)
        .unwrap()
        .record_unreachable(long_ago);
    producer.renew(usual, since + patience);
    assert_eq!(producer.renew_at(usual), None, "the new one may reach one");
    assert_eq!(producer.pending(), 1, "and it has what the old one had");
    producer
        .clients
        .get_mut(&usual)
        .unwrap()
        .record_unreachable(long_ago);
    producer.end(1, Ok(()));
    assert_eq!(producer.renew_at(usual), None, "nobody needs it");
}

#[test]
fn at_the_bound_the_oldest_that_waits_in_vain_goes_first() {
    let mut producer = with(OPEN_MAX, false);
    let now = Instant::now();
    assert!(producer.is_full());
    assert_eq!(producer.make_room(now, |_| true), None, "all may be slow");
    for id in [7, 9] {
        producer.jobs.get_mut(&id).unwrap().failures = 1;
    }
    assert_eq!(producer.make_room(now, |id| *id != 7), Some(9));
    assert_eq!(producer.make_room(now, |_| true), None, "there is room");
    assert!(!producer.is_full());
    let mut producer = with(OPEN_MAX + 1, false);
    producer.end(5, Ok(()));
    assert_eq!(
        producer.make_room(now, |_| true),
        None,
        "it is not long yet"
    );
    let later = Instant::now() + SILENCE_MAX;
    assert_eq!(producer.make_room(later, |_| true), Some(1), "5 was later");
    let mut ours = with(OPEN_MAX, true);
    ours.jobs.get_mut(&7).unwrap().failures = 1;
    assert!(ours.is_full());
    assert_eq!(ours.make_room(later, |_| true), None, "ours are kept");
}
