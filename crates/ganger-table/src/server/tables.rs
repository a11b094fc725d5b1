//! The two sets of tables on a server.

/// Tables that are made together, and whose version is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Those of the queues.
    Queues,
    /// Those of the ledger, which are made where there is one.
    Ledger,
}

/// Tables of the ledger, each with a column by which it is recognised: another program's is unlikely to have it.
pub(crate) const LEDGER_KNOWN_BY: &[(&str, &str)] = &[
    ("ledger", "seen_at"),
    ("ledger_audit", "subject"),
    ("occurrence_events", "to_state"),
    ("occurrence_logs", "occurrence"),
    ("occurrences", "watched"),
    ("schedule_outbox", "held_until"),
    ("schedule_versions", "definition"),
    ("schedules", "trial_slot"),
];

impl Tables {
    /// Returns the table that has their version. It is made last.
    pub(crate) fn versioned(self) -> &'static str {
        match self {
            Self::Queues => "ganger_version",
            Self::Ledger => "ledger",
        }
    }
}
