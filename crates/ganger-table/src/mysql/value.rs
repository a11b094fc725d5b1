//! Statements as text with their values, so that any number of them is sent in one round trip. A value
//! can't end its literal, whatever its content: every connection uses utf8mb4 and has backslash escapes
//! enabled.

use crate::server::names::Names;

/// Maximum bytes of a packet, unless it has a single statement: client and server hold it in memory.
const PACKET_BYTES: usize = 1 << 20;

/// A number that no row has, for an empty list.
const NOBODY: i64 = i64::MIN + 1;

/// A value for a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Number(i64),
    /// A list in parentheses.
    Numbers(&'a [i64]),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Milliseconds from now, by the server's clock, rounded up so that it is never early. 0 is written
    /// as 0, so that a clock that is set back hides no message that was never delayed.
    Later(i64),
}

/// Now by the server's clock, in milliseconds, rounded down, so that nothing is due early.
macro_rules! now_ms {
    () => {
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000"
    };
}
pub(crate) use now_ms;

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Value<'_> {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Number(flag.into())
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a [i64]> for Value<'a> {
    fn from(numbers: &'a [i64]) -> Self {
        Self::Numbers(numbers)
    }
}

impl<'a> From<&'a Vec<i64>> for Value<'a> {
    fn from(numbers: &'a Vec<i64>) -> Self {
        Self::Numbers(numbers)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Value<'_> {
    fn write(self, text: &mut Vec<u8>) {
        match self {
            Self::Null => text.extend(b"NULL"),
            Self::Number(number) => text.extend(number.to_string().into_bytes()),
            Self::Numbers([]) => Self::Numbers(&[NOBODY]).write(text),
            Self::Numbers(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
                text.push(b'(');
                text.extend(numbers.join(",").into_bytes());
                text.push(b')');
            }
            Self::Text(value) => quote(value.as_bytes(), text),
            Self::Later(0) => text.push(b'0'),
            Self::Later(ms) => {
                text.extend(concat!("(", now_ms!(), " + 1 + ").as_bytes());
                text.extend(ms.to_string().into_bytes());
                text.push(b')');
            }
            Self::Bytes(value) => {
                text.extend(b"_binary");
                quote(value, text);
            }
        }
    }
}

fn quote(value: &[u8], text: &mut Vec<u8>) {
    text.reserve(value.len() + 2);
    text.push(b'\'');
    for &byte in value {
        match byte {
            0 => text.extend(b"\\0"),
            b'\'' | b'\\' => text.extend([b'\\', byte]),
            _ => text.push(byte),
        }
    }
    text.push(b'\'');
}

/// Statements that are sent together and run in order, up to the first that fails.
#[derive(Debug)]
pub(crate) struct Script {
    names: Names,
    /// Maximum bytes of statements that the server accepts at once.
    most: usize,
    pub(super) packets: Vec<Packet>,
    statements: usize,
}

/// Statements of one packet.
#[derive(Debug, Default)]
pub(super) struct Packet {
    pub(super) text: Vec<u8>,
    pub(super) statements: usize,
}

impl Script {
    pub(super) fn with(names: &Names, most: usize) -> Self {
        Self {
            names: names.clone(),
            most,
            packets: Vec::new(),
            statements: 0,
        }
    }

    /// Adds a statement with a value for each `?` of its text. Returns the position of its answer.
    pub(crate) fn add(&mut self, text: &str, values: &[Value<'_>]) -> usize {
        let mut statement = Vec::with_capacity(text.len());
        self.write(&mut statement, text, values);
        self.push(&statement)
    }

    /// Adds an insert of rows, each with a value for each `?`, in as many statements as needed.
    pub(crate) fn add_rows<'v>(
        &mut self,
        insert: &str,
        row: &str,
        rows: impl IntoIterator<Item = Vec<Value<'v>>>,
    ) {
        let mut statement = Vec::new();
        for values in rows {
            let mut next = Vec::new();
            self.write(&mut next, row, &values);
            if !statement.is_empty() && statement.len() + next.len() >= self.room() {
                self.push(&statement);
                statement.clear();
            }
            match statement.is_empty() {
                true => self.write(&mut statement, insert, &[]),
                false => statement.push(b','),
            }
            statement.extend(next);
        }
        if !statement.is_empty() {
            self.push(&statement);
        }
    }

    /// Returns the maximum bytes of a packet with several statements.
    fn room(&self) -> usize {
        self.most.min(PACKET_BYTES)
    }

    /// Returns the number of statements.
    pub(crate) fn len(&self) -> usize {
        self.statements
    }

    fn write(&self, statement: &mut Vec<u8>, text: &str, values: &[Value<'_>]) {
        let text = self.names.apply_to(text);
        let mut values = values.iter();
        let mut parts = text.split('?');
        statement.extend(parts.next().unwrap_or_default().as_bytes());
        for part in parts {
            match values.next() {
                Some(value) => value.write(statement),
                None => statement.push(b'?'),
            }
            statement.extend(part.as_bytes());
        }
        debug_assert!(values.next().is_none(), "more values than `?`: {text}");
    }

    fn push(&mut self, statement: &[u8]) -> usize {
        let room = self.room();
        let fits = |packet: &&mut Packet| packet.text.len() + statement.len() < room;
        match self.packets.last_mut().filter(fits) {
            Some(packet) => {
                packet.text.push(b';');
                packet.text.extend(statement);
                packet.statements += 1;
            }
            None => self.packets.push(Packet {
                text: statement.to_vec(),
                statements: 1,
            }),
        }
        self.statements += 1;
        self.statements - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MariaDB's default.
    const MOST: usize = 16 << 20;

    fn written(text: &str, values: &[Value<'_>]) -> String {
        let mut script = Script::with(&Names::default(), MOST);
        script.add(text, values);
        String::from_utf8(script.packets.remove(0).text).unwrap()
    }

    #[test]
    fn a_value_is_nothing_but_a_value() {
        for (value, expected) in [
            (Value::Null, "NULL"),
            (Value::from(-7), "-7"),
            (Value::from("it's ?"), r"'it\'s ?'"),
            (Value::from("\\' OR 1 -- "), r"'\\\' OR 1 -- '"),
            (Value::from("a\0b\n\u{1f600}"), "'a\\0b\n\u{1f600}'"),
            (Value::from(&b"\0'x"[..]), r"_binary'\0\'x'"),
            (Value::from(&[1_i64, 2][..]), "(1,2)"),
            (Value::from(&[][..] as &[i64]), "(-9223372036854775807)"),
            (Value::from(None::<&str>), "NULL"),
            (Value::Later(0), "0"),
        ] {
            assert_eq!(written("= ?", &[value]), format!("= {expected}"));
        }
        assert_eq!(written("? ?", &["?".into(), 2.into()]), "'?' 2");
    }

    #[test]
    fn statements_share_packets_as_long_as_there_is_room() {
        let mut script = Script::with(&Names::with_prefix("q_"), MOST);
        assert_eq!(script.add("SELECT 1 FROM owners", &[]), 0);
        assert_eq!(script.add("DELETE FROM owners", &[]), 1);
        assert_eq!(
            script.packets[0].text,
            b"SELECT 1 FROM q_owners;DELETE FROM q_owners"
        );
        let large = vec![b'x'; PACKET_BYTES];
        assert_eq!(script.add("DO ?", &[large.as_slice().into()]), 2);
        let counts: Vec<_> = script.packets.iter().map(|one| one.statements).collect();
        assert_eq!((counts, script.len()), (vec![2, 1], 3));
    }

    #[test]
    fn a_server_that_takes_less_is_told_less_at_once() {
        let (text, most) = ("x".repeat(400), 1_000);
        let mut script = Script::with(&Names::default(), most);
        for _ in 0..3 {
            script.add("DO ?", &[text.as_str().into()]);
        }
        script.add_rows("INSERT ", "(?)", vec![vec![text.as_str().into()]; 5]);
        let sizes = script.packets.iter().map(|packet| packet.text.len());
        assert!(sizes.max() <= Some(most), "{:?}", script.packets);
        assert_eq!(script.len(), 6);
    }

    #[test]
    fn rows_are_inserted_together_up_to_a_packet() {
        let mut script = Script::with(&Names::default(), MOST);
        let large = "x".repeat(PACKET_BYTES);
        let rows = ["a", "b", large.as_str(), "c"];
        let rows = rows.map(|text| vec![Value::from(text)]);
        script.add_rows("INSERT INTO t VALUES ", "(?)", rows);
        let told: Vec<_> = script.packets.iter().map(|one| &one.text).collect();
        assert_eq!(told[0], b"INSERT INTO t VALUES ('a'),('b')");
        assert!(told[1].starts_with(b"INSERT INTO t VALUES ('xx"));
        assert_eq!(told[2], b"INSERT INTO t VALUES ('c')");
        script.add_rows("INSERT INTO t VALUES ", "(?)", Vec::new());
        assert_eq!(script.len(), 3);
    }
}
