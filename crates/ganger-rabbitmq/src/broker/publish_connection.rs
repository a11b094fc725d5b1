//! The line used for publishing: a connection that others have made, or one of its own, and its
//! first channel, with publisher confirms. Its own is opened when there is something to publish,
//! and reconnected from then on without limit: the broker stops reading a connection that publishes
//! when it is short of memory or disk, and acknowledgements must flow meanwhile.

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

type Opening = Pin<Box<dyn Future<Output = Result<End, RabbitMqError>>>>;
type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Back-off between attempts to connect.
pub(crate) const RECONNECT: Backoff = AWAY;

/// Lifetime after which a connection counts as good: the next pause is a short one again.
pub(crate) const GOOD_AFTER: Duration = Duration::from_secs(10);

/// The line.
pub(crate) struct Line {
    /// `None` if others have made the connection and keep it alive.
    own: Option<Box<Own>>,
    door: Door,
    /// The broker's events about a connection of our own.
    events: Events,
}

/// Parameters and state of a connection of our own.
struct Own {
    config: RabbitMqSource,
    name: String,
    /// Number of times in a row that it could not be made, or lived too short.
    failures: u32,
    since: Instant,
}

enum Door {
    /// Nothing has asked for the line yet.
    Shut,
    Opening(Opening),
    Open(End),
}

/// Our end of an open line.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) broker: Rc<Broker>,
    pub(crate) channel: Rc<Channel>,
}

/// Change of the line's state.
#[derive(Debug)]
pub(crate) enum LineChange {
    /// Open, on a new connection of its own.
    Up,
    /// The broker accepts nothing for now; its reason.
    Blocked(String),
    /// The broker accepts publications again.
    Unblocked,
    /// Its own connection is lost, or can't be made. It is retried.
    Down(RabbitMqError),
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let door = match self.door {
            Door::Shut => "shut",
            Door::Opening(_) => "opening",
            Door::Open(_) => "open",
        };
        f.debug_struct("Line").field("door", &door).finish()
    }
}

impl Line {
    /// Uses a connection made by others.
    pub(crate) async fn over(broker: Rc<Broker>) -> Result<Self, RabbitMqError> {
        Ok(Self {
            own: None,
            door: Door::Open(first_channel(broker).await?),
            events: Box::pin(futures_util::stream::pending()),
        })
    }

    /// Uses a connection of its own, which the broker lists by this name.
    pub(crate) fn own(config: RabbitMqSource, name: String) -> Self {
        Self {
            own: Some(Box::new(Own {
                config,
                name,
                failures: 0,
                since: Instant::now(),
            })),
            door: Door::Shut,
            events: Box::pin(futures_util::stream::pending()),
        }
    }

    /// Our end, while the line is open.
    pub(crate) fn end(&self) -> Option<&End> {
        match &self.door {
            Door::Open(end) => Some(end),
            Door::Shut | Door::Opening(_) => None,
        }
    }

    /// Returns whether the line can be opened again if its connection is lost.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Opens the line if it is `wanted`, and returns its changes. Resolves with `None` if it is
    /// still open, or not wanted.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, wanted: bool) -> Poll<Option<LineChange>> {
        if let Poll::Ready(Some(event)) = self.events.as_mut().poll_next(cx)
            && let Some(change) = self.hear(event)
        {
            return Poll::Ready(Some(change));
        }
        if wanted && matches!(self.door, Door::Shut) {
            self.open();
        }
        let Door::Opening(opening) = &mut self.door else {
            return Poll::Ready(None);
        };
        let change = match ready!(opening.as_mut().poll(cx)) {
            Ok(end) => {
                if let Some(own) = &mut self.own {
                    own.since = Instant::now();
                }
                self.events = Box::pin(end.broker.connection().events_listener());
                self.door = Door::Open(end);
                LineChange::Up
            }
            Err(error) => self.lost(error),
        };
        Poll::Ready(Some(change))
    }

    fn hear(&mut self, event: Event) -> Option<LineChange> {
        match event {
            Event::ConnectionBlocked(reason) => Some(LineChange::Blocked(reason)),
            Event::ConnectionUnblocked => Some(LineChange::Unblocked),
            Event::Error(error) => {
                let is_lost = |end: &End| !end.broker.connection().status().connected();
                let lost = self.end().is_some_and(is_lost);
                lost.then(|| self.lost(RabbitMqError::lost(&error)))
            }
            _ => None,
        }
    }

    /// Records that a connection of our own is lost. The next is made whether or not it is wanted:
    /// whoever learns of the loss is to learn of its end.
    pub(crate) fn lost(&mut self, error: RabbitMqError) -> LineChange {
        if let Some(own) = &mut self.own {
            let was_good = self.door.is_open() && own.since.elapsed() >= GOOD_AFTER;
            own.failures = if was_good {
                1
            } else {
                own.failures.saturating_add(1)
            };
        }
        self.open();
        self.events = Box::pin(futures_util::stream::pending());
        LineChange::Down(error)
    }

    /// Resets the back-off, since the cause of the losses is found.
    pub(crate) fn excuse(&mut self) {
        if let Some(own) = &mut self.own {
            own.failures = 0;
        }
    }

    fn open(&mut self) {
        if let Some(own) = &self.own {
            let (config, name) = (own.config.clone(), own.name.clone());
            let at = Instant::now() + RECONNECT.wait(own.failures, fastrand::f64());
            self.door = Door::Opening(Box::pin(async move {
                sleep_until(at).await;
                first_channel(Rc::new(connect(&config, &name).await?)).await
            }));
        }
    }

    /// Closes the line in order.
    pub(crate) async fn close(self) {
        let Self { own, door, events } = self;
        drop(events);
        let Door::Open(End { broker, channel }) = door else {
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

impl Door {
    fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

async fn first_channel(broker: Rc<Broker>) -> Result<End, RabbitMqError> {
    let channel = broker.answer(open_channel(&broker)).await?;
    let channel = Rc::new(channel);
    Ok(End { broker, channel })
}

/// Opens a channel with publisher confirms. A broker that has blocked the connection takes its time.
pub(crate) async fn open_channel(broker: &Broker) -> lapin::Result<Channel> {
    let channel = broker.new_channel().await?;
    let confirms = ConfirmSelectOptions::default();
    channel.confirm_select(confirms).await?;
    Ok(channel)
}
