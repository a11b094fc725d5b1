//! Difference of two definitions, key by key.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value as Json;

/// A key that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The key; that of a table within a table as in `misfire.policy`.
    pub key: String,
    /// Its value before; null if it had none.
    pub old: Json,
    /// Its value after; null if it has none.
    pub new: Json,
}

/// Returns the keys that differ, by name.
pub fn differences(old: &Json, new: &Json) -> Vec<Difference> {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    flatten("", old, &mut before);
    flatten("", new, &mut after);
    let mut keys: Vec<String> = before.keys().chain(after.keys()).cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    let differing = keys.into_iter().filter_map(|key| {
        let (old, new) = (before.remove(&key), after.remove(&key));
        (old != new).then(|| Difference {
            key,
            old: old.cloned().unwrap_or_default(),
            new: new.cloned().unwrap_or_default(),
        })
    });
    differing.collect()
}

/// Takes the keys of a table. What is none, as another program may have stored it, is a whole without a key.
fn flatten<'a>(path: &str, value: &'a Json, into: &mut BTreeMap<String, &'a Json>) {
    match value {
        Json::Object(table) => {
            for (key, value) in table {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                flatten(&path, value, into);
            }
        }
        value => drop(into.insert(path.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_differ_one_by_one() {
        let old = json!({ "cron": "0 2 * * *", "queue": "q", "misfire": { "policy": "all", "max": 3 }, "zone": "UTC" });
        let new = json!({ "cron": "0 3 * * *", "queue": "q", "misfire": { "policy": "all", "max": 4 }, "tags": ["t"] });
        let told = differences(&old, &new).into_iter();
        let told: Vec<_> = told.map(|one| (one.key, one.old, one.new)).collect();
        let key = |key: &str, old: Json, new: Json| (key.to_owned(), old, new);
        let expected = [
            key("cron", json!("0 2 * * *"), json!("0 3 * * *")),
            key("misfire.max", json!(3), json!(4)),
            key("tags", Json::Null, json!(["t"])),
            key("zone", json!("UTC"), Json::Null),
        ];
        assert_eq!(told, expected);
        assert!(differences(&old, &old).is_empty());
        let nonsense = differences(&json!("no table"), &json!({ "every": "1h" }));
        assert_eq!(nonsense.len(), 2);
    }
}
