//! Why RabbitMQ can't be used, told apart so that each cause has its own words. No text here holds
//! a password.

use ganger_queue::fault::{FaultKind, SourceFault};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lapin::ErrorKind;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use rustls::{AlertDescription, CertificateError};

/// Why RabbitMQ can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RabbitMqError {
    /// Its name has no address.
    #[error("the host of `{host}` can't be resolved: {why}")]
    Unresolved {
        /// Which host and port.
        host: String,
        /// The system's word.
        why: String,
    },
    /// Nobody is there, or it hung up.
    #[error("`{host}` can't be reached: {why}")]
    Unreachable {
        /// Which host and port.
        host: String,
        /// The system's word.
        why: String,
    },
    /// Someone is there and hung up on our first words.
    #[error("`{host}` hung up during the handshake: is it RabbitMQ?{hint}")]
    HungUp {
        /// Which host and port.
        host: String,
        /// What else may be the matter.
        hint: &'static str,
    },
    /// It takes too long.
    #[error("`{host}` did not answer within {within:?}")]
    Silent {
        /// Which host and port.
        host: String,
        /// How long was waited.
        within: Duration,
    },
    /// A file for TLS is of no use.
    #[error("`{}` can't be used for TLS: {why}", path.display())]
    TlsFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No authority is known that could vouch for a server.
    #[error("no authorities for TLS: {why}; name a file with `ca_file`")]
    NoAuthorities {
        /// Why not.
        why: String,
    },
    /// The server's certificate is signed by someone unknown.
    #[error(
        "the certificate of `{host}` is signed by no authority that is trusted here: see `ca_file`"
    )]
    UnknownAuthority {
        /// Which host and port.
        host: String,
    },
    /// The server's certificate is for another name.
    #[error("the certificate of `{host}` is for another name: {why}; see `server_name`")]
    WrongName {
        /// Which host and port.
        host: String,
        /// Which name is wanted, and which are there.
        why: String,
    },
    /// The server wants a client certificate, or another one.
    #[error(
        "`{host}` wants a client certificate that it trusts: {why}; see `cert_file` and `key_file`"
    )]
    ClientCertificate {
        /// Which host and port.
        host: String,
        /// Its word.
        why: String,
    },
    /// Anything else about TLS.
    #[error("TLS with `{host}` failed: {why}")]
    Tls {
        /// Which host and port.
        host: String,
        /// What happened.
        why: String,
    },
    /// Too few channels on a connection.
    #[error(
        "`{host}` allows {allowed} channels on a connection, and {needed} are needed: raise `channel_max` \
         in the broker's configuration"
    )]
    FewChannels {
        /// Which host and port.
        host: String,
        /// As many as it allows.
        allowed: u16,
        /// As many as are needed.
        needed: u16,
    },
    /// Wrong user or password.
    #[error("`{host}` refuses the user `{user}` with this password: {why}")]
    Credentials {
        /// Which host and port.
        host: String,
        /// Who we said we are.
        user: String,
        /// The broker's word.
        why: String,
    },
    /// No such virtual host, or it is not for this user.
    #[error("`{host}` refuses the virtual host `{vhost}` to the user `{user}`: {why}")]
    Vhost {
        /// Which host and port.
        host: String,
        /// Who we said we are.
        user: String,
        /// Which virtual host.
        vhost: String,
        /// The broker's word.
        why: String,
    },
    /// Someone else listens there.
    #[error("`{host}` does not speak AMQP 0-9-1: {why}")]
    NotAmqp {
        /// Which host and port.
        host: String,
        /// What happened.
        why: String,
    },
    /// There is no queue, and none may be made.
    #[error("queues are missing, and `declare` is false: {}", quoted(queues))]
    MissingQueues {
        /// All of them.
        queues: Vec<String>,
    },
    /// A queue of ours was made with other arguments.
    #[error("the queue `{queue}` exists with other arguments than ours: {why}")]
    OtherArguments {
        /// Which queue.
        queue: String,
        /// The difference, in the broker's words.
        why: String,
    },
    /// A stream is no queue.
    #[error(
        "`{queue}` is a stream: its messages can't be taken from it; read a quorum or a classic queue"
    )]
    Stream {
        /// Which queue.
        queue: String,
    },
    /// The broker refuses what we need of a queue.
    #[error("the queue `{queue}` can't be used: {why}")]
    Queue {
        /// Which queue.
        queue: String,
        /// The broker's word.
        why: String,
    },
    /// There is no exchange to bind a queue to.
    #[error(
        "the exchange `{exchange}` is missing: make it, or say in `bind` of which `type` it is, and \
         it is declared"
    )]
    MissingExchange {
        /// Which exchange.
        exchange: String,
    },
    /// An exchange is not as it should be, or the broker refuses to bind a queue to it.
    #[error("no queue can be bound to the exchange `{exchange}`: {why}")]
    Exchange {
        /// Which exchange.
        exchange: String,
        /// The broker's word.
        why: String,
    },
    /// A name is too long, that of a queue perhaps once ours is added to it.
    #[error("a name at the broker must be at most 255 bytes: `{queue}`")]
    LongName {
        /// Which queue.
        queue: String,
    },
    /// The connection was there and is gone.
    #[error("the connection is lost: {why}")]
    Lost {
        /// Why.
        why: String,
    },
    /// The broker has closed our channel.
    #[error("the broker closed the channel: {why}")]
    ChannelClosed {
        /// Its word.
        why: String,
    },
    /// The operating system refuses what the source needs.
    #[error("the system refuses what the source needs: {why}")]
    System {
        /// Its word.
        why: String,
    },
    /// Too many threads run for one that is needed.
    #[error("{why}")]
    NoThread {
        /// What is missing.
        why: String,
    },
    /// A command can't be carried out.
    #[error(transparent)]
    Command(#[from] super::command_error::CommandError),
    /// None of several hosts will do.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Hosts(
        /// What is wrong with each.
        Vec<RabbitMqError>,
    ),
}

impl RabbitMqError {
    /// Whether it may be over by itself: at the start such a broker is waited for, while anything
    /// else is a mistake that someone has to mend.
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

    /// Why a host could not be reached, or hung up on us.
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

    /// Why there is no encrypted connection.
    pub(crate) fn tls(host: &str, error: &io::Error) -> Self {
        let host = host.to_owned();
        let Some(inner) = rustls_error(error) else {
            if is_an_end(error) {
                return Self::HungUp { host, hint: "" };
            }
            let why = error.to_string();
            return Self::Tls { host, why };
        };
        match inner {
            // One that was made anew under its old name has another key.
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

    /// Why the broker ended the handshake of AMQP.
    pub(crate) fn handshake(host: &str, who: (&str, &str), error: &lapin::Error) -> Self {
        let (user, vhost) = (who.0.to_owned(), who.1.to_owned());
        let host = host.to_owned();
        let why = words(error);
        match error.kind() {
            ErrorKind::ProtocolError(refusal) => match refusal.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                    Self::Credentials { host, user, why }
                }
                // A limit on connections, which may be over when another has gone.
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
                // A broker that goes down, or has not come up altogether.
                AMQPErrorKind::Hard(
                    AMQPHardError::CONNECTIONFORCED
                    | AMQPHardError::INTERNALERROR
                    | AMQPHardError::RESOURCEERROR,
                ) => Self::Unreachable { host, why },
                _ => Self::NotAmqp { host, why },
            },
            ErrorKind::IOError(error) if rustls_error(error).is_some() => Self::tls(&host, error),
            ErrorKind::IOError(error) if is_an_end(error) => Self::HungUp { host, hint: "" },
            ErrorKind::IOError(error) => Self::unreachable(&host, error),
            ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => {
                Self::NotAmqp { host, why }
            }
            _ => Self::Unreachable { host, why },
        }
    }

    /// Why a connection that was there is no more.
    pub(crate) fn lost(error: &lapin::Error) -> Self {
        let why = words(error);
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

/// What an error says, in the broker's own words where it has said something.
pub(crate) fn words(error: &lapin::Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => refusal.get_message().to_string(),
        ErrorKind::MissingHeartbeatError => {
            "nothing was heard of the broker for two heartbeats".to_owned()
        }
        ErrorKind::IOError(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
            "the broker hung up".to_owned()
        }
        ErrorKind::IOError(error) => error.to_string(),
        ErrorKind::ParsingError(_) => "the broker sent what can't be read".to_owned(),
        ErrorKind::InvalidChannelState(..) => "the channel is closed".to_owned(),
        ErrorKind::InvalidConnectionState(_) => "the connection is closed".to_owned(),
        _ => error.to_string(),
    }
}

/// Whether it is the end of one channel only, the connection living on.
pub(crate) fn is_of_the_channel(error: &lapin::Error) -> bool {
    error.is_amqp_soft_error()
        || matches!(
            error.kind(),
            ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidChannel(_)
        )
}

/// The code of the broker's refusal, if it is one of a channel.
pub(crate) fn soft(error: &lapin::Error) -> Option<&AMQPSoftError> {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => match refusal.kind() {
            AMQPErrorKind::Soft(soft) => Some(soft),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}

fn is_an_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// What TLS says, if it is TLS that has failed.
pub(crate) fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref().or_else(|| {
        let nested = inner.downcast_ref::<io::Error>()?;
        rustls_error(nested).or_else(|| inner.source()?.downcast_ref())
    })
}

/// What a server says of a client certificate that is missing or no good.
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
        let kind = match error.is_no_queue() {
            true => FaultKind::NoQueue,
            false => FaultKind::Unusable,
        };
        Self::new(kind, error)
    }
}
