//! Bodies of messages: as a tree if they are JSON, as text, or as a dump of their bytes.

use maud::{Markup, html};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::shown::{first, text};
use ganger_core::units::show_size;

/// Maximum number of values that a tree shows.
const VALUES_MAX: usize = 2000;
/// Maximum depth of a tree: each branch is read anew.
const DEPTH_MAX: usize = 60;
/// Maximum number of values in a branch that is open from the beginning.
const OPEN_MAX: usize = 25;
/// Longest part of what is deeper, in characters.
const DEEP_CHARS: usize = 100;
/// Maximum size of a body that is shown as a tree, and of the beginning that is shown of another, in bytes.
const TREE_BYTES_MAX: usize = 1 << 20;
const TEXT_BYTES_MAX: usize = 64 << 10;
const DUMP_BYTES_MAX: usize = 4 << 10;
/// Number of bytes in a line of a dump.
const LINE_BYTES: usize = 16;

/// Shows a body.
pub(super) fn content(body: &[u8]) -> Markup {
    let Ok(whole) = std::str::from_utf8(body) else {
        return dump(body);
    };
    if whole.is_empty() {
        return html! { p.none { "The body is empty." } };
    }
    let json = Some(whole).filter(|whole| whole.len() <= TREE_BYTES_MAX);
    let json = json.and_then(|whole| serde_json::from_str::<&RawValue>(whole.trim()).ok());
    match json.filter(|json| json.get().starts_with(['{', '['])) {
        None => plain(whole),
        Some(json) => {
            let mut left = VALUES_MAX;
            html! {
                ul.tree { (value(None, json, 0, &mut left)) }
                @if left == 0 { p.none { "The tree ends after " (VALUES_MAX) " values." } }
                details { summary { "As text, " (show_size(body.len() as u64)) } (plain(whole)) }
            }
        }
    }
}

fn plain(whole: &str) -> Markup {
    let end = whole.floor_char_boundary(TEXT_BYTES_MAX);
    html! {
        pre tabindex="0" { (text(&whole[..end])) }
        @if end < whole.len() {
            p.none { "The first " (show_size(end as u64)) " of " (show_size(whole.len() as u64)) "." }
        }
    }
}

/// Shows bytes that are no text.
fn dump(body: &[u8]) -> Markup {
    let shown = &body[..body.len().min(DUMP_BYTES_MAX)];
    html! {
        p.none {
            @if shown.len() < body.len() { "The first " (show_size(shown.len() as u64)) " of " }
            (show_size(body.len() as u64)) ", not UTF-8."
        }
        pre.dump tabindex="0" {
            @for (number, line) in shown.chunks(LINE_BYTES).enumerate() { (dump_line(number * LINE_BYTES, line)) "\n" }
        }
    }
}

fn dump_line(offset: usize, bytes: &[u8]) -> String {
    let mut line = format!("{offset:06x} ");
    for at in 0..LINE_BYTES {
        match bytes.get(at) {
            Some(byte) => line.push_str(&format!(" {byte:02x}")),
            None => line.push_str("   "),
        }
    }
    line.push_str("  ");
    line.extend(bytes.iter().map(|byte| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '·',
    }));
    line
}

/// Fields of an object in their order, with the same name twice if it is there twice.
struct ObjectFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsInOrder)
    }
}

struct FieldsInOrder;

impl<'de> Visitor<'de> for FieldsInOrder {
    type Value = ObjectFields<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(ObjectFields(fields))
    }
}

/// Shows a value as a branch of the tree. Numbers keep their digits.
fn value(name: Option<&str>, json: &RawValue, depth: usize, left: &mut usize) -> Markup {
    if *left == 0 {
        return html! {};
    }
    *left -= 1;
    let raw = json.get();
    let (open, close, children) = match raw.as_bytes().first() {
        _ if depth > DEPTH_MAX => return leaf(name, &first(raw, DEEP_CHARS)),
        Some(b'{') => {
            let fields: Option<ObjectFields<'_>> = serde_json::from_str(raw).ok();
            let fields = fields.map_or_else(Vec::new, |ObjectFields(fields)| fields);
            let fields = fields.into_iter();
            let children: Vec<_> = fields.map(|(name, json)| (Some(name), json)).collect();
            ("{", "}", children)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
            let items = items.into_iter().map(|item| (None, item)).collect();
            ("[", "]", items)
        }
        _ => return leaf(name, raw),
    };
    html! {
        li {
            @if children.is_empty() {
                (label(name)) (open) (close)
            } @else {
                details open[children.len() <= OPEN_MAX] {
                    summary { (label(name)) (open) span.of { (children.len()) } (close) }
                    ul.tree { @for (name, json) in &children { (value(name.as_deref(), json, depth + 1, left)) } }
                }
            }
        }
    }
}

/// Returns JSON with a line for each value, in its order and with its digits; none if the text is not JSON.
pub(super) fn in_lines(json: &str) -> Option<String> {
    let json: &RawValue = serde_json::from_str(json.trim()).ok()?;
    let mut lines = String::new();
    write_lines(json, 0, &mut lines);
    Some(lines)
}

fn write_lines(json: &RawValue, depth: usize, lines: &mut String) {
    let raw = json.get();
    let (open, close, children): (_, _, Vec<(String, &RawValue)>) = match raw.as_bytes().first() {
        _ if depth > DEPTH_MAX => return lines.push_str(raw),
        Some(b'{') => {
            let fields: Option<ObjectFields<'_>> = serde_json::from_str(raw).ok();
            let fields = fields.map_or_else(Vec::new, |ObjectFields(fields)| fields);
            let fields = fields.into_iter();
            let named = fields.map(|(name, json)| (format!("{}: ", Value::from(name)), json));
            ('{', '}', named.collect())
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
            let items = items.into_iter().map(|item| (String::new(), item));
            ('[', ']', items.collect())
        }
        _ => return lines.push_str(raw),
    };
    lines.push(open);
    for (at, (name, json)) in children.iter().enumerate() {
        lines.push_str(if at == 0 { "\n" } else { ",\n" });
        lines.push_str(&"  ".repeat(depth + 1));
        lines.push_str(name);
        write_lines(json, depth + 1, lines);
    }
    if !children.is_empty() {
        lines.push('\n');
        lines.push_str(&"  ".repeat(depth));
    }
    lines.push(close);
}

fn label(name: Option<&str>) -> Markup {
    html! { @if let Some(name) = name { span.name { (text(name)) } ": " } }
}

fn leaf(name: Option<&str>, raw: &str) -> Markup {
    let kind = match raw.as_bytes().first() {
        Some(b'"') => "string",
        Some(b't' | b'f' | b'n') => "word",
        _ => "digits",
    };
    let string: Option<String> = serde_json::from_str(raw).ok();
    html! {
        li {
            (label(name))
            @match string {
                Some(string) => span.(kind) { "\"" (text(&string)) "\"" },
                None => span.(kind) { (text(raw)) },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_a_tree_in_its_order_with_its_digits() {
        let body = br#" {"z": 12345678901234567890123.0, "a": ["<b>", {}], "a": null} "#;
        let shown = content(body).into_string();
        let (tree, _) = shown.split_once("As text").unwrap();
        for part in [
            "12345678901234567890123.0",
            "&lt;b&gt;",
            "<span class=\"word\">null</span>",
        ] {
            assert!(tree.contains(part), "{part}: {tree}");
        }
        assert!(tree.find("z") < tree.find("name\">a"));
    }

    #[test]
    fn a_tree_ends_and_nesting_is_bounded() {
        let many = format!("[{}1]", "1,".repeat(VALUES_MAX));
        assert!(
            content(many.as_bytes())
                .into_string()
                .contains("The tree ends")
        );
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let shown = content(deep.as_bytes()).into_string();
        assert_eq!(shown.matches("<details open").count(), DEPTH_MAX + 1);
        assert!(in_lines(&deep).unwrap().lines().count() < 3 * DEPTH_MAX);
    }

    #[test]
    fn json_is_written_in_lines() {
        let lines = in_lines(r#"{"b":[1.50,{}],"a\"":"x"}"#).unwrap();
        let expected = "{\n  \"b\": [\n    1.50,\n    {}\n  ],\n  \"a\\\"\": \"x\"\n}";
        assert_eq!(lines, expected);
        assert_eq!(in_lines("{"), None);
    }

    #[test]
    fn bytes_are_dumped() {
        let shown = content(&[0xff, b'<', 0]).into_string();
        assert!(shown.contains("000000  ff 3c 00"), "{shown}");
        assert!(shown.contains("·&lt;·"), "{shown}");
        assert!(content(b"").into_string().contains("empty"));
        let text = "é".repeat(TEXT_BYTES_MAX);
        assert!(content(text.as_bytes()).into_string().contains("The first"));
    }
}
