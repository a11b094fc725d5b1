//! Versions of definitions that are kept, and the record of what operators have changed.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value as Json;

use super::row::{AuditRow, NewVersion, Version};
use super::sql::{InTransaction, LedgerSql};
use super::store::HistoryTransaction;
use super::values::{SqlRow, SqlValue};
use crate::table::Fault;
use ganger_queue::ledger::AuditFilter;

/// Number of versions of a schedule that are kept.
const VERSIONS_MAX: i64 = 100;
/// Longest name of who has made a change, in characters, and longest subject.
const NAME_MAX: usize = 255;

const KEEP_VERSION: &str = "
INSERT INTO schedule_versions (schedule, version, at, origin, actor, definition) VALUES (?, ?, ?, ?, ?, ?)";

const AUDIT: &str = "
INSERT INTO ledger_audit (at, actor, action, subject, detail) VALUES (?, ?, ?, ?, ?)";

impl<S: LedgerSql> HistoryTransaction for InTransaction<S> {
    fn keep_versions(&mut self, versions: &[NewVersion]) -> Result<(), Fault> {
        if versions.is_empty() {
            return Ok(());
        }
        let now_ms = self.0.now_ms()?;
        let kept = versions.iter().map(|version| {
            vec![
                SqlValue::from(&version.schedule),
                version.version.into(),
                now_ms.into(),
                SqlValue::from(&version.origin),
                version.actor.as_deref().map(short).into(),
                SqlValue::from(&version.definition),
            ]
        });
        let kept: Vec<_> = kept.collect();
        self.0.each(KEEP_VERSION, &kept)?;
        let oldest = versions.iter().map(|version| {
            let until = version.version.saturating_sub(VERSIONS_MAX);
            (SqlValue::from(&version.schedule), until)
        });
        let oldest = oldest.filter(|(_, until)| *until > 0);
        let oldest: Vec<_> = oldest
            .map(|(schedule, until)| vec![schedule, until.into()])
            .collect();
        let forget = "DELETE FROM schedule_versions WHERE schedule = ? AND version <= ?";
        self.0.each(forget, &oldest).map(drop)
    }

    fn newest_version(&mut self, schedule: &str) -> Result<i64, Fault> {
        let newest = "SELECT max(version) FROM schedule_versions WHERE schedule = ?";
        let newest = self.first(newest, &[schedule.into()])?;
        Ok(newest.and_then(|row| row.number(0)).unwrap_or(0))
    }

    fn versions(&mut self, schedule: &str) -> Result<Vec<Version>, Fault> {
        let versions = "SELECT version, at, origin, actor, definition FROM schedule_versions
                        WHERE schedule = ? ORDER BY version DESC";
        let rows = self.0.query(versions, &[schedule.into()])?;
        let versions = rows.iter().map(|row| Version {
            version: row.number(0).unwrap_or(0),
            at: row.time(1),
            origin: row.name(2),
            actor: row.text(3),
            definition: row.name(4),
        });
        Ok(versions.collect())
    }

    fn forget_versions(&mut self, schedules: &BTreeSet<String>) -> Result<(), Fault> {
        let by = self.by("occurrences_of_schedule");
        let forget = format!(
            "DELETE FROM schedule_versions WHERE schedule = ?
             AND NOT EXISTS (SELECT 1 FROM schedules WHERE name = ?)
             AND NOT EXISTS (SELECT 1 FROM occurrences{by} WHERE schedule = ?)"
        );
        let names = schedules.iter().map(|name| vec![SqlValue::from(name); 3]);
        let names: Vec<_> = names.collect();
        self.0.each(&forget, &names).map(drop)
    }

    fn audit(
        &mut self,
        actor: Option<&str>,
        action: &str,
        subject: &str,
        detail: &Json,
    ) -> Result<(), Fault> {
        let now_ms = self.0.now_ms()?;
        let detail = given(detail);
        let change = [
            now_ms.into(),
            actor.map(short).into(),
            action.into(),
            short(subject).into(),
            detail.as_deref().into(),
        ];
        self.run(AUDIT, &change)
    }

    fn audited(&mut self, filter: &AuditFilter) -> Result<Vec<AuditRow>, Fault> {
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        let mut by = String::new();
        if let Some(subject) = &filter.subject {
            by = self.by("ledger_audit_subject");
            conditions.push("subject = ?");
            values.push(SqlValue::from(subject));
        }
        if let Some(before) = filter.before {
            conditions.push("id < ?");
            values.push(before.into());
        }
        let conditions = match conditions.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", conditions.join(" AND ")),
        };
        values.push(filter.limit.into());
        let changes = format!(
            "SELECT id, at, actor, action, subject, detail FROM ledger_audit{by} {conditions} ORDER BY id DESC LIMIT ?"
        );
        let rows = self.0.query(&changes, &values)?;
        let changes = rows.iter().map(|row| AuditRow {
            id: row.number(0).unwrap_or(0),
            at: row.time(1),
            actor: row.text(2),
            action: row.name(3),
            subject: row.name(4),
            detail: row.text(5),
        });
        Ok(changes.collect())
    }

    fn expired_changes(&mut self, until: Timestamp, most: u32) -> Result<Vec<i64>, Fault> {
        let by = self.by("ledger_audit_at");
        let old = format!("SELECT id FROM ledger_audit{by} WHERE at < ? ORDER BY at LIMIT ?");
        let rows = self
            .0
            .query(&old, &[until.as_millisecond().into(), most.into()])?;
        Ok(rows
            .iter()
            .filter_map(|row: &SqlRow| row.number(0))
            .collect())
    }

    fn forget_changes(&mut self, changes: &[i64]) -> Result<(), Fault> {
        let forget = "DELETE FROM ledger_audit WHERE id = ?";
        let changes: Vec<_> = changes.iter().map(|id| vec![(*id).into()]).collect();
        self.0.each(forget, &changes).map(drop)
    }
}

/// Returns the start of a name, as much as there is room for.
fn short(name: &str) -> &str {
    let end = name.char_indices().nth(NAME_MAX);
    end.map_or(name, |(end, _)| name.get(..end).unwrap_or(name))
}

/// Returns what is given of a detail, as text.
fn given(detail: &Json) -> Option<String> {
    let pairs = detail.as_object()?.iter();
    let given = pairs.filter(|(_, value)| !value.is_null());
    let given: serde_json::Map<_, _> = given
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!given.is_empty()).then(|| Json::Object(given).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_detail_has_what_is_given() {
        let detail = json!({ "reason": null, "version": 2 });
        assert_eq!(given(&detail).as_deref(), Some(r#"{"version":2}"#));
        assert_eq!(given(&json!({ "reason": null })), None);
        assert_eq!(given(&Json::Null), None);
        assert_eq!(short(&"ü".repeat(300)).chars().count(), NAME_MAX);
        assert_eq!(short("ann"), "ann");
    }
}
