//! Values of AMQP tables: their text form, which workers get, and their size on the wire. Tables are
//! interpreted elsewhere.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, DecimalValue, FieldTable, ShortString};
use serde_json::{Map, Value as Json};

/// Text form of a value: numbers in decimal, bytes as text if they are UTF-8 and otherwise in
/// base64, a timestamp by RFC 3339, void as an empty text, arrays and tables as JSON.
pub(crate) fn text(value: &AMQPValue) -> String {
    match value {
        AMQPValue::LongString(text) => bytes_as_text(text.as_bytes()),
        AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_) => json(value).to_string(),
        value => match json(value) {
            Json::String(text) => text,
            Json::Null => String::new(),
            json => json.to_string(),
        },
    }
}

/// Converts text to a value.
pub(crate) fn long(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn json(value: &AMQPValue) -> Json {
    match value {
        AMQPValue::Boolean(yes) => Json::from(*yes),
        AMQPValue::ShortShortInt(number) => Json::from(*number),
        AMQPValue::ShortShortUInt(number) => Json::from(*number),
        AMQPValue::ShortInt(number) => Json::from(*number),
        AMQPValue::ShortUInt(number) => Json::from(*number),
        AMQPValue::LongInt(number) => Json::from(*number),
        AMQPValue::LongUInt(number) => Json::from(*number),
        AMQPValue::LongLongInt(number) => Json::from(*number),
        AMQPValue::Float(number) => float(format!("{number:?}"), f64::from(*number)),
        AMQPValue::Double(number) => float(format!("{number:?}"), *number),
        AMQPValue::DecimalValue(decimal) => Json::from(decimal_text(*decimal)),
        AMQPValue::ShortString(text) => Json::from(text.as_str()),
        AMQPValue::LongString(text) => Json::from(bytes_as_text(text.as_bytes())),
        AMQPValue::ByteArray(bytes) => Json::from(bytes_as_text(bytes.as_slice())),
        AMQPValue::Timestamp(seconds) => Json::from(moment(*seconds)),
        AMQPValue::FieldArray(array) => array.as_slice().iter().map(json).collect(),
        AMQPValue::FieldTable(table) => Json::Object(json_table(table)),
        AMQPValue::Void => Json::Null,
    }
}

fn json_table(table: &FieldTable) -> Map<String, Json> {
    let pairs = table.into_iter();
    pairs
        .map(|(name, value)| (name.to_string(), json(value)))
        .collect()
}

/// Converts a number: a whole one as an integer, for languages without other integers; others in the shortest
/// form that reads back the same; those that JSON lacks as text.
fn float(debug: String, number: f64) -> Json {
    if !number.is_finite() {
        return Json::from(debug);
    }
    let short = debug.strip_suffix(".0").unwrap_or(&debug);
    serde_json::from_str(short).unwrap_or_else(|_| Json::from(short))
}

/// Exact decimal text, as for money.
fn decimal_text(DecimalValue { scale, value }: DecimalValue) -> String {
    // The library reads it as unsigned, while RabbitMQ's clients write a sign.
    let value = value.cast_signed();
    let (sign, digits) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let scale = usize::from(scale);
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    format!("{sign}{whole}.{part}")
}

/// Formats a timestamp. A time before 1970 is negative, which the library does not show.
fn moment(seconds: u64) -> String {
    let seconds = seconds.cast_signed();
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| seconds.to_string(), |moment| moment.to_string())
}

fn bytes_as_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => STANDARD.encode(bytes),
    }
}

/// Size of the frame of a message's properties on the wire, in bytes: it can't be split.
pub(crate) fn header_frame_bytes(properties: &BasicProperties) -> usize {
    // Type, channel, size and end of the frame; class, weight, body size and flags.
    const FIXED: usize = 8 + 14;
    let short =
        |text: &Option<ShortString>| text.as_ref().map_or(0, |text| 1 + text.as_str().len());
    FIXED
        + short(properties.content_type())
        + short(properties.content_encoding())
        + properties.headers().as_ref().map_or(0, table_bytes)
        + properties.delivery_mode().map_or(0, |_| 1)
        + properties.priority().map_or(0, |_| 1)
        + short(properties.correlation_id())
        + short(properties.reply_to())
        + short(properties.expiration())
        + short(properties.message_id())
        + properties.timestamp().map_or(0, |_| 8)
        + short(properties.kind())
        + short(properties.user_id())
        + short(properties.app_id())
        + short(properties.cluster_id())
}

fn table_bytes(table: &FieldTable) -> usize {
    let entry =
        |(name, value): (&ShortString, &AMQPValue)| 1 + name.as_str().len() + value_bytes(value);
    4 + table.into_iter().map(entry).sum::<usize>()
}

fn value_bytes(value: &AMQPValue) -> usize {
    1 + match value {
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
        AMQPValue::ShortString(text) => 1 + text.as_str().len(),
        AMQPValue::LongString(text) => 4 + text.len(),
        AMQPValue::ByteArray(bytes) => 4 + bytes.len(),
        AMQPValue::FieldArray(array) => 4 + array.as_slice().iter().map(value_bytes).sum::<usize>(),
        AMQPValue::FieldTable(table) => table_bytes(table),
        AMQPValue::Void => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(scale: u8, value: u32) -> AMQPValue {
        AMQPValue::DecimalValue(DecimalValue { scale, value })
    }

    fn table(pairs: &[(&str, AMQPValue)]) -> AMQPValue {
        let mut table = FieldTable::default();
        for (name, value) in pairs {
            table.insert((*name).into(), value.clone());
        }
        AMQPValue::FieldTable(table)
    }

    #[test]
    fn every_type_has_a_text_form() {
        let nested = table(&[
            (
                "list",
                AMQPValue::FieldArray(vec![AMQPValue::Void, AMQPValue::Boolean(false)].into()),
            ),
            ("price", decimal(2, 5)),
        ]);
        let cases = [
            (AMQPValue::Boolean(true), "true"),
            (AMQPValue::ShortShortInt(-1), "-1"),
            (AMQPValue::ShortShortUInt(255), "255"),
            (AMQPValue::ShortInt(-300), "-300"),
            (AMQPValue::ShortUInt(65535), "65535"),
            (AMQPValue::LongInt(-70_000), "-70000"),
            (AMQPValue::LongUInt(u32::MAX), "4294967295"),
            (AMQPValue::LongLongInt(i64::MIN), "-9223372036854775808"),
            (AMQPValue::Float(0.1), "0.1"),
            (AMQPValue::Double(100.0), "100"),
            (AMQPValue::Double(1e300), "1e+300"),
            (AMQPValue::Double(f64::NAN), "NaN"),
            (decimal(2, 1234), "12.34"),
            (decimal(0, 7), "7"),
            (decimal(3, 7), "0.007"),
            (decimal(2, (-12_345_i32).cast_unsigned()), "-123.45"),
            (decimal(0, (-7_i32).cast_unsigned()), "-7"),
            (decimal(3, (-7_i32).cast_unsigned()), "-0.007"),
            (decimal(1, i32::MIN.cast_unsigned()), "-214748364.8"),
            (AMQPValue::ShortString("s".into()), "s"),
            (long("ä"), "ä"),
            (AMQPValue::LongString(vec![0xff, 0].into()), "/wA="),
            (AMQPValue::ByteArray(vec![b'x'].into()), "x"),
            (AMQPValue::Timestamp(1_700_000_000), "2023-11-14T22:13:20Z"),
            (AMQPValue::Timestamp(u64::MAX), "1969-12-31T23:59:59Z"),
            (
                AMQPValue::Timestamp((-86_400_i64).cast_unsigned()),
                "1969-12-31T00:00:00Z",
            ),
            (
                AMQPValue::Timestamp(i64::MAX.cast_unsigned()),
                "9223372036854775807",
            ),
            (
                AMQPValue::Timestamp(i64::MIN.cast_unsigned()),
                "-9223372036854775808",
            ),
            (AMQPValue::Void, ""),
            (
                AMQPValue::FieldArray(vec![AMQPValue::LongInt(1), long("a")].into()),
                "[1,\"a\"]",
            ),
            (nested, "{\"list\":[null,false],\"price\":\"0.05\"}"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn the_size_of_a_header_frame_is_what_the_library_writes() {
        use lapin::protocol::basic::gen_properties;
        let table = table(&[
            ("a", long("text")),
            ("b", decimal(2, 5)),
            (
                "c",
                AMQPValue::FieldArray(vec![AMQPValue::Double(1.0), AMQPValue::Void].into()),
            ),
            ("d", AMQPValue::Timestamp(1)),
            ("e", AMQPValue::ByteArray(vec![1, 2, 3].into())),
            ("f", AMQPValue::ShortUInt(1)),
        ]);
        let AMQPValue::FieldTable(headers) = table else {
            panic!("a table")
        };
        let properties = BasicProperties::default()
            .with_content_type("text/plain".into())
            .with_headers(headers)
            .with_priority(3)
            .with_timestamp(9)
            .with_reply_to("there".into());
        let mut buffer = [0; 4096];
        let buffer = std::io::Cursor::new(&mut buffer[..]);
        let written = gen_properties(&properties)(buffer.into()).unwrap();
        let properties_bytes = usize::try_from(written.position).unwrap();
        // The flags are part of the fixed size.
        assert_eq!(header_frame_bytes(&properties), 8 + 12 + properties_bytes);
    }
}
