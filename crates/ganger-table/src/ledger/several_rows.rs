//! Several rows by one statement, which cost a server less than a statement for each.

use std::borrow::Cow;

use super::values::SqlValue;

/// Size of the texts of rows up to which one statement inserts them.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

/// A statement, and the values with which it is run, once for each.
type Part<'a, 'b> = (Cow<'a, str>, Vec<Vec<SqlValue<'b>>>);

/// Divides the rows that a statement inserts one by one into parts, in which as many as `most` are inserted by one
/// statement.
pub(super) fn parts<'a, 'b>(
    one: &'a str,
    rows: &[Vec<SqlValue<'b>>],
    most: usize,
) -> Vec<Part<'a, 'b>> {
    if most == 1 {
        return vec![(one.into(), rows.to_vec())];
    }
    let several = several_rows(one, most);
    let parts = rows.chunks(most).map(|rows| {
        let is_whole = rows.len() == most && size(rows) <= TOGETHER_BYTES_MAX;
        match is_whole {
            true => (several.clone().into(), vec![rows.concat()]),
            false => (one.into(), rows.to_vec()),
        }
    });
    parts.collect()
}

/// Returns a statement that inserts one row, for so many of them.
fn several_rows(one: &str, rows: usize) -> String {
    let Some((begin, rest)) = one.split_once("VALUES (") else {
        return one.to_owned();
    };
    let (row, end) = rest.split_once(')').unwrap_or((rest, ""));
    let rows = vec![format!("({row})"); rows].join(", ");
    format!("{begin}VALUES {rows}{end}")
}

/// Longest list.
pub(super) const LIST_MAX: usize = 1000;
/// Lengths of lists. There are few of them, so that statements can be prepared.
const LENGTHS: [usize; 4] = [1, 10, 100, LIST_MAX];

/// Returns a list of so many values in parentheses. The last one is repeated up to the next length.
pub(super) fn list_of(values: &mut Vec<SqlValue<'_>>) -> String {
    let length = LENGTHS.into_iter().find(|length| *length >= values.len());
    if let (Some(length), Some(last)) = (length, values.last().copied()) {
        values.resize(length, last);
    }
    format!("({})", vec!["?"; values.len()].join(", "))
}

/// Returns the size of the texts of rows.
fn size(rows: &[Vec<SqlValue<'_>>]) -> usize {
    let texts = rows.iter().flatten().map(|value| match value {
        SqlValue::Text(text) => text.map_or(0, str::len),
        SqlValue::Number(_) => 0,
    });
    texts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_for_one_row_is_made_one_for_several() {
        let one = "INSERT INTO a (b, c) VALUES (?, 0) ON CONFLICT (b) DO UPDATE SET c = VALUES(c)";
        assert_eq!(
            several_rows(one, 3),
            "INSERT INTO a (b, c) VALUES (?, 0), (?, 0), (?, 0) ON CONFLICT (b) DO UPDATE SET c = VALUES(c)"
        );
    }

    #[test]
    fn rows_that_are_few_or_large_are_inserted_one_by_one() {
        let one = "INSERT INTO a (b) VALUES (?)";
        let row = |text| vec![SqlValue::Text(Some(text))];
        let long = "x".repeat(TOGETHER_BYTES_MAX);
        let rows = [row("1"), row("2"), row(&long), row("3"), row("4")];
        let parts = parts(one, &rows, 2);
        let shown = parts.iter().map(|(text, values)| (&**text, values.len()));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [("INSERT INTO a (b) VALUES (?), (?)", 1), (one, 2), (one, 1)]
        );
        assert_eq!(super::parts(one, &rows, 1), [(one.into(), rows.to_vec())]);
    }
}
