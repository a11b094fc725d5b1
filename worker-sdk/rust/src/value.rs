//! Values of headers and properties, and their MessagePack.

use std::fmt;

use rmp::encode::{self, ValueWriteError};

use crate::Error;
use crate::wire::DEPTH_MAX;

/// A value of a header, which the daemon reads in its text form, or of a property, which it tells as
/// its source has it. Made of numbers, texts, bytes, `bool` and options of them by `into()`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
    Nil,
    /// True or false.
    Boolean(bool),
    /// A whole number; MessagePack has those from -2^63 to 2^64-1.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes; text that is not UTF-8 is read as such.
    Bytes(Vec<u8>),
    /// Values in their order.
    List(Vec<Value>),
    /// Names and values in their order.
    Map(Vec<(Value, Value)>),
    /// An extension type's number and data.
    Extension(i8, Vec<u8>),
}

impl Value {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    pub fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        // A header lies two deep: in its map, in that of the output.
        self.write_within(to, DEPTH_MAX - 2)
    }

    fn write_within(&self, to: &mut Vec<u8>, depth: usize) -> Result<(), Error> {
        let inner = || {
            let what = format!("a header must be nested at most {DEPTH_MAX} deep");
            depth.checked_sub(1).ok_or(Error::Output(what))
        };
        match self {
            Self::Nil => encode::write_nil(to).map_err(unwritten)?,
            Self::Boolean(value) => encode::write_bool(to, *value).map_err(unwritten)?,
            Self::Integer(number) => write_integer(to, *number)?,
            Self::Float(number) => encode::write_f64(to, *number)?,
            Self::Text(text) => encode::write_str(to, text)?,
            Self::Bytes(bytes) => encode::write_bin(to, bytes)?,
            Self::List(values) => {
                let depth = inner()?;
                encode::write_array_len(to, length(values.len())?)?;
                for value in values {
                    value.write_within(to, depth)?;
                }
            }
            Self::Map(values) => {
                let depth = inner()?;
                encode::write_map_len(to, length(values.len())?)?;
                for (name, value) in values {
                    if matches!(name, Self::List(_) | Self::Map(_)) {
                        let what = "a name in a header's map must be no list or map".to_owned();
                        return Err(Error::Output(what));
                    }
                    name.write_within(to, depth)?;
                    value.write_within(to, depth)?;
                }
            }
            Self::Extension(kind, data) => {
                inner()?;
                encode::write_ext_meta(to, length(data.len())?, *kind)?;
                to.extend_from_slice(data);
            }
        }
        Ok(())
    }
}

fn write_integer(to: &mut Vec<u8>, number: i128) -> Result<(), Error> {
    if let Ok(number) = u64::try_from(number) {
        encode::write_uint(to, number)?;
    } else if let Ok(number) = i64::try_from(number) {
        encode::write_sint(to, number)?;
    } else {
        let what = format!("a number must be within -2^63 and 2^64-1: {number}");
        return Err(Error::Output(what));
    }
    Ok(())
}

pub(crate) fn length(of: usize) -> Result<u32, Error> {
    u32::try_from(of).map_err(|_| Error::Output(format!("too long for MessagePack: {of}")))
}

/// Memory takes all that is written to it; the library's type says otherwise.
pub(crate) fn unwritten(error: impl fmt::Display) -> Error {
    Error::Output(error.to_string())
}

impl<E: rmp::encode::RmpWriteErr> From<ValueWriteError<E>> for Error {
    fn from(error: ValueWriteError<E>) -> Self {
        unwritten(error)
    }
}

/// The daemon's text form of the simple ones; the others as they are written in Rust.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => Ok(()),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Bytes(_) | Self::List(_) | Self::Map(_) | Self::Extension(..) => {
                write!(f, "{self:?}")
            }
        }
    }
}

macro_rules! from {
    ($($from:ty => $value:expr),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                let make: fn($from) -> Self = $value;
                make(value)
            }
        })*
    };
}

from! {
    bool => Self::Boolean,
    i8 => |number| Self::Integer(number.into()),
    i16 => |number| Self::Integer(number.into()),
    i32 => |number| Self::Integer(number.into()),
    i64 => |number| Self::Integer(number.into()),
    u8 => |number| Self::Integer(number.into()),
    u16 => |number| Self::Integer(number.into()),
    u32 => |number| Self::Integer(number.into()),
    u64 => |number| Self::Integer(number.into()),
    usize => |number| Self::Integer(number as i128),
    f32 => |number| Self::Float(number.into()),
    f64 => Self::Float,
    &str => |text| Self::Text(text.to_owned()),
    &String => |text| Self::Text(text.to_owned()),
    String => Self::Text,
    &[u8] => |bytes| Self::Bytes(bytes.to_owned()),
    Vec<u8> => Self::Bytes,
    Vec<Value> => Self::List,
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nil, Into::into)
    }
}
