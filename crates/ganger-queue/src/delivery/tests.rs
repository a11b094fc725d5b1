//! Tests of `delivery`.

use bytes::Bytes;

use super::*;

fn message(body: &'static str) -> Message {
    Message {
        queue: "q".into(),
        body: Bytes::from_static(body.as_bytes()),
        headers: Vec::new(),
        correlation_id: String::new(),
        reply_to: None,
        properties: Vec::new(),
    }
}

#[test]
fn a_settled_delivery_reaches_the_source_once() {
    let (mut source, mut pool) = link();
    source.deliver(7, message("a"), History::default());
    pool.deliveries.try_recv().unwrap().settle(Outcome::Done);
    let settlement = source.settlements.try_recv().unwrap();
    assert_eq!((settlement.token, settlement.outcome), (7, Outcome::Done));
    assert!(source.settlements.try_recv().is_err());
}

#[test]
fn what_is_out_is_void_without_its_claim_and_settled_all_the_same() {
    let (mut source, mut pool) = link();
    let claims = [Claim::default(), Claim::default()];
    for (token, claim) in (1..).zip(&claims) {
        source.deliver_under(claim, token, message("a"), History::default());
    }
    source.deliver(3, message("b"), History::default());
    let out: Vec<Delivery> = std::iter::from_fn(|| pool.deliveries.try_recv().ok()).collect();
    let void = || out.iter().map(Delivery::is_void).collect::<Vec<_>>();
    assert_eq!(void(), [false, false, false]);
    let [lost, _kept] = claims;
    drop(lost);
    assert!(!pool.state.has_changed().unwrap());
    source.lost();
    assert!(pool.state.has_changed().unwrap());
    assert_eq!(void(), [true, false, false]);
    drop(out);
    let mut tokens = std::iter::from_fn(|| source.settlements.try_recv().ok());
    assert!(tokens.by_ref().map(|settlement| settlement.token).eq(1..=3));
}

#[test]
fn what_is_begun_may_go_on_without_its_claim() {
    let (source, mut pool) = link();
    let claims = [Claim::default(), Claim::default()];
    let begin_by = Instant::now();
    source.deliver_under(&claims[0], 1, message("a"), History::default());
    source.deliver_by(&claims[1], 2, message("b"), History::default(), begin_by);
    let out: Vec<Delivery> = std::iter::from_fn(|| pool.deliveries.try_recv().ok()).collect();
    let given_up = |begun| out.iter().map(move |one| one.is_given_up(begun));
    assert!(given_up(false).chain(given_up(true)).all(|is| !is));
    drop(claims);
    assert!(given_up(false).eq([true, true]));
    assert!(given_up(true).eq([true, false]));
}

#[test]
fn a_dropped_delivery_goes_back() {
    let (mut source, mut pool) = link();
    source.deliver(7, message("a"), History::default());
    drop(pool.deliveries.try_recv().unwrap());
    let settlement = source.settlements.try_recv().unwrap();
    assert_eq!(settlement.outcome, Outcome::Return { suspect: false });
}

#[test]
fn a_pool_that_is_gone_gives_everything_back() {
    let (mut source, pool) = link();
    source.deliver(1, message("waiting in the channel"), History::default());
    drop(pool);
    source.deliver(2, message("too late"), History::default());
    let tokens: Vec<u64> = std::iter::from_fn(|| source.settlements.try_recv().ok())
        .map(|s| s.token)
        .collect();
    assert_eq!(tokens, [1, 2]);
}
