//! Name of a message in log records.

use std::fmt::Write;

use crate::message::Message;

/// Name of a message in log records: its correlation id, or, where it has none, the name by which
/// its source knows it, such as `orders:17` for row 17 of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogName {
    correlation_id: String,
    message: String,
}

impl LogName {
    /// Returns the name of that message.
    pub fn of(message: &Message) -> Self {
        let mut name = Self::default();
        name.set(message);
        name
    }

    /// Returns the name of a message with that correlation id, or another name for it where that is
    /// empty.
    pub fn or(correlation_id: &str, message: impl FnOnce() -> String) -> Self {
        let message = match correlation_id.is_empty() {
            true => message(),
            false => String::new(),
        };
        Self {
            correlation_id: correlation_id.to_owned(),
            message,
        }
    }

    /// Becomes the name of that message. Its memory is reused.
    pub fn set(&mut self, message: &Message) {
        message.correlation_id.clone_into(&mut self.correlation_id);
        self.message.clear();
        if message.correlation_id.is_empty() && !message.write_numbers(&mut self.message) {
            let id = message.text("message_id").unwrap_or_default();
            id.clone_into(&mut self.message);
        }
    }

    /// Becomes empty.
    pub fn clear(&mut self) {
        self.correlation_id.clear();
        self.message.clear();
    }

    /// Returns the correlation id, if the message has one.
    pub fn correlation_id(&self) -> Option<&str> {
        Some(self.correlation_id.as_str()).filter(|id| !id.is_empty())
    }

    /// Returns the name by which the source knows the message, if it has no correlation id.
    pub fn message(&self) -> Option<&str> {
        Some(self.message.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns either.
    pub fn as_str(&self) -> &str {
        self.correlation_id().unwrap_or(&self.message)
    }
}

impl Message {
    /// Replaces `name` with the name that the message keeps over all its attempts and shares with
    /// no other, if that is made of numbers: of its row, of its partition and offset, or its
    /// source's own. Returns whether it is.
    pub fn write_numbers(&self, name: &mut String) -> bool {
        write_numbers(name, &self.queue, |property| self.integer(property))
    }
}

/// Writes this name for a message of which only its queue and its numeric properties are known.
pub fn write_numbers(
    name: &mut String,
    queue: &str,
    integer: impl Fn(&str) -> Option<i64>,
) -> bool {
    name.clear();
    let written = match ["row_id", "partition", "offset", "number"].map(integer) {
        [Some(row), ..] => write!(name, "{queue}:{row}"),
        [_, Some(partition), Some(offset), _] => write!(name, "{queue}:{partition}:{offset}"),
        [.., Some(number)] => write!(name, "{queue}:{number:x}"),
        _ => return false,
    };
    written.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Property;

    fn named(correlation_id: &str, properties: &[(&'static str, Property)]) -> LogName {
        LogName::of(&Message {
            queue: "orders".into(),
            body: "x".into(),
            headers: Vec::new(),
            correlation_id: correlation_id.into(),
            reply_to: None,
            properties: properties.to_vec(),
            occurrence: None,
        })
    }

    #[test]
    fn a_message_has_one_name_for_records() {
        let number = |name, n| (name, Property::Integer(n));
        let id = ("message_id", Property::Text("m-1".into()));
        let by_its_source = [
            (vec![number("row_id", 17), id.clone()], Some("orders:17")),
            (
                vec![number("partition", 3), number("offset", 9)],
                Some("orders:3:9"),
            ),
            (vec![number("number", 255)], Some("orders:ff")),
            (vec![id], Some("m-1")),
            (vec![], None),
        ];
        for (properties, expected) in by_its_source {
            let name = named("", &properties);
            assert_eq!((name.correlation_id(), name.message()), (None, expected));
        }
        let mut name = named("c-1", &[number("row_id", 17)]);
        assert_eq!((name.correlation_id(), name.message()), (Some("c-1"), None));
        name.clear();
        assert_eq!(name, LogName::default());
    }
}
