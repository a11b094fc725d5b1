//! Tracks, one case at a time.

use std::time::Duration;

use super::track::{BURST, LOW};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Tracks with one channel.
fn tracks() -> (Tracks<usize>, Instant) {
    let (mut tracks, now) = (Tracks::each(), Instant::now());
    tracks.adopt(0, 2047, now);
    (tracks, now)
}

/// Sends the messages that may be sent; returns them, by tracks.
fn sent(tracks: &mut Tracks<usize>, now: Instant) -> Vec<(usize, u64)> {
    let mut sent = Vec::new();
    while let Some(step) = tracks.next(now) {
        match step {
            TrackStep::Open(track) => tracks.opened(track, track, now),
            TrackStep::Send { track, id } => sent.push((track, id)),
        }
    }
    sent
}

#[test]
fn a_queue_may_leave_two_hundred_unconfirmed_and_then_few_before_more() {
    let (mut tracks, now) = tracks();
    for id in 0..1000 {
        tracks.push(id, &"answers".into(), 1);
    }
    assert_eq!(sent(&mut tracks, now).len(), LOW + BURST);
    for id in 0..170 {
        tracks.record_answer(id, now);
        assert_eq!(sent(&mut tracks, now), []);
    }
    tracks.record_answer(170, now);
    assert_eq!(sent(&mut tracks, now).len(), 1 + BURST);
}

#[test]
fn a_queue_may_leave_a_mebibyte_unconfirmed_or_one_of_any_size() {
    let (mut tracks, now) = tracks();
    for (id, bytes) in [(0, 5 << 20), (1, 1 << 19), (2, 1 << 19), (3, 1)] {
        tracks.push(id, &"answers".into(), bytes);
    }
    assert_eq!(sent(&mut tracks, now), [(0, 0)]);
    tracks.record_answer(0, now);
    assert_eq!(sent(&mut tracks, now), [(0, 1), (0, 2)]);
    tracks.record_answer(1, now);
    assert_eq!(sent(&mut tracks, now), [(0, 3)]);
}

/// Each may hold a mebibyte; together they take all the room of those that answer, for a second.
#[test]
fn nobody_waits_for_longer_than_a_second_for_room_that_silent_ones_have() {
    let (mut tracks, now) = tracks();
    for (id, queue) in ["a", "b", "c"].into_iter().enumerate() {
        tracks.push(u64::try_from(id).unwrap(), &queue.into(), 1 << 20);
    }
    assert_eq!(sent(&mut tracks, now).len(), 2);
    assert_eq!(tracks.alarm(now), Some(now + SECOND));
    assert_eq!(sent(&mut tracks, now + SECOND).len(), 1);
    assert_eq!(tracks.alarm(now + SECOND), None);
}

/// The same for the number of tracks; a queue keeps its track while no other needs it.
#[test]
fn a_silent_queue_keeps_its_track_and_others_get_more() {
    let (mut tracks, now) = tracks();
    let count = u64::try_from(ANSWERING_MAX).unwrap();
    for id in 0..=count {
        tracks.push(id, &id.to_string().into(), 1);
    }
    assert_eq!(sent(&mut tracks, now).len(), ANSWERING_MAX);
    assert_eq!(sent(&mut tracks, now + SECOND).len(), 1);
    tracks.record_answer(count, now + SECOND);
    tracks.push(count + 1, &count.to_string().into(), 1);
    tracks.push(count + 2, &"0".into(), 1);
    let track = ANSWERING_MAX;
    assert_eq!(
        sent(&mut tracks, now + SECOND),
        [(0, count + 2), (track, count + 1)]
    );
}

#[test]
fn no_more_channels_are_opened_than_the_broker_allows_or_listens_to() {
    let (mut tracks, now) = (Tracks::each(), Instant::now());
    tracks.adopt(0, 2, now);
    for id in 0..3 {
        tracks.push(id, &id.to_string().into(), 1);
    }
    tracks.hold(true);
    assert_eq!(sent(&mut tracks, now), [(0, 0)]);
    tracks.hold(false);
    assert_eq!(sent(&mut tracks, now), [(1, 1)]);
    tracks.record_answer(0, now);
    assert_eq!(sent(&mut tracks, now), [(0, 2)]);
    tracks.limit_to_open();
    tracks.requeue_all();
    tracks.adopt(0, 2047, now);
    for id in 3..6 {
        tracks.push(id, &id.to_string().into(), 1);
    }
    assert_eq!(sent(&mut tracks, now).len(), 2);
}

/// A queue that always has messages to send gives its track up in time.
#[test]
fn a_busy_queue_gives_way_to_those_that_wait_for_a_track() {
    let (mut tracks, now) = (Tracks::each(), Instant::now());
    tracks.adopt(0, 1, now);
    for id in 0..1000 {
        tracks.push(id, &"busy".into(), 1);
    }
    let first = sent(&mut tracks, now);
    tracks.push(1000, &"other".into(), 1);
    for (_, id) in &first[1..] {
        tracks.record_answer(*id, now);
        assert_eq!(sent(&mut tracks, now), []);
    }
    tracks.record_answer(first[0].1, now);
    assert_eq!(sent(&mut tracks, now), [(0, 1000)]);
    tracks.record_answer(1000, now);
    assert_eq!(sent(&mut tracks, now).len(), LOW + BURST);
}

/// The end of a channel affects only its own track: each message there is sent alone, until one is found.
#[test]
fn who_ends_a_channel_is_found_while_others_go_on() {
    let (mut tracks, now) = tracks();
    for id in 0..3 {
        tracks.push(id, &"answers".into(), 1);
    }
    tracks.push(3, &"others".into(), 1);
    assert_eq!(sent(&mut tracks, now).len(), 4);
    tracks.forget(2);
    for id in 0..3 {
        assert_eq!(tracks.ended(), None);
        tracks.lose(id);
    }
    let end = tracks.settle_end(tracks.ended().unwrap(), true);
    assert_eq!((end.refused, end.forgotten), (None, vec![2]));
    tracks.push(4, &"others".into(), 1);
    tracks.push(5, &"answers".into(), 1);
    assert_eq!(sent(&mut tracks, now), [(1, 4), (0, 0)]);
    assert_eq!(tracks.alone(0), Some(0));
    tracks.record_answer(0, now);
    assert_eq!(sent(&mut tracks, now), [(0, 1)]);
    tracks.lose(1);
    let end = tracks.settle_end(tracks.ended().unwrap(), true);
    assert_eq!(end.refused, Some(1));
    assert_eq!(sent(&mut tracks, now), [(0, 5)]);
    assert_eq!(tracks.len(), 3);
}

/// The broker may have received only messages sent before the one that ended the channel, and they may run
/// twice.
#[test]
fn what_is_refused_was_not_taken_nor_what_was_sent_after_it() {
    let (mut tracks, now) = tracks();
    for id in 0..4 {
        tracks.push(id, &"answers".into(), 1);
    }
    sent(&mut tracks, now);
    (0..4).for_each(|id| tracks.lose(id));
    assert_eq!(tracks.settle_end(0, true).refused, None);
    for (id, had_it) in [(0, true), (1, false), (2, false), (3, false)] {
        assert_eq!(sent(&mut tracks, now), [(0, id)]);
        if id == 1 {
            tracks.lose(id);
            assert_eq!(tracks.settle_end(0, true).refused, Some(id));
        } else {
            assert_eq!(tracks.record_answer(id, now), had_it);
        }
    }
}

/// A silent suspect does not hold the others back, and is not the cause of later events.
#[test]
fn a_silent_suspect_is_waited_for_by_nobody() {
    let (mut tracks, now) = tracks();
    for id in 0..2 {
        tracks.push(id, &"answers".into(), 1);
    }
    sent(&mut tracks, now);
    tracks.lose(0);
    tracks.lose(1);
    tracks.settle_end(0, false);
    assert_eq!(sent(&mut tracks, now), [(0, 0)]);
    assert!(
        !tracks.is_stuck(0) && tracks.is_stuck(1),
        "that one is not sent"
    );
    tracks.mark_silent(0);
    assert!(tracks.is_stuck(0));
    assert_eq!(sent(&mut tracks, now), [(0, 1)]);
    tracks.lose(0);
    tracks.lose(1);
    assert_eq!(tracks.settle_end(0, true).refused, Some(1));
    assert_eq!(sent(&mut tracks, now), [(0, 0)]);
}

#[test]
fn over_a_new_connection_all_is_sent_again_but_for_what_is_forgotten() {
    let (mut tracks, now) = tracks();
    for id in 0..6 {
        let queue = if id < 4 { "answers" } else { "others" };
        tracks.push(id, &queue.into(), 1);
    }
    sent(&mut tracks, now);
    tracks.suspect_all(0);
    assert!(tracks.forget(1), "its word may come");
    tracks.push(6, &"answers".into(), 1);
    assert!(!tracks.forget(6));
    assert_eq!(tracks.requeue_all(), 6, "that one may have been taken");
    tracks.adopt(0, 2047, now);
    let mut first = sent(&mut tracks, now);
    first.sort_unstable();
    assert_eq!(first, [(0, 0), (1, 4), (1, 5)]);
    tracks.record_answer(0, now);
    assert_eq!(sent(&mut tracks, now), [(0, 2)]);
}

#[test]
fn what_waits_for_a_queue_that_says_nothing_is_unanswered_too() {
    let (mut tracks, now) = tracks();
    let count = u64::try_from(LOW + BURST).unwrap();
    for id in 0..=count {
        tracks.push(id, &"answers".into(), 1);
    }
    assert_eq!(tracks.unanswered_since(0), None);
    sent(&mut tracks, now);
    assert_eq!(tracks.unanswered_since(0), Some(now));
    assert_eq!(tracks.unanswered_since(count), Some(now));
    let later = now + SECOND;
    tracks.record_answer(0, later);
    assert_eq!(tracks.unanswered_since(1), Some(now));
    assert_eq!(tracks.unanswered_since(count), Some(later));
    tracks.restart_waits(later + SECOND);
    assert_eq!(tracks.unanswered_since(1), Some(later + SECOND));
    assert_eq!(tracks.unanswered_since(count + 1), None);
}

/// A command waits for all its messages, and needs one channel, on which order is kept.
#[test]
fn a_command_uses_one_channel_for_all() {
    let (mut tracks, now) = (Tracks::one(), Instant::now());
    tracks.adopt(0, 2047, now);
    for id in 0..2000 {
        tracks.push(id, &(id % 7).to_string().into(), 1);
    }
    let first = sent(&mut tracks, now);
    let in_order = (0..1024).map(|id| (0, id));
    assert_eq!(first, in_order.collect::<Vec<_>>());
    assert_eq!(sent(&mut tracks, now + SECOND * 60), [], "silent or not");
}

/// A direct reply-to address is not a queue: it is answered at once.
#[test]
fn all_direct_replies_share_a_track() {
    let (mut tracks, now) = tracks();
    for id in 0..3 {
        let to = format!("amq.rabbitmq.reply-to.{id}");
        tracks.push(id, &to.as_str().into(), 1);
    }
    assert_eq!(sent(&mut tracks, now), [(0, 0), (0, 1), (0, 2)]);
}
