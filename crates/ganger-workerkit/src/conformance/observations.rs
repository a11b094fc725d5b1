//! Frames that a worker has written of its own accord: notes and replies are optional, but those that it
//! sends are examined. Plain data.

use std::collections::BTreeMap;

use super::duties::Duty;
use super::finding::Finding;
use ganger_protocol::output::Output;
use ganger_protocol::status::{Answer, Meaning, Note};

/// Levels that a LOG may have.
const LEVELS: [&str; 8] = [
    "trace", "debug", "info", "warn", "warning", "error", "critical", "fatal",
];

/// Observed frames, by the duty that they belong to.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// First frame, if it is a HELLO.
    pub(super) hello: Option<Output>,
    counts: BTreeMap<Duty, u64>,
    /// Faults to fix: the first observation of each, and the remedy.
    complaints: BTreeMap<Duty, (String, &'static str)>,
}

impl Observations {
    /// Examines a frame.
    pub(super) fn take(&mut self, output: &Output, is_first: bool) {
        let duty = match output.status.meaning() {
            Meaning::Note(Note::Hello) if is_first => {
                self.hello = Some(output.clone());
                return;
            }
            Meaning::Note(Note::Hello) => {
                let said = "a HELLO that is not the first frame is ignored".to_owned();
                let mend = "send HELLO once, as the first frame of all";
                self.complaints.entry(Duty::Hello).or_insert((said, mend));
                return;
            }
            Meaning::Note(Note::Feedback) => Duty::Feedback,
            Meaning::Note(Note::Log) => Duty::Log,
            Meaning::Note(Note::Progress) => Duty::Progress,
            Meaning::Note(Note::Emit) => Duty::Emit,
            Meaning::Note(Note::Unknown) => Duty::LaterNotes,
            Meaning::Answer(Answer::Reply) => Duty::Reply,
            Meaning::Answer(_) => return,
        };
        *self.counts.entry(duty).or_default() += 1;
        if let Some(complaint) = complaint(duty, output) {
            self.complaints.entry(duty).or_insert(complaint);
        }
    }

    /// Examines an answer that is no map.
    pub(super) fn take_bare(&mut self, answer: &Output) {
        *self.counts.entry(Duty::BareValue).or_default() += 1;
        let status = answer.status;
        let said = format!("an answer that is not a map counts as {status}, with the value's text");
        let mend = "write a map with \"0\" (message) and \"1\" (status 500) also for an exception";
        let complaints = &mut self.complaints;
        complaints.entry(Duty::BareValue).or_insert((said, mend));
    }

    /// Adds the frames of another process of the same worker.
    pub(super) fn add(&mut self, other: Self) {
        for (duty, count) in other.counts {
            *self.counts.entry(duty).or_default() += count;
        }
        for (duty, complaint) in other.complaints {
            self.complaints.entry(duty).or_insert(complaint);
        }
    }

    /// Returns the fault of its frames, if there is one.
    pub(super) fn complaint(&self, duty: Duty) -> Option<Finding> {
        let (said, mend) = self.complaints.get(&duty)?;
        Some(Finding::warned(said.clone(), mend))
    }

    /// Returns the finding on an optional duty.
    pub(super) fn finding(&self, duty: Duty) -> Finding {
        let count = self.counts.get(&duty).copied().unwrap_or_default();
        self.complaint(duty).unwrap_or_else(|| match count {
            0 => Finding::not_applicable("none was sent"),
            1 => Finding::passed("1 frame, well formed"),
            _ => Finding::passed(format!("{count} frames, all well formed")),
        })
    }
}

/// Returns a fault that the daemon would not report, but that the worker's author would want to know.
fn complaint(duty: Duty, output: &Output) -> Option<(String, &'static str)> {
    let header = |name: &str| {
        let mut headers = output.headers.iter().flatten();
        let found = headers.find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    };
    match duty {
        Duty::Emit if output.reply_queue.is_none() => Some((
            "an emit that names no queue: it goes to the message's reply-to, and fails its task where \
             there is none"
                .to_owned(),
            "name the queue of an emit in key \"3\"",
        )),
        Duty::Log => {
            let level = header("level")?;
            let known = LEVELS.contains(&level.to_ascii_lowercase().as_str());
            (!known).then(|| {
                (
                    format!("a LOG with the level `{level}`, which counts as info"),
                    "use trace, debug, info, warn or error",
                )
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;
    use ganger_protocol::Status;

    fn log(level: &str) -> Output {
        let mut output = Output::new(Status::LOG, None, "");
        output.headers = Some(vec![("level".into(), level.into())]);
        output
    }

    #[test]
    fn what_is_sent_is_counted_and_what_is_not_is_no_fault() {
        let mut seen = Observations::default();
        seen.take(&log("WARN"), true);
        let mut other = Observations::default();
        other.take(&log("info"), true);
        seen.add(other);
        assert_eq!(seen.finding(Duty::Log).said, "2 frames, all well formed");
        assert_eq!(seen.finding(Duty::Emit).verdict, Verdict::NotApplicable);
    }

    #[test]
    fn what_should_be_mended_is_told() {
        let mut seen = Observations::default();
        seen.take(&log("loud"), true);
        seen.take(&Output::new(Status::EMIT, None, ""), false);
        seen.take(&Output::new(Status::HELLO, None, ""), false);
        for duty in [Duty::Log, Duty::Emit] {
            assert_eq!(seen.finding(duty).verdict, Verdict::Warned);
        }
        assert!(seen.complaint(Duty::Hello).is_some());
        assert_eq!(
            seen.finding(Duty::BareValue).verdict,
            Verdict::NotApplicable
        );
        seen.take_bare(&Output::new(Status::UNKNOWN_ERROR, None, "oops"));
        assert_eq!(seen.finding(Duty::BareValue).verdict, Verdict::Warned);
    }
}
