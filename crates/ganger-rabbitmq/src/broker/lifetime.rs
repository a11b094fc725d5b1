//! Lifetime of a queue without consumers. AMQP has no query for it. But the broker compares a declaration
//! with an existing queue, and reports the first difference.

use std::fmt;

use lapin::options::QueueDeclareOptions;
use lapin::types::{FieldTable, ShortString};

use super::connect::{Broker, close};
use super::error::{RabbitMqError, error_text, soft};
use super::field_table::long;

/// Queue argument by which an unused queue is deleted.
const EXPIRES: &str = "x-expires";

/// Lifetime of a queue without consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It is kept, as far as the broker reports.
    Lasting,
    /// It is deleted when its last consumer ends.
    AutoDelete,
    /// It is deleted after being unused for that number of milliseconds, as text.
    Expires(String),
}

impl Lifetime {
    /// Returns whether the queue and its messages are lost with its consumers.
    pub(crate) fn needs_consumers(&self) -> bool {
        *self != Self::Lasting
    }
}

/// A queue that the broker may delete together with its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShortLived {
    pub(crate) queue: String,
    pub(crate) lifetime: Lifetime,
}

impl fmt::Display for ShortLived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, lifetime } = self;
        write!(f, "RabbitMQ deletes the queue `{queue}` and its messages ")?;
        match lifetime {
            Lifetime::Lasting => write!(f, "never"),
            Lifetime::AutoDelete => {
                write!(f, "when its last consumer ends, since it is auto-delete")
            }
            Lifetime::Expires(ms) => write!(
                f,
                "once it had no consumer for {ms} ms, by its argument `{EXPIRES}`"
            ),
        }
    }
}

/// Queries the lifetime of an existing queue. If the user may not configure the queue there is no answer, and
/// the queue counts as lasting.
///
/// # Errors
/// If the connection is lost.
pub(crate) async fn lifetime(
    broker: &Broker,
    queue: &ShortString,
) -> Result<Lifetime, RabbitMqError> {
    for durable in [true, false] {
        // No queue can have such an argument, so none is created if the queue does not exist at this moment.
        let mut arguments = FieldTable::default();
        arguments.insert(EXPIRES.into(), long("ganger-probe"));
        let options = QueueDeclareOptions {
            durable,
            ..QueueDeclareOptions::default()
        };
        let channel = broker.channel().await?;
        let declared = channel.queue_declare(queue.clone(), options, arguments);
        match broker.ask(declared).await? {
            Ok(_) => {
                close(&channel).await;
                break;
            }
            Err(error) if soft(&error).is_none() => return Err(RabbitMqError::lost(&error)),
            Err(error) => match read(&error_text(&error)) {
                Difference::Durability => {}
                Difference::Lifetime(lifetime) => return Ok(lifetime),
            },
        }
    }
    Ok(Lifetime::Lasting)
}

/// Difference between the queue and the declaration.
#[derive(Debug, PartialEq, Eq)]
enum Difference {
    /// Durability; no other property was compared.
    Durability,
    Lifetime(Lifetime),
}

fn read(text: &str) -> Difference {
    let differs = |what| text.contains(&format!("inequivalent arg '{what}'"));
    if differs("durable") {
        return Difference::Durability;
    }
    let expires = differs(EXPIRES).then(|| current_number(text)).flatten();
    Difference::Lifetime(match expires {
        Some(ms) => Lifetime::Expires(ms.to_owned()),
        None if differs("auto_delete") => Lifetime::AutoDelete,
        None => Lifetime::Lasting,
    })
}

/// Value that the queue has, taken from the broker's message: `… but current is the value '1000' of type
/// 'signedint'`, or `… but current is '1000'`.
fn current_number(text: &str) -> Option<&str> {
    let (_, current) = text.rsplit_once("but current is")?;
    let mut quoted = current.split('\'').skip(1).step_by(2);
    quoted.find(|text| text.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_tells_the_lifetime() {
        let says = |text: &str| read(&format!("PRECONDITION_FAILED - {text}"));
        let other = "for queue 'q' in vhost '/': received 'true' but current is 'false'";
        let durable = format!("inequivalent arg 'durable' {other}");
        assert_eq!(says(&durable), Difference::Durability);
        let auto_delete = "inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received \
                           'false' but current is 'true'";
        let lifetime = Difference::Lifetime;
        assert_eq!(says(auto_delete), lifetime(Lifetime::AutoDelete));
        let none = "inequivalent arg 'x-expires' for queue 'q 7' in vhost '/': received the value \
                    'ganger-probe' of type 'longstr' but current is none";
        assert_eq!(says(none), lifetime(Lifetime::Lasting));
        for current in ["'1800000'", "the value '1800000' of type 'signedint'"] {
            let words = format!(
                "inequivalent arg 'x-expires' for queue 'q' in vhost '/': received 'ganger-probe' but \
                 current is {current}"
            );
            let expires = Lifetime::Expires("1800000".to_owned());
            assert_eq!(says(&words), lifetime(expires));
        }
        let gone =
            "invalid arg 'x-expires' for queue 'q' in vhost '/': {unacceptable_type,longstr}";
        assert_eq!(says(gone), lifetime(Lifetime::Lasting));
    }
}
