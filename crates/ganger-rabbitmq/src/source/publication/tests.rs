//! Publications of each outcome, and their substitutes when they are refused.

use std::sync::LazyLock;

use super::*;

const COUNTERS: Counters = Counters {
    attempts: 1,
    crashes: 0,
    requeues: 0,
    first_failed_ms: Some(5),
    span: None,
};

static KEY: LazyLock<CopyKey> = LazyLock::new(|| CopyKey::from_secret("s"));
static TARGETS: LazyLock<Targets> = LazyLock::new(Targets::default);

fn press() -> Composer<'static> {
    Composer {
        pool: "p",
        queue: "work",
        dead: "work.dead",
        key: &KEY,
        targets: &TARGETS,
        frame_max: 131_072,
        now_ms: 9,
        random: 1,
    }
}

fn reply() -> Box<Outgoing> {
    Box::new(Outgoing {
        queue: "answers".into(),
        body: Bytes::from_static(b"result"),
        ..Outgoing::default()
    })
}

fn letter(failure: Failure, form: DeadLetterDetail) -> Publication {
    Publication::DeadLetter {
        counters: COUNTERS,
        failure: Box::new(failure),
        form,
    }
}

fn retry(delay: Duration) -> Publication {
    Publication::Retry {
        counters: COUNTERS,
        delay,
        failure: Box::default(),
    }
}

fn parcels(press: Composer<'_>, publication: &Publication) -> Result<Vec<OutboundMessage>, String> {
    let original = Original::default();
    let body = Bytes::from_static(b"body");
    let subject = Subject {
        original: &original,
        body: &body,
        arrival: Arrival {
            lapses: 2,
            turn: Some(7),
            ..Arrival::default()
        },
    };
    press.parcels(&subject, publication)
}

fn only(publication: &Publication) -> OutboundMessage {
    let mut parcels = parcels(press(), publication).unwrap();
    assert_eq!(parcels.len(), 1);
    parcels.remove(0)
}

fn own(parcel: &OutboundMessage, name: &str) -> Option<String> {
    let headers = parcel.properties.headers().as_ref()?;
    Some(crate::broker::field_table::text(headers.inner().get(name)?))
}

#[test]
fn each_aim_has_its_queue() {
    let second = Duration::from_secs(1);
    let requeue = Publication::Requeue {
        counters: COUNTERS,
        after: second / 10,
    };
    let cases = [
        (Publication::Reply(reply()), "answers", None),
        (retry(second), "work.retry.1s", Some("1000")),
        (retry(second + second / 100), "work.retry.2s", Some("1010")),
        (requeue, "work.retry.250ms", Some("100")),
        (Publication::Back, "work", None),
        (Publication::Turn, "work", None),
        (Publication::Parked, "work.retry.8s", Some("5000")),
        (
            letter(Failure::default(), DeadLetterDetail::Full),
            "work.dead",
            None,
        ),
        (
            letter(Failure::default(), DeadLetterDetail::Bare),
            "work.dead",
            None,
        ),
    ];
    for (publication, queue, expiration) in cases {
        let parcel = only(&publication);
        assert_eq!(parcel.to.as_str(), queue, "{publication:?}");
        let runs_out = parcel.properties.expiration().as_ref();
        assert_eq!(
            runs_out.map(ShortString::as_str),
            expiration,
            "{publication:?}"
        );
        assert!(parcel.mandatory, "{publication:?}");
        assert_eq!(
            parcel.properties.delivery_mode(),
            &Some(PERSISTENT),
            "{publication:?}"
        );
        let body: &[u8] = if queue == "answers" {
            b"result"
        } else {
            b"body"
        };
        assert_eq!(parcel.body, body, "{publication:?}");
    }
}

#[test]
fn only_a_turn_that_begins_and_what_waits_for_one_tell_of_a_suspect() {
    let marks = |publication: &Publication| {
        let parcel = only(publication);
        ["x-ganger-lapses", "x-ganger-turn"].map(|name| own(&parcel, name))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(marks(&Publication::Turn), [some("2"), some("7")]);
    assert_eq!(marks(&Publication::Back), [some("2"), None]);
    assert_eq!(marks(&Publication::Parked), [some("2"), None]);
    // It was answered, so the message that follows is another run.
    assert_eq!(marks(&retry(Duration::ZERO)), [None, None]);
}

#[test]
fn a_direct_reply_does_not_come_back() {
    let direct = Outgoing {
        queue: "amq.rabbitmq.reply-to.g1h2".into(),
        ..Outgoing::default()
    };
    assert!(!only(&Publication::Reply(Box::new(direct))).mandatory);
}

#[test]
fn a_large_reply_is_safe_before_its_letter() {
    let failure = Failure {
        reply: Some(Box::new(Outgoing {
            body: vec![1; 100_000].into(),
            ..*reply()
        })),
        ..Failure::default()
    };
    let both = parcels(press(), &letter(failure.clone(), DeadLetterDetail::Full)).unwrap();
    assert_eq!((both.len(), both[0].body.len()), (2, 100_000));
    let id = own(&both[1], header::DEAD_LETTER_ID).unwrap();
    assert_eq!(own(&both[0], header::REPLY_OF).unwrap(), id);
    let without = parcels(press(), &letter(failure, DeadLetterDetail::WithoutReply)).unwrap();
    assert_eq!(without.len(), 1);
}

const ARRIVAL: Arrival = Arrival {
    counters: COUNTERS,
    redelivered: false,
    suspect: false,
    lapses: 0,
    turn: None,
    number: None,
    returns: 0,
    excused: 0,
    is_unreadable: false,
};

/// Forms of the following dead letters, and the failure in the last of them.
fn forms(mut publication: Publication) -> (Vec<DeadLetterDetail>, Failure) {
    let (mut forms, mut last) = (Vec::new(), Failure::default());
    while let Some(substitute) = substitute(publication, ARRIVAL, 9, "too large") {
        let Publication::DeadLetter {
            form,
            failure,
            counters,
        } = &substitute
        else {
            panic!("{substitute:?}")
        };
        assert_eq!(
            counters.attempts, 2,
            "the work was done: this attempt counts"
        );
        forms.push(*form);
        last = failure.as_ref().clone();
        publication = substitute;
    }
    (forms, last)
}

#[test]
fn what_is_refused_becomes_plainer_until_nothing_is_left() {
    let (small, said) = forms(Publication::Reply(reply()));
    assert_eq!(
        small,
        [
            DeadLetterDetail::Full,
            DeadLetterDetail::WithoutReply,
            DeadLetterDetail::Short,
            DeadLetterDetail::Bare
        ]
    );
    assert_eq!(
        said.error,
        "the reply to `answers` can't be delivered: too large; the reply can't be stored \
         either: too large"
    );
    let large = Outgoing {
        body: vec![1; 5 << 20].into(),
        ..*reply()
    };
    let (large, _) = forms(Publication::Reply(Box::new(large)));
    let shorter = [
        DeadLetterDetail::ShortReply(1 << 20),
        DeadLetterDetail::ShortReply(16 << 10),
    ];
    let expected = [&[DeadLetterDetail::Full], &shorter[..], &small[1..]].concat();
    assert_eq!(large, expected);
    assert!(matches!(
        substitute(retry(Duration::ZERO), ARRIVAL, 9, "too large"),
        Some(Publication::DeadLetter {
            form: DeadLetterDetail::Full,
            ..
        })
    ));
    let without = letter(Failure::default(), DeadLetterDetail::Full);
    assert!(matches!(
        substitute(without, ARRIVAL, 9, "too large"),
        Some(Publication::DeadLetter {
            form: DeadLetterDetail::Short,
            ..
        })
    ));
}

#[test]
fn what_can_not_go_back_goes_to_the_dead_before_the_broker_drops_it() {
    let returned = |returns| Arrival { returns, ..ARRIVAL };
    for publication in [Publication::Back, Publication::Parked] {
        let few = returned(RETURNS_MAX - 1);
        assert_eq!(substitute(publication.clone(), few, 9, "too large"), None);
        let Some(Publication::DeadLetter {
            counters, failure, ..
        }) = substitute(publication, returned(RETURNS_MAX), 9, "too large")
        else {
            panic!("nothing is left")
        };
        assert_eq!(counters, COUNTERS, "nobody has worked on it");
        assert_eq!(
            failure.error,
            "returned to its queue 15 times, and the queue accepts no copy of it: too large"
        );
    }
    assert_eq!(
        substitute(Publication::Turn, returned(RETURNS_MAX), 9, ""),
        None
    );
}

#[test]
fn a_reply_that_is_too_large_says_how_much_of_it_is_not_there() {
    let failure = Failure {
        reply: Some(Box::new(Outgoing {
            body: [vec![1; 16 << 10], vec![2; 100]].concat().into(),
            ..*reply()
        })),
        ..Failure::default()
    };
    let both = parcels(
        press(),
        &letter(failure, DeadLetterDetail::ShortReply(16 << 10)),
    )
    .unwrap();
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].body, vec![1; 16 << 10]);
    assert_eq!(
        own(&both[0], header::REPLY_HEADERS).unwrap(),
        r#"[["x-ganger-reply-cut","100"]]"#
    );
}

#[test]
fn headers_that_do_not_fit_are_found_before_the_broker_hangs_up() {
    let tight = Composer {
        frame_max: 4096 + 300,
        ..press()
    };
    let why = parcels(tight, &letter(Failure::default(), DeadLetterDetail::Full)).unwrap_err();
    assert!(
        why.starts_with("its headers must fit into a frame of 300 bytes"),
        "{why}"
    );
    assert!(parcels(tight, &letter(Failure::default(), DeadLetterDetail::Bare)).is_ok());
    let nowhere = Outgoing {
        queue: "q".repeat(256),
        ..Outgoing::default()
    };
    let why = parcels(press(), &Publication::Reply(Box::new(nowhere))).unwrap_err();
    assert_eq!(why, "its queue's name must be at most 255 bytes: 256 bytes");
}
