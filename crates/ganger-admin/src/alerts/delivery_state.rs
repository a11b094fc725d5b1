//! The webhook's known state of the alerts, and the next message to it. There is no queue: a
//! message is the difference between the actual and the known state, so that after an outage only
//! the current state is sent, and no more messages wait than there are alerts. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::alert::{Alert, AlertKey, Ended};

/// Actual and known state of the alerts of a webhook.
#[derive(Debug, Default)]
pub(super) struct DeliveryState {
    entries: BTreeMap<AlertKey, DeliveredAlert>,
    /// The message in flight.
    on_its_way: Option<InFlight>,
}

#[derive(Debug)]
struct DeliveredAlert {
    /// The alert, in its last state.
    alert: Alert,
    /// Its end, and when that was observed.
    end: Option<End>,
    known: Known,
    /// True if it is not told that it is firing, nor again.
    is_silenced: bool,
    /// Time at which the webhook last took a message about it.
    told_at: Option<Instant>,
}

/// End of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// The reason.
    pub(super) why: Ended,
    /// The time.
    pub(super) at: SystemTime,
}

/// The webhook's knowledge of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It knows nothing of it, or that it has ended.
    Nothing,
    /// A message was sent, and the webhook has not confirmed it.
    Unclear,
    /// It knows that the alert is firing.
    Firing,
}

#[derive(Debug)]
struct InFlight {
    key: AlertKey,
    is_end: bool,
    before: Known,
}

/// A message for the webhook.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    /// The alert.
    pub(super) alert: Alert,
    /// Its end.
    pub(super) end: Option<End>,
}

/// Result of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendResult {
    /// The webhook has taken it, or will never take it.
    Done,
    /// The webhook has not received it.
    Unseen,
    /// The webhook may have received it or not.
    Unclear,
}

impl DeliveryState {
    /// Sets the current alerts.
    pub(super) fn firing<'a>(&mut self, alerts: impl Iterator<Item = (&'a AlertKey, &'a Alert)>) {
        for (key, alert) in alerts {
            let entry = self
                .entries
                .entry(key.clone())
                .or_insert_with(|| DeliveredAlert {
                    alert: alert.clone(),
                    end: None,
                    known: Known::Nothing,
                    is_silenced: false,
                    told_at: None,
                });
            entry.alert.clone_from(alert);
            entry.end = None;
        }
    }

    /// Sets which alerts are silenced. That a known one has ended is told all the same.
    pub(super) fn silence(&mut self, is_silenced: impl Fn(&AlertKey) -> bool) {
        for (key, entry) in &mut self.entries {
            entry.is_silenced = is_silenced(key);
        }
    }

    /// Ends these alerts. Of one that is unknown to the webhook nothing is sent.
    pub(super) fn ended(&mut self, ended: &[(AlertKey, Ended)], at: SystemTime) {
        for (key, why) in ended {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.end = Some(End { why: *why, at });
            }
        }
        self.forget();
    }

    /// Ends all alerts.
    pub(super) fn end_all(&mut self, why: Ended, at: SystemTime) {
        let entries = self.entries.values_mut();
        for entry in entries.filter(|entry| entry.end.is_none()) {
            entry.end = Some(End { why, at });
        }
        self.forget();
    }

    /// Returns the next message, which is in flight from now on: of several that of the oldest
    /// alert. None while one is in flight, or if there is nothing to send.
    pub(super) fn next(&mut self, now: Instant, repeat: Option<Duration>) -> Option<Message> {
        if self.on_its_way.is_some() {
            return None;
        }
        let is_due = |entry: &DeliveredAlert| match (entry.end, entry.known) {
            (Some(_), known) => known != Known::Nothing,
            (None, _) if entry.is_silenced => false,
            (None, Known::Nothing | Known::Unclear) => true,
            (None, Known::Firing) => repeat
                .zip(entry.told_at)
                .is_some_and(|(repeat, told_at)| now - told_at >= repeat),
        };
        let due = self.entries.iter_mut().filter(|(_, entry)| is_due(entry));
        let (key, entry) = due.min_by_key(|(_, entry)| entry.alert.since)?;
        self.on_its_way = Some(InFlight {
            key: key.clone(),
            is_end: entry.end.is_some(),
            before: entry.known,
        });
        entry.known = Known::Unclear;
        Some(Message {
            alert: entry.alert.clone(),
            end: entry.end,
        })
    }

    /// Takes the result of the message in flight.
    pub(super) fn handle_result(&mut self, result: SendResult, now: Instant) {
        let Some(InFlight {
            key,
            is_end,
            before,
        }) = self.on_its_way.take()
        else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.known = match result {
                SendResult::Unseen => before,
                SendResult::Unclear => Known::Unclear,
                SendResult::Done if is_end => Known::Nothing,
                SendResult::Done => Known::Firing,
            };
            if result == SendResult::Done {
                entry.told_at = Some(now);
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        let needless =
            |entry: &DeliveredAlert| entry.end.is_some() && entry.known == Known::Nothing;
        self.entries.retain(|_, entry| !needless(entry));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::alert::{AlertKind, Finding};
    use super::*;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    impl DeliveryState {
        /// Returns whether no message waits or is in flight.
        fn is_done(&self) -> bool {
            let is_told =
                |entry: &DeliveredAlert| entry.end.is_none() && entry.known == Known::Firing;
            self.on_its_way.is_none() && self.entries.values().all(is_told)
        }
    }

    fn alert(subject: &str) -> (AlertKey, Alert) {
        let finding = Finding {
            kind: AlertKind::PoolDegraded,
            subject: subject.to_owned(),
            pool: Some(subject.to_owned()),
            source: Some("main".into()),
            queue: None,
            summary: String::new(),
            details: serde_json::Map::new(),
            error: None,
            stderr: Vec::new(),
            command: String::new(),
        };
        let key = finding.key();
        (key, Alert { finding, since: AT })
    }

    fn fire(delivery: &mut DeliveryState, subject: &str) {
        let (key, alert) = alert(subject);
        delivery.firing([(&key, &alert)].into_iter());
    }

    fn end(delivery: &mut DeliveryState, subject: &str) {
        delivery.ended(&[(alert(subject).0, Ended::Over)], AT);
    }

    /// Returns the next message, and gives it this result.
    fn says(delivery: &mut DeliveryState, result: SendResult) -> Option<String> {
        let now = Instant::now();
        let message = delivery.next(now, None)?;
        assert_eq!(delivery.next(now, None), None, "one at a time");
        delivery.handle_result(result, now);
        let state = if message.end.is_some() { "end of " } else { "" };
        Some(format!("{state}{}", message.alert.finding.subject))
    }

    #[test]
    fn each_is_told_once_and_so_is_its_end() {
        let mut delivery = DeliveryState::default();
        for _ in 0..1000 {
            fire(&mut delivery, "p");
            let said = says(&mut delivery, SendResult::Done);
            assert!(said.is_none_or(|it| it == "p"));
        }
        assert!(delivery.is_done());
        end(&mut delivery, "p");
        assert_eq!(
            says(&mut delivery, SendResult::Done).as_deref(),
            Some("end of p")
        );
        assert_eq!(says(&mut delivery, SendResult::Done), None);
        assert!(delivery.entries.is_empty());
    }

    #[test]
    fn of_what_came_and_went_while_it_was_away_nothing_is_told() {
        let mut delivery = DeliveryState::default();
        fire(&mut delivery, "p");
        assert_eq!(
            says(&mut delivery, SendResult::Unseen).as_deref(),
            Some("p")
        );
        end(&mut delivery, "p");
        assert_eq!(says(&mut delivery, SendResult::Done), None);
        fire(&mut delivery, "q");
        assert_eq!(
            says(&mut delivery, SendResult::Unclear).as_deref(),
            Some("q")
        );
        end(&mut delivery, "q");
        let said = says(&mut delivery, SendResult::Done);
        assert_eq!(said.as_deref(), Some("end of q"), "it may have heard of it");
    }

    #[test]
    fn what_ends_while_it_is_on_its_way_is_told_to_have_ended() {
        let mut delivery = DeliveryState::default();
        fire(&mut delivery, "p");
        assert!(delivery.next(Instant::now(), None).is_some());
        end(&mut delivery, "p");
        delivery.handle_result(SendResult::Done, Instant::now());
        assert_eq!(
            says(&mut delivery, SendResult::Done).as_deref(),
            Some("end of p")
        );
        assert!(delivery.is_done());
    }

    #[test]
    fn what_goes_on_is_repeated_if_that_is_wanted() {
        let mut delivery = DeliveryState::default();
        let start = Instant::now();
        let hour = Duration::from_secs(3600);
        fire(&mut delivery, "p");
        let mut said = Vec::new();
        for minute in 0..=150 {
            let now = start + Duration::from_secs(60) * minute;
            if delivery.next(now, Some(hour)).is_some() {
                delivery.handle_result(SendResult::Done, now);
                said.push(minute);
            }
        }
        assert_eq!(said, [0, 60, 120]);
    }

    #[test]
    fn of_a_silenced_one_only_its_end_is_told_if_it_was_known() {
        let mut delivery = DeliveryState::default();
        let told = |delivery: &mut DeliveryState| says(delivery, SendResult::Done);
        fire(&mut delivery, "known");
        assert_eq!(told(&mut delivery).as_deref(), Some("known"));
        fire(&mut delivery, "new");
        delivery.silence(|_| true);
        let later = Instant::now() + Duration::from_secs(7200);
        let hour = Duration::from_secs(3600);
        assert_eq!(delivery.next(later, Some(hour)), None, "nor is it repeated");
        end(&mut delivery, "known");
        assert_eq!(told(&mut delivery).as_deref(), Some("end of known"));
        delivery.silence(|(_, subject)| subject != "new");
        assert_eq!(told(&mut delivery).as_deref(), Some("new"), "it lasts");
        fire(&mut delivery, "unknown");
        delivery.silence(|(_, subject)| subject == "unknown");
        end(&mut delivery, "unknown");
        assert_eq!(told(&mut delivery), None);
        assert_eq!(delivery.entries.len(), 1);
    }

    proptest! {
        /// In the end, whatever comes and goes, and whatever the results of messages, the webhook
        /// knows the actual state, and nothing is kept of ended alerts.
        #[test]
        fn in_the_end_it_knows_what_is_so(
            steps in prop::collection::vec((0..3_usize, any::<bool>(), 0..4_u8, any::<bool>()), 1..200),
        ) {
            let names = ["a", "b", "c"];
            let (mut delivery, now) = (DeliveryState::default(), Instant::now());
            let (mut so, mut known) = (BTreeSet::new(), BTreeSet::new());
            let hear = |message: &Message, known: &mut BTreeSet<String>| {
                let subject = message.alert.finding.subject.clone();
                match message.end {
                    Some(_) => known.remove(&subject),
                    None => known.insert(subject),
                };
            };
            for (which, fires, result, arrives) in steps {
                let message = delivery.next(now, None);
                // It changes while a message is on its way.
                if fires { fire(&mut delivery, names[which]); so.insert(names[which].to_owned()); }
                else { end(&mut delivery, names[which]); so.remove(names[which]); }
                if let Some(message) = message {
                    let result = match result { 0 | 1 => SendResult::Done, 2 => SendResult::Unseen, _ => SendResult::Unclear };
                    if result == SendResult::Done || (result == SendResult::Unclear && arrives) {
                        hear(&message, &mut known);
                    }
                    delivery.handle_result(result, now);
                }
                prop_assert!(delivery.entries.len() <= names.len());
            }
            while let Some(message) = delivery.next(now, None) {
                hear(&message, &mut known);
                delivery.handle_result(SendResult::Done, now);
            }
            prop_assert_eq!(&known, &so);
            prop_assert!(delivery.is_done());
            prop_assert_eq!(delivery.entries.len(), so.len());
        }
    }
}
