//! Connecting to a host, over TCP or TLS, as a user. The socket is created here, so that each failure has its
//! own error text and a connection that hangs can be cut. The use of a connection is decided elsewhere.

use std::future::Future;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;
use std::{fmt, io};

use async_rs::Runtime;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::error::{RabbitMqError, error_text, soft};
use super::frame_limit::{FrameLimit, USUAL_BYTES};
use super::returned::Returns;
use super::socket;
use super::socket::{LapinRuntime, Socket};
use super::tls::Encryption;
use ganger_config::model::{Host, RabbitMqSource, Tls};
use ganger_core::threads::or_refused;

/// Timeout for the broker's answer to a close.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Number of channels that a connection needs: up to four at once, for each of its consumers, for a query,
/// and for a query that is repeated while the first is not closed yet; and one more for each query that the
/// broker refuses, since the number of that channel is used up. A connection that publishes may have more.
const CHANNELS_MIN: u16 = 16;

/// A connection to a broker. Dropping it cuts the connection.
pub(crate) struct Broker {
    connection: Connection,
    _hangup: Hangup,
    returns: Returns,
    host: String,
    /// Timeout for an answer.
    patience: Duration,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("host", &self.host).finish()
    }
}

impl Broker {
    /// The host and the port that answered.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Messages returned over this connection.
    pub(crate) fn returns(&self) -> &Returns {
        &self.returns
    }

    /// The connection itself.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Opens a channel.
    pub(crate) async fn channel(&self) -> Result<Channel, RabbitMqError> {
        self.answer(self.new_channel()).await
    }

    /// Opens a channel, without a timeout. The library (lapin 4.12) keeps the error with which the broker has
    /// ended a channel, and fails the next channel of that number with it; then another number is tried.
    pub(crate) async fn new_channel(&self) -> lapin::Result<Channel> {
        let mut opened = self.connection.create_channel().await;
        for _ in 1..self.connection.configuration().channel_max() {
            match opened {
                Err(error) if soft(&error).is_some() => {
                    opened = self.connection.create_channel().await;
                }
                opened => return opened,
            }
        }
        opened
    }

    /// Sends the broker a request and waits for the answer up to the timeout.
    pub(crate) async fn ask<T>(
        &self,
        question: impl Future<Output = lapin::Result<T>>,
    ) -> Result<lapin::Result<T>, RabbitMqError> {
        timeout(self.patience, question)
            .await
            .map_err(|_| RabbitMqError::Silent {
                host: self.host.clone(),
                within: self.patience,
            })
    }

    /// Sends a request in the same way; any answer other than the expected one counts as the end of the
    /// connection.
    pub(crate) async fn answer<T>(
        &self,
        question: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, RabbitMqError> {
        let answered = self.ask(question).await?;
        answered.map_err(|error| RabbitMqError::lost(&error))
    }

    /// Closes the connection in an orderly way, as far as the broker answers.
    pub(crate) async fn close(self) {
        let goodbye = self.connection.close(200, "OK".into());
        match timeout(CLOSE_WITHIN, goodbye).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = error_text(&error), "connection already closed")
            }
            Err(_) => tracing::debug!("broker did not confirm the close; connection cut"),
        }
    }
}

/// Closes a channel in an orderly way, as far as the broker answers. A channel that is only dropped would be
/// closed by the library at some later time, and disturb the end of the connection.
pub(crate) async fn close(channel: &Channel) {
    if !channel.status().connected() {
        return;
    }
    match timeout(CLOSE_WITHIN, channel.close(200, "OK".into())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = error_text(&error), "channel already closed"),
        Err(_) => tracing::debug!("broker did not confirm the close of the channel"),
    }
}

/// A second handle on a connection's socket. Dropping it ends the connection, whatever its state in the
/// library: the library's thread would otherwise wait for a broker that hangs.
struct Hangup(std::net::TcpStream);

impl Drop for Hangup {
    fn drop(&mut self) {
        // It may be closed already.
        drop(self.0.shutdown(Shutdown::Both));
    }
}

/// Connects to the first host that accepts the connection. `name` is the connection name that the broker
/// lists.
///
/// # Errors
/// The error of each host, if none of them can be used.
pub(crate) async fn connect(config: &RabbitMqSource, name: &str) -> Result<Broker, RabbitMqError> {
    let tls = or_refused(encryption(config.tls.clone()))
        .await
        .unwrap_or_else(no_thread)?;
    let mut refused = Vec::new();
    for host in &config.hosts {
        let tried = timeout(
            config.connect_timeout,
            or_refused(connect_to(config, host, name, tls.as_ref())),
        );
        let tried = tried.await;
        match tried.map(|tried| tried.unwrap_or_else(no_thread)) {
            Ok(Ok(broker)) => return Ok(broker),
            Ok(Err(error)) => refused.push(error),
            Err(_) => refused.push(RabbitMqError::Silent {
                host: host.to_string(),
                within: config.connect_timeout,
            }),
        }
    }
    Err(match refused.len() {
        1 => refused.swap_remove(0),
        _ => RabbitMqError::Hosts(refused),
    })
}

fn no_thread<T>(error: io::Error) -> Result<T, RabbitMqError> {
    let why = error.to_string();
    Err(RabbitMqError::NoThread { why })
}

/// Reads the trusted authorities and the client's certificate; a disk that hangs does not block this thread.
async fn encryption(tls: Option<Tls>) -> Result<Option<Encryption>, RabbitMqError> {
    let Some(tls) = tls else {
        return Ok(None);
    };
    let read = spawn_blocking(move || Encryption::new(&tls)).await;
    let read = read.map_err(|error| RabbitMqError::System {
        why: error.to_string(),
    })?;
    read.map(Some)
}

async fn connect_to(
    config: &RabbitMqSource,
    host: &Host,
    name: &str,
    tls: Option<&Encryption>,
) -> Result<Broker, RabbitMqError> {
    let (broker, limit) = open(config, host, name, tls, USUAL_BYTES).await?;
    let Some(larger) = limit.beyond_usual() else {
        return Ok(broker);
    };
    broker.close().await;
    let (broker, _) = open(config, host, name, tls, larger).await?;
    Ok(broker)
}

/// Connects with that limit for frames. Returns the broker's own as well.
async fn open(
    config: &RabbitMqSource,
    host: &Host,
    name: &str,
    tls: Option<&Encryption>,
    frame_bytes_max: u32,
) -> Result<(Broker, FrameLimit), RabbitMqError> {
    let shown = host.to_string();
    let (stream, hangup) = reach(host, config.connect_timeout).await?;
    let returns = Returns::default();
    let socket = match tls {
        Some(tls) => tls.encrypt(host, stream).await?,
        None => Socket::from(stream),
    };
    let limit = FrameLimit::default();
    let socket = socket.observed(returns.clone(), limit.clone());
    // The library asks for a socket by a function that it may call again; that is prevented.
    let ready = Mutex::new(Some(AsyncTcpStream::Plain(socket)));
    let hand_over = async move |_: AMQPUri, _: Runtime<LapinRuntime>| {
        let socket = ready.lock().ok().and_then(|mut ready| ready.take());
        socket.ok_or_else(|| lapin::Error::from(io::Error::from(io::ErrorKind::NotConnected)))
    };
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = socket::runtime();
    let uri = uri(config, host, frame_bytes_max);
    let connected = Connection::connector(uri, runtime, hand_over, properties).await;
    let who = (config.username.as_str(), config.vhost.as_str());
    let connection = match connected {
        Ok(connection) => connection,
        Err(error) => return Err(RabbitMqError::handshake(&shown, who, &error)),
    };
    let allowed = connection.configuration().channel_max();
    if (1..CHANNELS_MIN).contains(&allowed) {
        let needed = CHANNELS_MIN;
        return Err(RabbitMqError::FewChannels {
            host: shown,
            allowed,
            needed,
        });
    }
    let broker = Broker {
        connection,
        _hangup: hangup,
        returns,
        host: shown,
        patience: config.connect_timeout,
    };
    Ok((broker, limit))
}

/// Finds an address of a host that accepts the connection.
async fn reach(host: &Host, within: Duration) -> Result<(TcpStream, Hangup), RabbitMqError> {
    let shown = host.to_string();
    let unresolved = |why| RabbitMqError::Unresolved {
        host: shown.clone(),
        why,
    };
    let addresses = tokio::net::lookup_host((host.name.as_str(), host.port))
        .await
        .map_err(|error| unresolved(error.to_string()))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    let reached = reach_any(&shown, &addresses, within).await;
    reached.unwrap_or_else(|| Err(unresolved("it has no address".to_owned())))
}

/// Tries each address, for an equal share of the time, so that a silent one does not prevent the attempt on
/// the next. Returns `None` if there is no address.
async fn reach_any(
    host: &str,
    addresses: &[SocketAddr],
    within: Duration,
) -> Option<Result<(TcpStream, Hangup), RabbitMqError>> {
    let shares = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let share = within / shares.max(1);
    let mut last = None;
    for address in addresses {
        match timeout(share, reach_one(*address)).await {
            Ok(Ok(reached)) => return Some(Ok(reached)),
            Ok(Err(error)) => last = Some(RabbitMqError::unreachable(host, &error)),
            Err(_) => {
                last = Some(RabbitMqError::Silent {
                    host: host.to_owned(),
                    within: share,
                });
            }
        }
    }
    last.map(Err)
}

async fn reach_one(address: SocketAddr) -> io::Result<(TcpStream, Hangup)> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let twin = stream.as_fd().try_clone_to_owned()?;
    Ok((stream, Hangup(twin.into())))
}

/// Connection parameters in the form that the library takes.
fn uri(config: &RabbitMqSource, host: &Host, frame_bytes_max: u32) -> AMQPUri {
    let heartbeat = u16::try_from(config.heartbeat.as_secs()).unwrap_or(u16::MAX);
    AMQPUri {
        scheme: match config.tls {
            Some(_) => AMQPScheme::AMQPS,
            None => AMQPScheme::AMQP,
        },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo {
                username: config.username.clone(),
                password: config.password.expose().to_owned(),
            },
            host: host.name.clone(),
            port: host.port,
        },
        vhost: config.vhost.clone(),
        query: AMQPQueryString {
            heartbeat: Some(heartbeat.max(1)),
            frame_max: Some(frame_bytes_max),
            ..AMQPQueryString::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tokio::net::TcpSocket;

    use super::*;
    use ganger_config as config;
    use ganger_config::model::SourceConfig;

    /// The file is a pipe that has no writer before this thread has continued.
    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_nobody_on_the_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let tls = Tls {
            ca_file: Some(path.clone()),
            ..Tls::default()
        };
        let (goes_on, has_gone_on) = std::sync::mpsc::sync_channel(1);
        let writer = std::thread::spawn(move || {
            let gone_on = has_gone_on.recv_timeout(Duration::from_secs(10));
            std::fs::write(&path, "no certificate").unwrap();
            gone_on
        });
        let (read, ()) = tokio::join!(encryption(Some(tls)), async {
            goes_on.send(()).unwrap();
        });
        let error = read.unwrap_err().to_string();
        assert!(error.contains("it holds no certificate"), "{error}");
        assert_eq!(writer.join().unwrap(), Ok(()));
    }

    /// No machine has enough memory for such a stack: starting its thread fails, as it does beyond the limit
    /// of threads.
    #[test]
    fn a_thread_that_is_refused_is_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_stack_size(1 << 60)
            .build()
            .unwrap();
        for scheme in ["amqp", "amqps"] {
            let text = format!(
                "[sources.main]\nkind = \"rabbitmq\"\nurl = \"{scheme}://name.invalid\"\n\
                 [[pools]]\nname = \"p\"\nsource = \"main\"\nqueue = \"q\"\ncommand = \"w\""
            );
            let config = config::parse(&text, "test.toml", &config::Environment::new()).unwrap();
            let SourceConfig::RabbitMq(source) = &config.sources["main"] else {
                panic!("another kind");
            };
            let error = runtime.block_on(connect(source, "test")).unwrap_err();
            assert!(matches!(error, RabbitMqError::NoThread { .. }), "{error}");
            assert!(error.is_passing());
        }
    }

    /// With a full accept queue it does not answer further connections.
    #[tokio::test]
    async fn a_silent_address_does_not_keep_us_from_the_next() {
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let silent = silent.listen(0).unwrap();
        let address = silent.local_addr().unwrap();
        let mut waiting = Vec::new();
        let short = Duration::from_millis(300);
        while let Ok(Ok(one)) = timeout(short, TcpStream::connect(address)).await {
            waiting.push(one);
            assert!(waiting.len() < 100, "it takes everybody");
        }
        let answers = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let both = [address, answers.local_addr().unwrap()];
        // A busy machine may take longer for the second.
        let within = Duration::from_secs(10);
        let reached = reach_any("host", &both, within).await.unwrap();
        let (stream, _hangup) = reached.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), both[1]);
        let silence = reach_any("host", &both[..1], short).await.unwrap();
        assert!(matches!(silence, Err(RabbitMqError::Silent { .. })));
        assert!(reach_any("host", &[], short).await.is_none());
    }
}
