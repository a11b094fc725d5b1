//! The connection used for publishing: one made by others, or one of its own, and its first channel, with
//! publisher confirms. Its own connection is opened when there is something to publish, and reconnected from
//! then on without limit. It is separate because the broker stops reading a connection that publishes when it
//! is short of memory or disk, and acknowledgements must still be possible then.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Event};
use tokio::time::{Instant, sleep_until};

use super::connect::{Broker, close, connect};
use super::error::RabbitMqError;
use ganger_config::model::RabbitMqSource;
use ganger_core::backoff::{AWAY, Backoff};

type Opening = Pin<Box<dyn Future<Output = Result<OpenConnection, RabbitMqError>>>>;
type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Back-off between attempts to connect.
pub(crate) const RECONNECT: Backoff = AWAY;

/// Lifetime after which a connection counts as stable, so that the next pause is a short one again.
pub(crate) const GOOD_AFTER: Duration = Duration::from_secs(10);

/// The connection and its state.
pub(crate) struct PublishConnection {
    /// `None` if others have made the connection and keep it alive.
    own: Option<Box<OwnConnection>>,
    state: ConnectionState,
    /// The broker's events about its own connection.
    events: Events,
}

/// Parameters and state of its own connection.
struct OwnConnection {
    config: RabbitMqSource,
    name: String,
    /// Number of consecutive times that it could not be made, or was lost too soon.
    failures: u32,
    since: Instant,
}

enum ConnectionState {
    /// The connection has not been needed yet.
    Closed,
    Opening(Opening),
    Open(OpenConnection),
}

/// An open connection and its first channel.
#[derive(Clone)]
pub(crate) struct OpenConnection {
    pub(crate) broker: Rc<Broker>,
    pub(crate) channel: Rc<Channel>,
}

/// Change of the connection's state.
#[derive(Debug)]
pub(crate) enum PublishConnectionChange {
    /// Open, on a new connection of its own.
    Up,
    /// The broker accepts nothing for now, with its reason.
    Blocked(String),
    /// The broker accepts publications again.
    Unblocked,
    /// Its own connection is lost, or can't be made. It is retried.
    Down(RabbitMqError),
}

impl fmt::Debug for PublishConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            ConnectionState::Closed => "closed",
            ConnectionState::Opening(_) => "opening",
            ConnectionState::Open(_) => "open",
        };
        f.debug_struct("PublishConnection")
            .field("state", &state)
            .finish()
    }
}

impl PublishConnection {
    /// Uses a connection made by others.
    pub(crate) async fn over(broker: Rc<Broker>) -> Result<Self, RabbitMqError> {
        Ok(Self {
            own: None,
            state: ConnectionState::Open(first_channel(broker).await?),
            events: Box::pin(futures_util::stream::pending()),
        })
    }

    /// Uses a connection of its own, which the broker lists by this name.
    pub(crate) fn own(config: RabbitMqSource, name: String) -> Self {
        Self {
            own: Some(Box::new(OwnConnection {
                config,
                name,
                failures: 0,
                since: Instant::now(),
            })),
            state: ConnectionState::Closed,
            events: Box::pin(futures_util::stream::pending()),
        }
    }

    /// The connection and its channel, while it is open.
    pub(crate) fn opened(&self) -> Option<&OpenConnection> {
        match &self.state {
            ConnectionState::Open(end) => Some(end),
            ConnectionState::Closed | ConnectionState::Opening(_) => None,
        }
    }

    /// Returns whether the connection can be opened again if it is lost.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Opens the connection if it is `wanted`, and returns its changes. Resolves with `None` if it is still
    /// open, or not wanted.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        wanted: bool,
    ) -> Poll<Option<PublishConnectionChange>> {
        if let Poll::Ready(Some(event)) = self.events.as_mut().poll_next(cx)
            && let Some(change) = self.handle_event(event)
        {
            return Poll::Ready(Some(change));
        }
        if wanted && matches!(self.state, ConnectionState::Closed) {
            self.start_opening();
        }
        let ConnectionState::Opening(opening) = &mut self.state else {
            return Poll::Ready(None);
        };
        let change = match ready!(opening.as_mut().poll(cx)) {
            Ok(end) => {
                if let Some(own) = &mut self.own {
                    own.since = Instant::now();
                }
                self.events = Box::pin(end.broker.connection().events_listener());
                self.state = ConnectionState::Open(end);
                PublishConnectionChange::Up
            }
            Err(error) => self.handle_loss(error),
        };
        Poll::Ready(Some(change))
    }

    fn handle_event(&mut self, event: Event) -> Option<PublishConnectionChange> {
        match event {
            Event::ConnectionBlocked(reason) => Some(PublishConnectionChange::Blocked(reason)),
            Event::ConnectionUnblocked => Some(PublishConnectionChange::Unblocked),
            Event::Error(error) => {
                let is_lost = |end: &OpenConnection| !end.broker.connection().status().connected();
                let lost = self.opened().is_some_and(is_lost);
                lost.then(|| self.handle_loss(RabbitMqError::lost(&error)))
            }
            _ => None,
        }
    }

    /// Records that its own connection is lost. The next one is made whether or not it is wanted, so that
    /// every report of a loss is followed by a report of its end.
    pub(crate) fn handle_loss(&mut self, error: RabbitMqError) -> PublishConnectionChange {
        if let Some(own) = &mut self.own {
            let was_good = self.state.is_open() && own.since.elapsed() >= GOOD_AFTER;
            own.failures = if was_good {
                1
            } else {
                own.failures.saturating_add(1)
            };
        }
        self.start_opening();
        self.events = Box::pin(futures_util::stream::pending());
        PublishConnectionChange::Down(error)
    }

    /// Resets the back-off, since the cause of the losses is found.
    pub(crate) fn reset_backoff(&mut self) {
        if let Some(own) = &mut self.own {
            own.failures = 0;
        }
    }

    fn start_opening(&mut self) {
        if let Some(own) = &self.own {
            let (config, name) = (own.config.clone(), own.name.clone());
            let at = Instant::now() + RECONNECT.wait(own.failures, fastrand::f64());
            self.state = ConnectionState::Opening(Box::pin(async move {
                sleep_until(at).await;
                first_channel(Rc::new(connect(&config, &name).await?)).await
            }));
        }
    }

    /// Closes the connection in an orderly way.
    pub(crate) async fn close(self) {
        let Self { own, state, events } = self;
        drop(events);
        let ConnectionState::Open(OpenConnection { broker, channel }) = state else {
            return;
        };
        close(&channel).await;
        drop(channel);
        if own.is_some()
            && let Some(broker) = Rc::into_inner(broker)
        {
            broker.close().await;
        }
    }
}

impl ConnectionState {
    fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

async fn first_channel(broker: Rc<Broker>) -> Result<OpenConnection, RabbitMqError> {
    let channel = broker.answer(open_channel(&broker)).await?;
    let channel = Rc::new(channel);
    Ok(OpenConnection { broker, channel })
}

/// Opens a channel with publisher confirms. A broker that has blocked the connection may take long.
pub(crate) async fn open_channel(broker: &Broker) -> lapin::Result<Channel> {
    let channel = broker.new_channel().await?;
    let confirms = ConfirmSelectOptions::default();
    channel.confirm_select(confirms).await?;
    Ok(channel)
}
