//! Finds the known name that a mistyped one most likely means. Nothing here knows a key.

use strsim::levenshtein;

/// Returns the known name that `name` most likely means.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let allowed = 1 + name.len() / 4;
    let name = name.to_lowercase();
    names
        .map(|known| (levenshtein(&name, &known.to_lowercase()), known))
        .filter(|(edits, _)| *edits <= allowed)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["workers", "timeout", "timeout_grace", "env"];
        for (name, expected) in [
            ("worker", Some("workers")),
            ("time_out", Some("timeout")),
            ("environment", None),
            ("enw", Some("env")),
            ("colour", None),
            ("WORKERS", Some("workers")),
        ] {
            assert_eq!(nearest(name, names.into_iter()), expected, "{name}");
        }
    }
}
