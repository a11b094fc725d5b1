//! The reference, the schema and the example agree with the reader.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use super::read;
use crate::description::{Key, Shape};
use crate::keys::describe;
use crate::{reference, schema};

const EXAMPLE: &str = include_str!("../../../../config/ganger.toml");

/// With `UPDATE_REFERENCE` set the file is written instead.
#[test]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/reference.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&path, reference()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let hint = "run this test with UPDATE_REFERENCE=1 to write config/reference.md anew";
    assert!(written == reference(), "{hint}");
}

#[test]
fn the_example_loads() {
    read(EXAMPLE, &[]).unwrap();
}

#[test]
fn the_samples_load() {
    let samples = [
        include_str!("../../../../samples/python/ganger.toml"),
        include_str!("../../../../samples/docker/ganger.toml"),
        include_str!("../../../../samples/docker/rabbitmq.toml"),
        include_str!("../../../../samples/docker/kafka.toml"),
    ];
    for sample in samples {
        read(sample, &[("RABBITMQ_PASSWORD", "p")]).unwrap();
    }
}

/// Keys in comments of the example count too, with the `# ` before them taken off.
#[test]
fn the_example_shows_every_key_and_its_default() {
    let lines: Vec<&str> = EXAMPLE
        .lines()
        .map(|line| line.trim_start_matches("# "))
        .collect();
    for key in leaves(&describe()) {
        let start = format!("{} =", key.name);
        let inline = format!("{} = ", key.name);
        let shown = |line: &&&str| line.starts_with(&start) || line.contains(&inline);
        let line = lines.iter().find(shown);
        let line = line.unwrap_or_else(|| panic!("config/ganger.toml shows no `{}`", key.name));
        if let Shape::Value {
            default: Some(default),
            ..
        } = &key.shape
        {
            let pair = format!("{inline}{default}");
            let found = lines.iter().any(|line| line.contains(&pair));
            assert!(
                found,
                "config/ganger.toml has `{line}` where the default is `{pair}`"
            );
        }
    }
}

fn leaves(keys: &[Key]) -> Vec<Key> {
    let inner = |key: &Key| match &key.shape {
        Shape::Either { keys, .. } => [vec![key.clone()], leaves(keys)].concat(),
        shape => shape.keys().map_or_else(|| vec![key.clone()], leaves),
    };
    keys.iter().flat_map(inner).collect()
}

#[test]
fn the_schema_tells_editors_about_a_key() {
    let schema = schema();
    let daemon = &schema["properties"]["daemon"];
    assert_eq!(daemon["additionalProperties"], Json::Bool(false));
    assert_eq!(daemon["properties"]["drain_timeout"]["default"], "30s");
    let pool = &schema["properties"]["pools"]["items"];
    assert_eq!(pool["required"], serde_json::json!(["name"]));
    let workers = &pool["properties"]["workers"];
    assert_eq!(workers["default"], 1);
    assert_eq!(workers["anyOf"][0]["anyOf"][0]["maximum"], 1024);
    let range = &workers["anyOf"][1];
    assert_eq!(range["properties"]["clear_within"]["default"], "1m");
    assert_eq!(range["required"], serde_json::json!(["max"]));
    assert_eq!(
        workers["description"],
        "Number of worker processes: a number, or a range within which it follows the load, as in \
         `{ min = 1, max = 16 }`."
    );
    assert_eq!(
        pool["properties"]["worker_unit_count"]["anyOf"],
        workers["anyOf"]
    );
}
