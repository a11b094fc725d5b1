//! Messages from the source that wait for a worker with room, and the order in which they get one. The caller
//! sets the number that may wait, and gives them to workers.

use std::collections::VecDeque;
use std::rc::Rc;

use tokio::time::Instant;

use super::lane::{Search, Shared};
use super::least_loaded::Choice;
use ganger_queue::delivery::{CANCELLED, Delivery, Failure, Outcome, Reason};
use ganger_telemetry::traces;

/// Number of waiting messages from which they are given out in runs.
const RUNS_FROM: usize = 16;

/// Slot of the worker that got a message, or the message if none has room.
pub(super) type Placement = Result<usize, Box<Delivery>>;

/// Messages that wait for a worker.
#[derive(Debug)]
pub(super) struct Waiting {
    shared: Rc<Shared>,
    ordinary: VecDeque<Delivery>,
    /// Messages that wait for an idle worker.
    suspects: VecDeque<Delivery>,
    /// Minimum number of workers that share the waiting messages, also if these are given out in runs.
    parts_min: usize,
}

impl Waiting {
    pub(super) fn new(shared: Rc<Shared>) -> Self {
        Self {
            shared,
            ordinary: VecDeque::new(),
            suspects: VecDeque::new(),
            parts_min: 2 * std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ordinary.len() + self.suspects.len()
    }

    /// Returns whether messages wait that any worker with room may have.
    pub(super) fn has_ordinary(&self) -> bool {
        !self.ordinary.is_empty()
    }

    /// Returns whether messages wait for an idle worker.
    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Takes messages in as long as fewer than `most` wait, and gives the others back.
    pub(super) fn take_in(&mut self, batch: &mut Vec<Delivery>, most: usize) {
        self.shared.counters.taken(batch.len());
        let taken_at = Some(Instant::now());
        for mut delivery in batch.drain(..) {
            delivery.taken_at = taken_at;
            delivery.recording = traces::begin(&delivery);
            match () {
                () if self.len() >= most => self.shared.counters.given_back(1),
                () if delivery.history.alone => self.suspects.push_back(delivery),
                () => self.ordinary.push_back(delivery),
            }
        }
    }

    /// Gives all messages back.
    pub(super) fn give_back(&mut self) {
        self.shared.counters.given_back(self.len());
        self.ordinary.clear();
        self.suspects.clear();
    }

    /// Returns the time at which the first message has to be given back.
    pub(super) fn next_stale(&self) -> Option<Instant> {
        let first = [self.ordinary.front(), self.suspects.front()];
        let begin_by = |delivery: &Delivery| delivery.begin_by;
        first.into_iter().flatten().filter_map(begin_by).min()
    }

    /// Gives back the messages that have waited as long as their broker allows.
    pub(super) fn give_back_stale(&mut self, now: Instant) {
        for waiting in [&mut self.ordinary, &mut self.suspects] {
            let stale = |first: &mut Delivery| first.begin_by.is_some_and(|by| by <= now);
            while waiting.pop_front_if(stale).is_some() {
                self.shared.counters.given_back(1);
            }
        }
    }

    /// Gives back the messages that their source has lost: they are processed by others.
    pub(super) fn give_back_void(&mut self) {
        let before = self.len();
        self.ordinary.retain(|delivery| !delivery.is_void());
        self.suspects.retain(|delivery| !delivery.is_void());
        self.shared.counters.given_back(before - self.len());
    }

    /// Cancels the messages that the search matches.
    pub(super) fn cancel(&mut self, search: &Search) {
        for waiting in [&mut self.ordinary, &mut self.suspects] {
            let all = std::mem::take(waiting).into_iter();
            let (meant, rest): (VecDeque<_>, _) = all.partition(|one| search.means(&one.message));
            *waiting = rest;
            search.found(meant.len());
            for one in meant {
                let failure = Failure::new(Reason::Cancelled, CANCELLED);
                let outcome = Outcome::DeadLetter(Box::new(failure));
                self.shared.counters.settled(&one.message, &outcome);
                one.settle(outcome);
            }
        }
    }

    /// Gives suspects to idle workers, as far as the breaker admits them and `place` finds workers.
    pub(super) fn give_out_suspects(
        &mut self,
        now: Instant,
        mut place: impl FnMut(Delivery, Choice) -> Placement,
    ) {
        while self.admits(now)
            && let Some(delivery) = self.suspects.pop_front()
        {
            if let Err(delivery) = place(delivery, Choice::Idle) {
                return self.suspects.push_front(*delivery);
            }
            self.shared.breaker.borrow_mut().taken(now);
        }
    }

    /// Gives out the other messages, as far as the breaker admits them and `place` finds workers.
    pub(super) fn give_out(
        &mut self,
        now: Instant,
        mut place: impl FnMut(Delivery, Choice) -> Placement,
    ) {
        // One wake-up for a run of quick tasks instead of one for each.
        let in_runs = self.ordinary.len() >= RUNS_FROM && self.shared.streak.is_long(now);
        let most = self.ordinary.len().div_ceil(self.parts_min);
        let mut last = None;
        while self.admits(now)
            && let Some(delivery) = self.next_ordinary()
        {
            let choice = match in_runs {
                true => Choice::Run { last, most },
                false => Choice::LeastLoaded,
            };
            match place(delivery, choice) {
                Ok(slot) => last = Some(slot),
                Err(delivery) => return self.ordinary.push_front(*delivery),
            }
            self.shared.breaker.borrow_mut().taken(now);
        }
    }

    fn admits(&self, now: Instant) -> bool {
        self.shared.breaker.borrow().admits(now)
    }

    /// Returns the next message to try. While the breaker is open, messages tried before and new ones
    /// alternate; of each kind the first arrival is chosen, which has been due for longest.
    fn next_ordinary(&mut self) -> Option<Delivery> {
        let Some(takes_tried) = self.shared.breaker.borrow().takes_tried() else {
            return self.ordinary.pop_front();
        };
        let is_meant = |one: &Delivery| (one.history.attempt > 1) == takes_tried;
        let meant = self.ordinary.iter().position(is_meant);
        self.ordinary.remove(meant.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use tokio::sync::mpsc;

    use super::*;
    use crate::breaker::{Attempt, Evidence};
    use crate::events::{EventFeed, PoolEvents};
    use crate::lane::Sought;
    use ganger_config::model;
    use ganger_config::sample::policy;
    use ganger_queue::delivery::{Claim, History, Message, PoolEnd, SourceEnd, link};

    const SECOND: Duration = Duration::from_secs(1);

    /// Messages that wait, and both ends of the link that they came over. A message's token is its
    /// name.
    struct Scene {
        source: SourceEnd,
        pool: PoolEnd,
        waiting: Waiting,
    }

    impl Scene {
        fn new() -> Self {
            let (source, pool) = link();
            let breaker = Some(model::Breaker {
                failures: 1.0,
                of: 2,
                probe: SECOND,
            });
            let policy = Arc::new(model::PoolConfig {
                breaker,
                ..policy()
            });
            let events = PoolEvents::new(EventFeed::new(SystemTime::now()), "p");
            let (facts, publishes) = (pool.facts.clone(), pool.publishes.clone());
            let connected = mpsc::channel(1).0;
            let shared = Shared::new(policy, events, facts, publishes, connected);
            Self {
                source,
                pool,
                waiting: Waiting::new(shared.into()),
            }
        }

        /// Returns a scene with waiting messages of the given attempts, each of them alone or not.
        fn with(messages: &[(u32, bool)]) -> Self {
            let mut scene = Self::new();
            for (token, (attempt, alone)) in (0..).zip(messages) {
                let history = History {
                    attempt: *attempt,
                    alone: *alone,
                    ..History::default()
                };
                scene.source.deliver(token, message(token), history);
            }
            scene.take_in(usize::MAX);
            scene
        }

        fn take_in(&mut self, most: usize) {
            let arrived = std::iter::from_fn(|| self.pool.deliveries.try_recv().ok());
            self.waiting.take_in(&mut arrived.collect(), most);
        }

        fn open_breaker(&self, now: Instant) {
            for n in 0..2 {
                let attempt = Attempt {
                    is_first: true,
                    taken_at: Some(now),
                    message: || n.to_string(),
                };
                let mut breaker = self.waiting.shared.breaker.borrow_mut();
                breaker.record(Evidence::Down("why"), attempt, now);
            }
        }

        /// Gives out messages to `room` workers and returns their names and the rules for choosing
        /// the workers.
        fn given(&mut self, room: usize, now: Instant) -> Vec<(String, Choice)> {
            let mut given = Vec::new();
            let mut place = |one: Delivery, choice| {
                if given.len() == room {
                    return Err(one.into());
                }
                given.push((one.message.correlation_id.clone(), choice));
                Ok(given.len())
            };
            self.waiting.give_out_suspects(now, &mut place);
            self.waiting.give_out(now, &mut place);
            given
        }

        /// Returns the tokens of the messages given back, and checks that they were counted.
        fn returned(&mut self, counted: u64) -> Vec<u64> {
            let settlements = std::iter::from_fn(|| self.source.settlements.try_recv().ok());
            let tokens = settlements.map(|settlement| settlement.token).collect();
            assert_eq!(self.waiting.shared.counters.counts().returned, counted);
            tokens
        }
    }

    fn message(token: u64) -> Message {
        Message {
            queue: "q".into(),
            body: bytes::Bytes::new(),
            headers: Vec::new(),
            correlation_id: token.to_string(),
            reply_to: None,
            properties: Vec::new(),
            occurrence: None,
        }
    }

    #[test]
    fn no_more_are_taken_in_than_may_wait() {
        for (most, expected) in [(0, 0..5), (2, 2..5), (5, 5..5), (usize::MAX, 5..5)] {
            let mut scene = Scene::new();
            for token in 0..5 {
                let alone = token % 2 == 0;
                let history = History {
                    alone,
                    ..History::default()
                };
                scene.source.deliver(token, message(token), history);
            }
            scene.take_in(most);
            assert_eq!(scene.waiting.shared.counters.counts().taken, 5);
            let returned = expected.end - expected.start;
            assert_eq!(scene.waiting.len() as u64, 5 - returned);
            assert!(scene.returned(returned).into_iter().eq(expected), "{most}");
            scene.waiting.give_back();
            assert_eq!(scene.waiting.len(), 0);
            assert_eq!(scene.returned(5).len() as u64, 5 - returned);
        }
    }

    #[test]
    fn a_message_without_a_place_stays_the_first() {
        let mut scene = Scene::with(&[(1, true), (1, false), (1, true), (1, false)]);
        let now = Instant::now();
        let mut names = Vec::new();
        for room in [0, 1, 0, 2, 1] {
            let given = scene.given(room, now);
            names.extend(given.into_iter().map(|(name, choice)| {
                assert_eq!(choice == Choice::Idle, ["0", "2"].contains(&&*name));
                name
            }));
        }
        assert_eq!(names, ["0", "2", "1", "3"]);
    }

    #[test]
    fn an_open_breaker_admits_one_at_a_time_tried_and_new_by_turns() {
        let mut scene = Scene::with(&[1, 1, 2, 1, 3].map(|attempt| (attempt, false)));
        let now = Instant::now();
        scene.open_breaker(now);
        assert!(scene.given(9, now).is_empty());
        let names = (1..=5).flat_map(|second| scene.given(9, now + second * SECOND));
        let names: Vec<String> = names.map(|(name, _)| name).collect();
        assert_eq!(names, ["2", "0", "4", "1", "3"]);
    }

    #[test]
    fn many_quick_messages_go_out_in_runs() {
        let now = Instant::now();
        for (count, quick, in_runs) in [(16, 10_000, true), (15, 10_000, false), (16, 9, false)] {
            let mut scene = Scene::with(&vec![(1, false); count]);
            scene.waiting.parts_min = 4;
            let streak = &scene.waiting.shared.streak;
            streak.takes_in(quick, Duration::ZERO, now);
            let run = |last| match in_runs {
                true => Choice::Run { last, most: 4 },
                false => Choice::LeastLoaded,
            };
            let given = scene.given(2, now);
            let choices: Vec<Choice> = given.into_iter().map(|(_, choice)| choice).collect();
            assert_eq!(choices, [run(None), run(Some(1))], "{count} {quick}");
        }
    }

    #[test]
    fn stale_and_void_messages_go_back() {
        let (mut scene, now) = (Scene::new(), Instant::now());
        let claims = [Claim::default(), Claim::default()];
        for (token, (claim, seconds, alone)) in
            (0..).zip([(0, 3, false), (1, 1, true), (0, 2, true), (1, 4, false)])
        {
            let history = History {
                alone,
                ..History::default()
            };
            let by = now + seconds * SECOND;
            let source = &scene.source;
            source.deliver_by(&claims[claim], token, message(token), history, by);
        }
        scene.take_in(usize::MAX);
        assert_eq!(scene.waiting.next_stale(), Some(now + SECOND));
        scene.waiting.give_back_stale(now);
        assert!(scene.returned(0).is_empty());
        scene.waiting.give_back_stale(now + SECOND);
        assert_eq!(scene.returned(1), [1]);
        assert_eq!(scene.waiting.next_stale(), Some(now + 2 * SECOND));
        let [lost, _kept] = claims;
        drop(lost);
        scene.waiting.give_back_void();
        assert_eq!(scene.returned(3), [0, 2]);
        assert_eq!(scene.waiting.len(), 1);
    }

    #[test]
    fn a_cancelled_message_is_a_dead_letter_and_the_others_wait_on() {
        let mut scene = Scene::with(&[(1, false), (1, true), (1, false)]);
        let (asker, mut found) = tokio::sync::oneshot::channel();
        let search = Search::new("p".to_owned(), Sought::Name("1".to_owned()), asker);
        scene.waiting.cancel(&search);
        drop(search);
        assert_eq!(found.try_recv(), Ok(1));
        let settlement = scene.source.settlements.try_recv().unwrap();
        assert_eq!(settlement.token, 1);
        assert!(matches!(settlement.outcome, Outcome::DeadLetter(_)));
        assert_eq!(scene.given(9, Instant::now()).len(), 2);
    }
}
