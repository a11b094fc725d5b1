//! Definitions that operators enter, remove, or take back to an earlier version.

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::row::{NewVersion, OF_API, OF_FILE, ScheduleRow, Version};
use super::store::LedgerTransaction;
use crate::table::Fault;
use ganger_config::model::ScheduleConfig;
use ganger_queue::ledger::difference::differences;
use ganger_queue::ledger::{Entered, Expected, LedgerError};

/// Number of bytes of a hash that make a tag.
const TAG_BYTES: usize = 16;

/// A definition that is entered.
#[derive(Debug)]
pub(super) struct NewDefinition<'a> {
    pub(super) schedule: &'a ScheduleConfig,
    /// Definition that the schedule must have.
    pub(super) expected: Option<&'a Expected>,
    /// Number of the earlier version from which it is.
    pub(super) rolled_back_to: Option<i64>,
    /// Who enters it.
    pub(super) actor: Option<&'a str>,
}

/// Returns the tag of a definition: that of another one differs.
pub(super) fn tag(definition: &str) -> String {
    let hash = Sha256::digest(definition.as_bytes());
    let bytes = hash.iter().take(TAG_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the problem of a schedule that is another's.
fn owned(row: &ScheduleRow, remedy: &str) -> LedgerError {
    let owner = match &row.configuration {
        Some(configuration) => format!("of the configuration `{configuration}`: {remedy}"),
        None => format!("of SQL: {remedy}"),
    };
    LedgerError::Owned(row.name.clone(), owner)
}

/// Returns the problem of a schedule whose definition is not the expected one, if that is so.
fn unexpected(
    name: &str,
    row: Option<&ScheduleRow>,
    expected: Option<&Expected>,
) -> Option<LedgerError> {
    let why = match (expected?, row) {
        (Expected::Absent, None) | (Expected::Present, Some(_)) => return None,
        (Expected::OneOf(tags), Some(row)) if tags.contains(&tag(&row.definition)) => return None,
        (Expected::Absent, Some(_)) => "exists already: change it, or choose another name",
        (Expected::Present | Expected::OneOf(_), None) => "does not exist (any more)",
        (Expected::OneOf(_), Some(_)) => {
            "was changed meanwhile: read its definition again, and repeat the change"
        }
    };
    Some(LedgerError::Changed(name.to_owned(), why.to_owned()))
}

/// Enters a definition.
pub(super) fn enter(
    tx: &mut dyn LedgerTransaction,
    new: &NewDefinition<'_>,
) -> Result<Result<Entered, LedgerError>, Fault> {
    let (name, definition) = (new.schedule.name(), &new.schedule.definition);
    let before = tx.schedule(name)?;
    let (mut row, entered, old) = match before {
        Some(row) if row.origin == OF_FILE => return Ok(Err(owned(&row, "change it there"))),
        Some(row) if row.origin != OF_API => {
            let remedy = "change it there, or remove it before";
            return Ok(Err(owned(&row, remedy)));
        }
        before => {
            if let Some(unexpected) = unexpected(name, before.as_ref(), new.expected) {
                return Ok(Err(unexpected));
            }
            match before {
                None => (
                    ScheduleRow::of_api(name, definition),
                    Entered::Created,
                    None,
                ),
                Some(row) if row.definition == *definition => (row, Entered::Unchanged, None),
                Some(row) => {
                    let old = row.definition.clone();
                    (row, Entered::Replaced, Some(old))
                }
            }
        }
    };
    if entered == Entered::Unchanged {
        if row.redefine(definition) {
            tx.save(&[row])?;
        }
        return Ok(Ok(entered));
    }
    let now = tx.clock()?.wall;
    if let Some(problem) = new.schedule.spec.never_runs(now) {
        let never = LedgerError::NeverRuns(name.to_owned(), problem.to_string());
        return Ok(Err(never));
    }
    row.redefine(definition);
    let version = row.version.max(tx.newest_version(name)?).saturating_add(1);
    tx.keep_versions(&[NewVersion {
        schedule: name.to_owned(),
        version,
        origin: OF_API.to_owned(),
        actor: new.actor.map(str::to_owned),
        definition: definition.clone(),
    }])?;
    tx.save(&[row])?;
    let action = match (new.rolled_back_to, entered) {
        (Some(_), _) => "roll_back",
        (None, Entered::Created) => "create",
        (None, Entered::Replaced | Entered::Unchanged) => "replace",
    };
    let detail = json!({
        "version": version, "to": new.rolled_back_to, "keys": old.map(|old| changed(&old, definition)),
    });
    tx.audit(new.actor, action, name, &detail)?;
    Ok(Ok(entered))
}

/// Returns the names of the keys that differ.
fn changed(old: &str, new: &str) -> Vec<String> {
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Json::from(text));
    let differences = differences(&read(old), &read(new)).into_iter();
    differences.map(|difference| difference.key).collect()
}

/// Removes a schedule.
pub(super) fn remove(
    tx: &mut dyn LedgerTransaction,
    name: &str,
    is_forced: bool,
    expected: Option<&Expected>,
    actor: Option<&str>,
) -> Result<Result<(), LedgerError>, Fault> {
    let Some(row) = tx.schedule(name)? else {
        return Ok(Err(LedgerError::NoSchedule(name.to_owned())));
    };
    if row.origin == OF_FILE && !is_forced {
        return Ok(Err(owned(&row, "remove it there")));
    }
    if let Some(unexpected) = unexpected(name, Some(&row), expected) {
        return Ok(Err(unexpected));
    }
    tx.remove(name)?;
    // Its versions may go with it.
    let definition = serde_json::from_str(&row.definition);
    let definition = definition.unwrap_or_else(|_| Json::from(row.definition));
    tx.audit(actor, "remove", name, &json!({ "definition": definition }))?;
    Ok(Ok(()))
}

/// Returns an earlier version of a schedule whose definition operators may change.
///
/// # Errors
/// If there is no such schedule or version, or its definition is another's.
pub(super) fn earlier(
    name: &str,
    row: Option<&ScheduleRow>,
    versions: Vec<Version>,
    number: i64,
) -> Result<Version, LedgerError> {
    let row = row.ok_or_else(|| LedgerError::NoSchedule(name.to_owned()))?;
    if row.origin != OF_API {
        let remedy = match row.origin == OF_FILE {
            true => "write the earlier definition there, as the history shows it",
            false => "change it there, or remove it before",
        };
        return Err(owned(row, remedy));
    }
    let kept: Vec<String> = versions.iter().map(|one| one.version.to_string()).collect();
    let found = versions.into_iter().find(|one| one.version == number);
    found.ok_or_else(|| {
        let kept = kept.join(", ");
        let why = format!("there is no version {number} (any more); these are kept: {kept}");
        LedgerError::Unsuited(name.to_owned(), why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_that_of_one_definition() {
        let one = tag(r#"{"every":"1h"}"#);
        assert_eq!(one.len(), 2 * TAG_BYTES);
        assert_eq!(one, tag(r#"{"every":"1h"}"#));
        assert_ne!(one, tag(r#"{"every":"2h"}"#));
    }
}
