//! Silences: alerts that no webhook is told of until a time, because an operator knows of them. A restart of the daemon
//! does not end them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use ganger_pool::state_file::StateFile;

/// Maximum number of silences.
const SILENCES_MAX: usize = 100;

/// A silence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Silence {
    /// Its id.
    pub(super) id: String,
    /// Kind of the alerts: `pool_degraded`, `source_down` and so on.
    pub(super) kind: String,
    /// Subject of the alert, as the status names it; null for all alerts of the kind.
    pub(super) of: Option<String>,
    /// Time at which it ends.
    pub(super) until: String,
    /// Reason given by the operator.
    pub(super) reason: String,
    /// Caller who has made it.
    pub(super) by: String,
    /// Time at which it was made.
    pub(super) created_at: String,
}

impl Silence {
    fn covers(&self, kind: &str, of: &str) -> bool {
        self.kind == kind && self.of.as_ref().is_none_or(|own| own == of)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        // It was read before it was written.
        let until = self.until.parse::<Timestamp>();
        until.map_or(true, |until| until <= now)
    }

    fn log(&self, what: &str) {
        tracing::info!(
            alert = self.kind,
            of = self.of,
            until = self.until,
            reason = self.reason,
            by = self.by,
            "silence of alerts {what}"
        );
    }
}

/// The silences of the daemon. Clones share them; the default loses them with the process.
#[derive(Debug, Clone, Default)]
pub struct Silences(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    file: StateFile,
    silences: Vec<Silence>,
}

impl Silences {
    /// Reads the silences from the file.
    pub fn read(file: StateFile) -> Self {
        let silences = file.read().unwrap_or_else(|error| {
            tracing::error!(%error, "reading the file of silences failed: no alert is silenced");
            Vec::new()
        });
        Self(Arc::new(Mutex::new(Kept { file, silences })))
    }

    /// Returns the silences that have not ended, the oldest first.
    pub(super) fn list(&self, now: Timestamp) -> Vec<Silence> {
        let mut kept = self.kept();
        let before = kept.silences.len();
        kept.silences.retain(|silence| {
            let is_over = silence.is_over(now);
            if is_over {
                silence.log("ended");
            }
            !is_over
        });
        if kept.silences.len() < before {
            kept.save();
        }
        kept.silences.clone()
    }

    /// Adds a silence, in place of the one of the same alerts. Returns whether it outlasts a restart; none if there are
    /// too many.
    pub(super) fn add(&self, silence: Silence) -> Option<bool> {
        let mut kept = self.kept();
        let is_same = |other: &Silence| (&other.kind, &other.of) == (&silence.kind, &silence.of);
        kept.silences.retain(|other| !is_same(other));
        if kept.silences.len() >= SILENCES_MAX {
            return None;
        }
        silence.log("begun");
        kept.silences.push(silence);
        Some(kept.save())
    }

    /// Ends a silence. Returns it, if there is one with that id.
    pub(super) fn remove(&self, id: &str, by: &str) -> Option<Silence> {
        let mut kept = self.kept();
        let at = kept.silences.iter().position(|silence| silence.id == id)?;
        let silence = kept.silences.remove(at);
        tracing::info!(
            alert = silence.kind,
            of = silence.of,
            by,
            "silence of alerts ended by an operator"
        );
        kept.save();
        Some(silence)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // The guarded value is never left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn save(&self) -> bool {
        let silences = (!self.silences.is_empty()).then_some(&self.silences);
        let written = self.file.write(silences);
        if let Err(error) = &written {
            tracing::warn!(%error, "writing the file of silences failed: they do not outlast a restart");
        }
        written.is_ok()
    }
}

/// Returns the silence of an alert that lasts longest.
pub(super) fn covering<'a>(silences: &'a [Silence], kind: &str, of: &str) -> Option<&'a Silence> {
    let covering = silences.iter().filter(|silence| silence.covers(kind, of));
    covering.max_by_key(|silence| silence.until.parse::<Timestamp>().ok())
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn silence(kind: &str, of: Option<&str>, until: &str) -> Silence {
        Silence {
            id: format!("{kind} {of:?}"),
            kind: kind.to_owned(),
            of: of.map(str::to_owned),
            until: until.to_owned(),
            reason: "known".to_owned(),
            by: "token".to_owned(),
            created_at: "2027-01-01T00:00:00Z".to_owned(),
        }
    }

    #[test]
    fn silences_are_of_a_subject_or_of_a_kind_and_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::at(vec![dir.path().join("silences.json")]);
        let silences = Silences::read(file.clone());
        let one = silence("waiting", Some("a"), "2027-01-01T02:00:00Z");
        let all = silence("waiting", None, "2027-01-01T01:00:00Z");
        assert_eq!(silences.add(one.clone()), Some(true));
        assert_eq!(silences.add(all.clone()), Some(true));
        let at = |hour: i8| format!("2027-01-01T0{hour}:00:00Z").parse().unwrap();
        // The next daemon has them.
        let again = Silences::read(file.clone());
        let listed = again.list(at(0));
        assert_eq!(listed, [one.clone(), all]);
        let of = |kind, of| covering(&listed, kind, of).map(|silence| silence.until.clone());
        assert_eq!(of("waiting", "a").as_ref(), Some(&one.until));
        assert_eq!(of("waiting", "b").as_deref(), Some("2027-01-01T01:00:00Z"));
        assert_eq!(of("source_down", "a"), None);
        assert_eq!(again.list(at(1)), from_ref(&one));
        let longer = silence("waiting", Some("a"), "2027-01-01T03:00:00Z");
        again.add(longer.clone());
        assert_eq!(
            again.list(at(2)),
            from_ref(&longer),
            "one in place of the other"
        );
        assert_eq!(again.remove(&longer.id, "token"), Some(longer));
        assert_eq!(again.remove("it", "token"), None);
        assert!(
            !dir.path().join("silences.json").exists(),
            "nothing is kept"
        );
    }

    #[test]
    fn their_number_is_limited_and_a_file_that_can_not_be_written_is_told() {
        let silences = Silences::default();
        for n in 0..SILENCES_MAX {
            let of = n.to_string();
            let one = silence("waiting", Some(&of), "2027-01-01T02:00:00Z");
            assert_eq!(silences.add(one), Some(false));
        }
        assert_eq!(
            silences.add(silence("waiting", None, "2027-01-01T02:00:00Z")),
            None
        );
        let again = silence("waiting", Some("3"), "2027-01-01T03:00:00Z");
        assert_eq!(silences.add(again), Some(false));
    }

    #[test]
    fn a_damaged_file_silences_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silences.json");
        std::fs::write(&path, "[{}]").unwrap();
        let silences = Silences::read(StateFile::at(vec![path]));
        assert_eq!(silences.list(Timestamp::UNIX_EPOCH), []);
    }
}
