//! A failure as the ledger keeps it.

use std::borrow::Cow;

use super::fingerprint::fingerprint;
use super::values::SqlValue;
use crate::rules::cut_error;
use ganger_queue::delivery::Exit;

/// A failure as the ledger keeps it: its parts are written together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptFailure<'a> {
    error: Cow<'a, str>,
    fingerprint: String,
    exit: Exit,
}

impl<'a> KeptFailure<'a> {
    /// Makes that of an error, and of the exit of the worker if it ended.
    pub(super) fn new(error: &'a str, exit: Option<Exit>) -> Self {
        let error = cut_error(error);
        Self {
            fingerprint: fingerprint(&error),
            error,
            exit: exit.unwrap_or_default(),
        }
    }

    /// Returns the error.
    pub(crate) fn error(&self) -> &str {
        &self.error
    }

    /// Returns it with an error of its own.
    pub(super) fn into_owned(self) -> KeptFailure<'static> {
        KeptFailure {
            error: Cow::Owned(self.error.into_owned()),
            ..self
        }
    }

    /// Returns the values of its columns: the error, its fingerprint, the exit code and the signal. All are NULL without
    /// a failure.
    pub(super) fn values<'b>(failure: Option<&'b KeptFailure<'_>>) -> [SqlValue<'b>; 4] {
        let number = |of: fn(&Exit) -> Option<i32>| failure.and_then(|one| of(&one.exit));
        [
            failure.map(|one| &*one.error).into(),
            failure.map(|one| &*one.fingerprint).into(),
            number(|exit| exit.code).map(i64::from).into(),
            number(|exit| exit.signal).map(i64::from).into(),
        ]
    }
}
