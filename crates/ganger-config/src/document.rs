//! The configuration's keys as documentation: the reference in Markdown and the JSON Schema. Both are
//! made from the description that the reader uses.

use serde_json::{Map, Value as Json, json};

use super::description::{Key, Shape};
use super::keys;

/// Text of the reference before its keys.
const INTRODUCTION: &str = include_str!("introduction.md");

/// Returns the reference in Markdown: every key with its kind, default and meaning.
pub fn reference() -> String {
    let mut text = String::from(INTRODUCTION);
    for key in &keys::describe() {
        let heading = match &key.shape {
            Shape::Tables(_) => format!("[{}.NAME]", key.name),
            Shape::List(_) => format!("[[{}]]", key.name),
            _ => format!("[{}]", key.name),
        };
        sections(&mut text, "##", &heading, key);
    }
    text
}

/// Adds the section of a key that is a table, and those of the tables in it.
fn sections(text: &mut String, level: &str, heading: &str, key: &Key) {
    let keys = key.shape.keys().unwrap_or_default();
    if !keys.is_empty() {
        section(text, level, heading, key.meaning, keys);
    }
    for inner in keys {
        sections(text, "###", &format!("{heading} {}", inner.name), inner);
    }
}

fn section(text: &mut String, level: &str, heading: &str, meaning: &str, keys: &[Key]) {
    text.push_str(&format!("\n{level} `{heading}`\n\n{meaning}\n\n"));
    text.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let (value, default) = value_and_default(key);
        let alias = key.alias.map_or(String::new(), |a| format!(" Also `{a}`."));
        let whose = key.whose.map_or(String::new(), |w| format!("*{w}:* "));
        let row = format!(
            "| `{}` | {value} | {default} | {whose}{}{alias} |\n",
            key.name, key.meaning
        );
        text.push_str(&row);
    }
}

fn value_and_default(key: &Key) -> (String, String) {
    match &key.shape {
        Shape::Value { kind, default, .. } => {
            let default = match default {
                Some(default) => format!("`{default}`"),
                None if key.required => "required".into(),
                None => String::new(),
            };
            (kind.clone(), default)
        }
        Shape::Either { kind, default, .. } => (
            format!("{kind}; or table, see below"),
            default
                .as_ref()
                .map_or_else(String::new, |default| format!("`{default}`")),
        ),
        Shape::Map { keys, kind, .. } => (format!("table: {keys} = {kind}"), "`{}`".into()),
        Shape::Table(_) => ("table, see below".into(), String::new()),
        Shape::Switch(_) => ("table, see below, or `\"off\"`".into(), String::new()),
        Shape::List(_) => ("list of tables, see below".into(), "`[]`".into()),
        Shape::Tables(_) => ("tables by name, see below".into(), String::new()),
    }
}

/// Returns the JSON Schema of a configuration file, for editors.
pub fn schema() -> Json {
    let mut schema = object(&keys::describe());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("ganger configuration");
    schema
}

fn object(keys: &[Key]) -> Json {
    let mut properties = Map::new();
    for key in keys {
        let schema = property(key);
        if let Some(alias) = key.alias {
            let mut schema = schema.clone();
            schema["description"] = json!(format!("Another name of `{}`.", key.name));
            properties.insert(alias.into(), schema);
        }
        properties.insert(key.name.into(), schema);
    }
    // One file of a directory may hold the pools and another the sources, and a key may be given
    // under its other name, and another kind of source needs other keys: an editor can't tell that
    // those are missing.
    let required: Vec<&str> = keys
        .iter()
        .filter(|key| key.required && key.alias.is_none() && key.whose.is_none())
        .filter(|key| matches!(key.shape, Shape::Value { .. }))
        .map(|key| key.name)
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(key: &Key) -> Json {
    let mut schema = match &key.shape {
        Shape::Value { schema, .. } => schema.clone(),
        Shape::Map { schema, .. } => json!({ "type": "object", "additionalProperties": schema }),
        Shape::Table(keys) => object(keys),
        Shape::Either { schema, keys, .. } => json!({ "anyOf": [schema, object(keys)] }),
        Shape::Switch(keys) => json!({ "anyOf": [object(keys), { "const": "off" }] }),
        Shape::Tables(keys) => json!({ "type": "object", "additionalProperties": object(keys) }),
        Shape::List(keys) => json!({ "type": "array", "items": object(keys) }),
    };
    schema["description"] = json!(key.meaning);
    if let Shape::Value {
        default: Some(default),
        ..
    }
    | Shape::Either {
        default: Some(default),
        ..
    } = &key.shape
    {
        // Defaults are numbers, texts and empty lists, which JSON writes as TOML does.
        schema["default"] = serde_json::from_str(default).unwrap_or(json!(default));
    }
    schema
}
