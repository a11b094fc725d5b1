//! Which known name someone most likely meant. Nothing here knows a key.

/// The name that someone who wrote `name` most likely meant.
pub(super) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let allowed = 1 + name.len() / 4;
    names
        .map(|known| (edits(name, known), known))
        .filter(|(edits, _)| *edits <= allowed)
        .min()
        .map(|(_, known)| known)
}

/// How many letters must be put in, taken out or changed to make one word of the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, a) in from.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("worker", "workers", 1),
            ("kitten", "sitting", 3),
            ("Workers", "workers", 0),
        ] {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["workers", "timeout", "timeout_grace", "env"];
        for (name, expected) in [
            ("worker", Some("workers")),
            ("time_out", Some("timeout")),
            ("environment", None),
            ("enw", Some("env")),
            ("colour", None),
        ] {
            assert_eq!(nearest(name, names.into_iter()), expected, "{name}");
        }
    }
}
