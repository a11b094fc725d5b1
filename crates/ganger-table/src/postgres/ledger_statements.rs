//! Statements of the ledger as a connection has prepared them.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio_postgres::Error;

use super::client::{Client, Statement};
use crate::ledger::values::SqlValue;

/// Statements of the ledger that a connection has prepared, by their texts.
#[derive(Debug, Default)]
pub(super) struct LedgerStatements {
    known: Mutex<HashMap<String, Statement>>,
    /// Set once the tables were found.
    found: OnceLock<()>,
}

impl LedgerStatements {
    /// Returns whether the tables were found.
    pub(super) fn is_found(&self) -> bool {
        self.found.get().is_some()
    }

    /// Records that the tables were found.
    pub(super) fn found(&self) {
        self.found.get_or_init(|| ());
    }

    /// Returns the prepared statement, in which each `?` is a value of those types.
    pub(super) async fn prepared(
        &self,
        client: &Client,
        text: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Statement, Error> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(text) {
            return Ok(known.clone());
        }
        let statement = client.prepare(&with_types(text, values)).await?;
        lock().insert(text.to_owned(), statement.clone());
        Ok(statement)
    }
}

/// Returns the statement with a typed parameter for each `?`.
fn with_types(text: &str, values: &[SqlValue<'_>]) -> String {
    let mut parts = text.split('?');
    let mut typed = parts.next().unwrap_or_default().to_owned();
    for (number, (part, value)) in (1..).zip(parts.zip(values)) {
        let name = match value {
            SqlValue::Number(_) => "bigint",
            SqlValue::Text(_) => "text",
        };
        typed += &format!("${number}::{name}{part}");
    }
    typed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_type() {
        let values = [SqlValue::from(1_i64), SqlValue::Text(None)];
        assert_eq!(
            with_types("SELECT ? WHERE name = ? LIMIT 1", &values),
            "SELECT $1::bigint WHERE name = $2::text LIMIT 1"
        );
    }
}
