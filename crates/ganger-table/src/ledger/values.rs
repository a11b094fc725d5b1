//! Values of statements and of their rows, which all databases share.

use jiff::Timestamp;

use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};

/// A value of a statement, for one of its `?`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SqlValue<'a> {
    Number(Option<i64>),
    Text(Option<&'a str>),
}

impl From<i64> for SqlValue<'_> {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<u32> for SqlValue<'_> {
    fn from(number: u32) -> Self {
        Self::Number(Some(number.into()))
    }
}

impl From<bool> for SqlValue<'_> {
    fn from(flag: bool) -> Self {
        Self::Number(Some(flag.into()))
    }
}

impl From<Option<i64>> for SqlValue<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for SqlValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<&'a String> for SqlValue<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for SqlValue<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SqlCell {
    Null,
    Number(i64),
    Text(String),
}

/// A row of a result. It is read leniently, since any program may have written it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SqlRow(pub(crate) Vec<SqlCell>);

impl SqlRow {
    pub(crate) fn number(&self, column: usize) -> Option<i64> {
        match self.0.get(column)? {
            SqlCell::Null => None,
            SqlCell::Number(number) => Some(*number),
            SqlCell::Text(text) => text.parse().ok(),
        }
    }

    /// Returns a text; none if it is NULL or empty.
    pub(crate) fn text(&self, column: usize) -> Option<String> {
        let text = match self.0.get(column)? {
            SqlCell::Null => return None,
            SqlCell::Number(number) => number.to_string(),
            SqlCell::Text(text) => text.clone(),
        };
        Some(text).filter(|text| !text.is_empty())
    }

    pub(super) fn name(&self, column: usize) -> String {
        self.text(column).unwrap_or_default()
    }

    pub(super) fn is_null(&self, column: usize) -> bool {
        matches!(self.0.get(column), None | Some(SqlCell::Null))
    }

    pub(super) fn time(&self, column: usize) -> Timestamp {
        time(self.number(column).unwrap_or(0))
    }

    pub(super) fn maybe_time(&self, column: usize) -> Option<Timestamp> {
        self.number(column).map(time)
    }

    pub(super) fn count(&self, column: usize) -> u64 {
        self.number(column).unwrap_or(0).max(0).unsigned_abs()
    }

    pub(super) fn small(&self, column: usize) -> u32 {
        u32::try_from(self.count(column)).unwrap_or(u32::MAX)
    }

    pub(super) fn state(&self, column: usize) -> OccurrenceState {
        let state = self.number(column).and_then(OccurrenceState::of_code);
        state.unwrap_or(OccurrenceState::Unknown)
    }

    /// Reads a state, of which the column has a check.
    pub(super) fn schedule_state(&self, column: usize) -> ScheduleState {
        let state = self.name(column);
        state.parse().unwrap_or(ScheduleState::Broken)
    }
}

/// Returns the time of a column; the nearest that there is if another program has written nonsense.
pub(super) fn time(millis: i64) -> Timestamp {
    let end = match millis < 0 {
        true => Timestamp::MIN,
        false => Timestamp::MAX,
    };
    Timestamp::from_millisecond(millis).unwrap_or(end)
}
