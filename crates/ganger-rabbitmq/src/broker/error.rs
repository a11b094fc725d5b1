//! Reasons why RabbitMQ can't be used, with separate texts for each cause. No text here holds a password.

use ganger_queue::fault::{FaultKind, SourceFault};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lapin::ErrorKind;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use rustls::{AlertDescription, CertificateError};

/// Reason why RabbitMQ can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RabbitMqError {
    /// The host name has no address.
    #[error("the host of `{host}` can't be resolved: {why}")]
    Unresolved {
        /// Host and port.
        host: String,
        /// Reason given by the system.
        why: String,
    },
    /// No process listens there, or the peer closed the connection.
    #[error("`{host}` can't be reached: {why}")]
    Unreachable {
        /// Host and port.
        host: String,
        /// Reason given by the system.
        why: String,
    },
    /// The peer closed the connection at the first bytes.
    #[error(
        "`{host}` hung up during the handshake: is it RabbitMQ? A port that speaks only TLS (amqps://), or \
         that wants a client certificate (see `cert_file`), does so, too"
    )]
    HungUp {
        /// Host and port.
        host: String,
    },
    /// The broker did not answer in time.
    #[error("`{host}` did not answer within {within:?}")]
    Silent {
        /// Host and port.
        host: String,
        /// Time waited.
        within: Duration,
    },
    /// A TLS file can't be used.
    #[error("`{}` can't be used for TLS: {why}", path.display())]
    TlsFile {
        /// Path of the file.
        path: PathBuf,
        /// Problem with the file.
        why: String,
    },
    /// No certificate authority is known that could vouch for a server.
    #[error("no authorities for TLS: {why}; name a file with `ca_file`")]
    NoAuthorities {
        /// Reason.
        why: String,
    },
    /// The server's certificate is signed by an unknown authority.
    #[error("the certificate of `{host}` is not signed by a trusted authority: see `ca_file`")]
    UnknownAuthority {
        /// Host and port.
        host: String,
    },
    /// The server's certificate is for another name.
    #[error("the certificate of `{host}` is for another name: {why}; see `server_name`")]
    WrongName {
        /// Host and port.
        host: String,
        /// The expected name, and the names in the certificate.
        why: String,
    },
    /// The server requires a client certificate, or another one.
    #[error(
        "`{host}` wants a client certificate that it trusts: {why}; see `cert_file` and `key_file`"
    )]
    ClientCertificate {
        /// Host and port.
        host: String,
        /// Reason given by the server.
        why: String,
    },
    /// Any other TLS error.
    #[error("TLS with `{host}` failed: {why}")]
    Tls {
        /// Host and port.
        host: String,
        /// Description of the error.
        why: String,
    },
    /// A connection may have too few channels.
    #[error(
        "`{host}` allows {allowed} channels on a connection, and {needed} are needed: raise `channel_max` \
         in the broker's configuration"
    )]
    FewChannels {
        /// Host and port.
        host: String,
        /// Number of channels allowed.
        allowed: u16,
        /// Number of channels needed.
        needed: u16,
    },
    /// Wrong user or password.
    #[error("`{host}` refuses the user `{user}` with this password: {why}")]
    Credentials {
        /// Host and port.
        host: String,
        /// User name that was sent.
        user: String,
        /// Reason given by the broker.
        why: String,
    },
    /// The virtual host does not exist, or the user has no access to it.
    #[error("`{host}` refuses the virtual host `{vhost}` to the user `{user}`: {why}")]
    Vhost {
        /// Host and port.
        host: String,
        /// User name that was sent.
        user: String,
        /// Name of the virtual host.
        vhost: String,
        /// Reason given by the broker.
        why: String,
    },
    /// The peer is not an AMQP broker.
    #[error("`{host}` does not speak AMQP 0-9-1: {why}")]
    NotAmqp {
        /// Host and port.
        host: String,
        /// Description of the error.
        why: String,
    },
    /// Queues are missing and may not be declared.
    #[error("queues are missing, and `declare` is false: {}", quoted(queues))]
    MissingQueues {
        /// Names of all missing queues.
        queues: Vec<String>,
    },
    /// A queue of ganger's own was declared with other arguments.
    #[error("the queue `{queue}` exists with other arguments than ours: {why}")]
    OtherArguments {
        /// Name of the queue.
        queue: String,
        /// The difference, in the broker's words.
        why: String,
    },
    /// The queue is a stream, which can't be used as a queue.
    #[error(
        "`{queue}` is a stream: its messages can't be taken from it; read a quorum or a classic queue"
    )]
    Stream {
        /// Name of the queue.
        queue: String,
    },
    /// The broker refuses an operation on a queue that ganger needs.
    #[error("the queue `{queue}` can't be used: {why}")]
    Queue {
        /// Name of the queue.
        queue: String,
        /// Reason given by the broker.
        why: String,
    },
    /// The exchange to bind a queue to is missing.
    #[error(
        "the exchange `{exchange}` is missing: create it, or set its `type` in `bind` to have it \
         declared"
    )]
    MissingExchange {
        /// Name of the exchange.
        exchange: String,
    },
    /// An exchange does not match the configuration, or the broker refuses to bind a queue to it.
    #[error("no queue can be bound to the exchange `{exchange}`: {why}")]
    Exchange {
        /// Name of the exchange.
        exchange: String,
        /// Reason given by the broker.
        why: String,
    },
    /// A name is too long, that of a queue possibly only with ganger's suffix.
    #[error("a name at the broker must be at most 255 bytes: `{queue}`")]
    LongName {
        /// Name of the queue.
        queue: String,
    },
    /// An established connection was lost.
    #[error("the connection is lost: {why}")]
    Lost {
        /// Reason.
        why: String,
    },
    /// The broker has closed the channel.
    #[error("the broker closed the channel: {why}")]
    ChannelClosed {
        /// Reason given by the broker.
        why: String,
    },
    /// The operating system refuses a resource that the source needs.
    #[error("the system refuses what the source needs: {why}")]
    System {
        /// Reason given by the operating system.
        why: String,
    },
    /// A thread can't be started because too many are running.
    #[error("{why}")]
    NoThread {
        /// Description of what is missing.
        why: String,
    },
    /// A command can't be carried out.
    #[error(transparent)]
    Command(#[from] super::command_error::CommandError),
    /// None of several hosts can be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Hosts(
        /// Error of each host.
        Vec<RabbitMqError>,
    ),
}

impl RabbitMqError {
    /// Returns whether the error may be transient: at the start the source waits for such a broker, while any
    /// other error has to be corrected by an operator.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unresolved { .. }
            | Self::Unreachable { .. }
            | Self::HungUp { .. }
            | Self::Silent { .. }
            | Self::NoThread { .. }
            | Self::Lost { .. } => true,
            Self::Hosts(all) => all.iter().all(Self::is_passing),
            _ => false,
        }
    }

    /// Returns whether a queue is missing.
    pub(crate) fn is_no_queue(&self) -> bool {
        use super::command_error::CommandError;
        let no_queue = |error: &CommandError| matches!(error, CommandError::NoQueue { .. });
        match self {
            Self::MissingQueues { .. } => true,
            Self::Command(error) => no_queue(error),
            _ => false,
        }
    }

    /// Builds the error of a host that could not be reached, or that closed the connection.
    pub(crate) fn unreachable(host: &str, error: &io::Error) -> Self {
        Self::Unreachable {
            host: host.to_owned(),
            why: match error.kind() {
                io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
                io::ErrorKind::ConnectionReset => "connection reset".to_owned(),
                _ => error.to_string(),
            },
        }
    }

    /// Builds the error of a failed TLS connection.
    pub(crate) fn tls(host: &str, error: &io::Error) -> Self {
        let host = host.to_owned();
        let Some(inner) = rustls_error(error) else {
            if is_hang_up(error) {
                return Self::HungUp { host };
            }
            let why = error.to_string();
            return Self::Tls { host, why };
        };
        match inner {
            // A certificate authority that was recreated under its old name has another key.
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => Self::UnknownAuthority { host },
            rustls::Error::InvalidCertificate(
                wrong @ (CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. }),
            ) => Self::WrongName {
                host,
                why: wrong.to_string(),
            },
            rustls::Error::AlertReceived(alert) if is_about_us(*alert) => Self::ClientCertificate {
                host,
                why: inner.to_string(),
            },
            rustls::Error::InvalidMessage(_) => Self::Tls {
                host,
                why: "it does not speak TLS on this port".to_owned(),
            },
            _ => Self::Tls {
                host,
                why: inner.to_string(),
            },
        }
    }

    /// Builds the error with which the broker ended the AMQP handshake.
    pub(crate) fn handshake(host: &str, who: (&str, &str), error: &lapin::Error) -> Self {
        let (user, vhost) = (who.0.to_owned(), who.1.to_owned());
        let host = host.to_owned();
        let why = error_text(error);
        match error.kind() {
            ErrorKind::ProtocolError(refusal) => match refusal.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                    Self::Credentials { host, user, why }
                }
                // A limit on connections, which may no longer apply when another connection is closed.
                AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) if why.contains("limit") => {
                    Self::Unreachable { host, why }
                }
                AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED | AMQPHardError::INVALIDPATH) => {
                    Self::Vhost {
                        host,
                        user,
                        vhost,
                        why,
                    }
                }
                // A broker that is stopping, or has not started completely.
                AMQPErrorKind::Hard(
                    AMQPHardError::CONNECTIONFORCED
                    | AMQPHardError::INTERNALERROR
                    | AMQPHardError::RESOURCEERROR,
                ) => Self::Unreachable { host, why },
                _ => Self::NotAmqp { host, why },
            },
            ErrorKind::IOError(error) if rustls_error(error).is_some() => Self::tls(&host, error),
            ErrorKind::IOError(error) if is_hang_up(error) => Self::HungUp { host },
            ErrorKind::IOError(error) => Self::unreachable(&host, error),
            ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => {
                Self::NotAmqp { host, why }
            }
            _ => Self::Unreachable { host, why },
        }
    }

    /// Builds the error of an established connection that was lost.
    pub(crate) fn lost(error: &lapin::Error) -> Self {
        let why = error_text(error);
        match error.kind() {
            ErrorKind::ProtocolError(refusal)
                if matches!(refusal.kind(), AMQPErrorKind::Soft(_)) =>
            {
                Self::ChannelClosed { why }
            }
            _ => Self::Lost { why },
        }
    }
}

/// Text of an error, in the broker's own words where it has given any.
pub(crate) fn error_text(error: &lapin::Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => refusal.get_message().to_string(),
        ErrorKind::MissingHeartbeatError => {
            "no heartbeat from the broker for two intervals".to_owned()
        }
        ErrorKind::IOError(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
            "the broker closed the connection".to_owned()
        }
        ErrorKind::IOError(error) => error.to_string(),
        ErrorKind::ParsingError(_) => "the broker sent malformed data".to_owned(),
        ErrorKind::InvalidChannelState(..) => "the channel is closed".to_owned(),
        ErrorKind::InvalidConnectionState(_) => "the connection is closed".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns whether the error ends only one channel, while the connection continues.
pub(crate) fn is_channel_error(error: &lapin::Error) -> bool {
    error.is_amqp_soft_error()
        || matches!(
            error.kind(),
            ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidChannel(_)
        )
}

/// Code of the broker's refusal, if it closes only a channel.
pub(crate) fn soft(error: &lapin::Error) -> Option<&AMQPSoftError> {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => match refusal.kind() {
            AMQPErrorKind::Soft(soft) => Some(soft),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// The TLS error, if TLS has failed.
fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref().or_else(|| {
        let nested = inner.downcast_ref::<io::Error>()?;
        rustls_error(nested).or_else(|| inner.source()?.downcast_ref())
    })
}

/// Returns whether the server's alert concerns a missing or unusable client certificate.
fn is_about_us(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::HandshakeFailure
    )
}

fn quoted(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
impl From<RabbitMqError> for SourceFault {
    fn from(error: RabbitMqError) -> Self {
        let kind = match &error {
            error if error.is_no_queue() => FaultKind::NoQueue,
            RabbitMqError::Command(error) if error.is_of_one_message() => FaultKind::Refused,
            _ => FaultKind::Unusable,
        };
        Self::new(kind, error)
    }
}
