//! Errors of Kafka in this crate's words. No text here holds the value of a property.

use ganger_queue::fault::{FaultKind, SourceFault};
use rdkafka::error::{KafkaError as Native, RDKafkaErrorCode as Code};

/// Reason why Kafka cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// No property has this name.
    #[error("property `{property}` is not one of librdkafka's")]
    UnknownProperty {
        /// Name of the property.
        property: String,
    },
    /// The value of a property is rejected.
    #[error("property `{property}` has a value that librdkafka refuses")]
    BadProperty {
        /// Name of the property.
        property: String,
    },
    /// The properties conflict, or a file that they name cannot be read.
    #[error("no client can be created with these properties: {0}")]
    Client(String),
    /// No broker answers; one may later.
    #[error("no broker answers: {0}")]
    Unreachable(String),
    /// The broker rejects this client.
    #[error("{0}")]
    Refused(String),
    /// Required topics are missing.
    #[error(
        "these topics are missing, or access to them is denied, and `declare` is off: {}",
        .0.join(", ")
    )]
    MissingTopics(Vec<String>),
    /// Topics do not meet the requirements.
    #[error("{}", .0.join("; "))]
    UnfitTopics(Vec<String>),
    /// An invalid topic name.
    #[error("the name of a topic {rule}: `{name}`")]
    TopicName {
        /// The invalid name.
        name: String,
        /// Violated rule.
        rule: &'static str,
    },
    /// The broker did not create a topic.
    #[error("topic `{topic}` could not be created: {why}")]
    NotCreated {
        /// Name of the topic.
        topic: String,
        /// The broker's reason.
        why: String,
    },
    /// A command cannot be carried out.
    #[error(transparent)]
    Command(#[from] super::command_error::CommandError),
    /// A request failed.
    #[error("{action} failed: {why}")]
    Failed {
        /// The request.
        action: &'static str,
        /// Reason.
        why: String,
    },
}

impl KafkaError {
    /// Returns whether a topic is missing.
    pub(crate) fn is_no_topic(&self) -> bool {
        use super::command_error::CommandError;
        let no_topic = |error: &CommandError| matches!(error, CommandError::NoTopic { .. });
        match self {
            Self::MissingTopics(_) => true,
            Self::Command(error) => no_topic(error),
            _ => false,
        }
    }

    /// Returns whether it concerns one message, while others may still be sent.
    pub(crate) fn is_of_one_message(&self) -> bool {
        use super::command_error::CommandError;
        matches!(
            self,
            Self::Command(
                CommandError::NoTopic { .. }
                    | CommandError::NoTier { .. }
                    | CommandError::Refused { .. }
                    | CommandError::CannotSendBack { .. }
                    | CommandError::Torn { .. }
                    | CommandError::Keyless { .. },
            )
        )
    }

    /// Returns whether waiting may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Failed { .. })
    }

    /// Error of a query whose thread panicked.
    pub(crate) fn panicked() -> Self {
        Self::unanswered("it panicked")
    }

    /// Error of a query without an answer.
    pub(crate) fn unanswered(why: &str) -> Self {
        Self::Failed {
            action: "a request",
            why: why.to_owned(),
        }
    }

    /// Error of a client that could not be created.
    pub(crate) fn of_client(error: Native) -> Self {
        match error {
            Native::ClientConfig(result, _, property, _) => {
                let unknown = rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN;
                if result == unknown {
                    Self::UnknownProperty { property }
                } else {
                    Self::BadProperty { property }
                }
            }
            Native::ClientCreation(reason) => Self::Client(reason),
            other => Self::Client(other.to_string()),
        }
    }

    /// Error of a failed request.
    pub(crate) fn of_request(action: &'static str, error: &Native) -> Self {
        let why = of(error);
        match error.rdkafka_error_code() {
            Some(code) if is_refusal(code) => {
                Self::Refused(format!("{action} was rejected: {why}"))
            }
            _ => Self::Failed { action, why },
        }
    }
}

/// Returns whether the broker rejects this client, or is not of the expected kind.
pub(crate) fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::SSL
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
    )
}

/// Returns whether the error is permanent until the broker's configuration changes.
pub(crate) fn is_permanent(code: Code) -> bool {
    is_its_fault(code)
        || matches!(
            code,
            Code::InvalidTopic
                | Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::UnknownPartition
                | Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
        )
}

/// Returns whether the message itself caused the failure, so that another may be accepted in its place.
pub(crate) fn is_its_fault(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidMessageSize
            | Code::InvalidMessage
            | Code::InvalidTimestamp
            | Code::InvalidRecord
            | Code::PolicyViolation
            | Code::UnsupportedForMessageFormat
            | Code::InvalidArgument
    )
}

/// Returns whether a message failed for its size.
pub(crate) fn is_too_large(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize
    )
}

/// Returns the text of a librdkafka error in this crate's words.
pub(crate) fn of(error: &Native) -> String {
    match error.rdkafka_error_code() {
        Some(code) => words(code),
        None => match error {
            Native::Subscription(text) | Native::Seek(text) | Native::PauseResume(text) => {
                text.clone()
            }
            other => other.to_string(),
        },
    }
}

/// Returns the text of an error code in this crate's words, otherwise in librdkafka's.
pub(crate) fn words(code: Code) -> String {
    let ours = match code {
        Code::Resolve => "the name of a broker can't be resolved",
        Code::BrokerTransportFailure => "the connection to a broker failed",
        Code::AllBrokersDown => "all brokers are down",
        Code::OperationTimedOut | Code::RequestTimedOut => "the broker did not answer in time",
        Code::Authentication | Code::SaslAuthenticationFailed => "SASL authentication failed",
        Code::UnsupportedSASLMechanism => "the broker does not know this SASL mechanism",
        Code::SSL => "TLS failed",
        Code::TopicAuthorizationFailed => "access to the topic is denied",
        Code::GroupAuthorizationFailed => "access to the group is denied",
        Code::ClusterAuthorizationFailed => "this is not permitted in this cluster",
        Code::UnknownTopic | Code::UnknownTopicOrPartition => "there is no such topic",
        Code::UnknownPartition => "there is no such partition",
        Code::InvalidTopic => "invalid topic name",
        Code::MessageSizeTooLarge => "the message is larger than the topic or the producer accepts",
        Code::MessageTimedOut => "the topic has accepted nothing for too long",
        Code::OffsetMetadataTooLarge => "the commit's metadata is larger than the broker accepts",
        Code::PollExceeded => "the consumer did not poll for longer than max.poll.interval.ms",
        Code::Fenced | Code::FencedInstanceId => {
            "another member has our group.instance.id: it must be unique"
        }
        Code::InvalidReplicationFactor => "there are fewer brokers than replicas",
        Code::PolicyViolation => "the broker's policy forbids it",
        other => {
            let text = other.to_string();
            // `Name (Broker: what is wrong)`: the name adds no information.
            let inner = text
                .split_once('(')
                .map_or(text.as_str(), |(_, inner)| inner);
            return inner.trim_end_matches(')').to_owned();
        }
    };
    ours.to_owned()
}

/// Returns the text of a code with librdkafka's detail, without the parts that only its authors need.
pub(crate) fn reason(code: Code, detail: &str) -> String {
    match without_times(detail) {
        "" => words(code),
        detail => format!("{}: {detail}", words(code)),
    }
}

/// Removes the state of the connection and the time spent in it.
pub(crate) fn without_times(detail: &str) -> &str {
    let end = detail.rfind(" (after ").unwrap_or(detail.len());
    detail[..end].trim()
}

impl From<KafkaError> for SourceFault {
    fn from(error: KafkaError) -> Self {
        use super::command_error::CommandError;
        let kind = match &error {
            error if error.is_no_topic() => FaultKind::NoQueue,
            KafkaError::Command(CommandError::Refused { .. }) => FaultKind::Refused,
            _ => FaultKind::Unusable,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings;
    use super::*;

    fn refused(property: &str, value: &str) -> String {
        let config = settings::tests::source(&[(property, value)]);
        let native = settings::consumer(&config, "p", 1 << 20).create_native_config();
        KafkaError::of_client(native.err().unwrap()).to_string()
    }

    #[test]
    fn properties_are_named_and_their_values_are_not() {
        let unknown = "property `sasl.pasword` is not one of librdkafka's";
        assert_eq!(refused("sasl.pasword", "hunter2"), unknown);
        let bad = "property `session.timeout.ms` has a value that librdkafka refuses";
        assert_eq!(refused("session.timeout.ms", "hunter2"), bad);
    }

    #[test]
    fn reasons_in_our_words() {
        let detail = "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection \
                      refused (after 0ms in state CONNECT)";
        assert_eq!(
            reason(Code::BrokerTransportFailure, detail),
            "the connection to a broker failed: 127.0.0.1:1/bootstrap: Connect to \
             ipv4#127.0.0.1:1 failed: Connection refused"
        );
        assert_eq!(reason(Code::SSL, ""), "TLS failed");
        assert_eq!(words(Code::NotCoordinator), "Broker: Not coordinator");
    }

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        assert!(is_permanent(Code::MessageSizeTooLarge) && !is_permanent(Code::MessageTimedOut));
        assert!(is_refusal(Code::SSL) && !is_refusal(Code::BrokerTransportFailure));
        let timed_out = Native::MetadataFetch(Code::OperationTimedOut);
        assert!(KafkaError::of_request("metadata", &timed_out).is_transient());
        let denied = Native::MetadataFetch(Code::GroupAuthorizationFailed);
        assert!(!KafkaError::of_request("metadata", &denied).is_transient());
    }
}
