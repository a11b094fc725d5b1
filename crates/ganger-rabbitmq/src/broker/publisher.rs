//! Publishing: persistent, mandatory, confirmed, many at once. The content and the consequences of a verdict
//! are decided elsewhere; the connection is in `publish_connection.rs`, the choice of channels in `tracks`. A
//! publish that the broker permanently rejects ends its channel with everything in flight there; then each of
//! those messages is sent again alone, until the rejected one is found. When its own connection is lost,
//! everything in flight is sent again over the next one; `isolating.rs` finds the messages that may have
//! ended the connection.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::time::{Instant, Sleep, sleep};

use super::connect::{Broker, close};
use super::error::{RabbitMqError, error_text, is_channel_error};
use super::publish_connection::{PublishConnection, PublishConnectionChange, open_channel};
use super::returned;
use super::tracks::flight::Unconfirmed;
use super::tracks::{TrackStep, Tracks};
use ganger_config::model::RabbitMqSource;

/// A message to be published.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutboundMessage {
    /// Exchange; empty for the one that knows queues by their names.
    pub(crate) exchange: ShortString,
    /// Name of the queue; the routing key if there is another exchange.
    pub(crate) to: ShortString,
    /// True if the message is returned when it reaches no queue.
    pub(crate) mandatory: bool,
    /// Properties, headers included.
    pub(crate) properties: BasicProperties,
    /// Body.
    pub(crate) body: Bytes,
}

/// Outcome of a published message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The queue has stored it.
    Confirmed,
    /// There is no such queue, or the exchange routes it to none.
    Returned,
    /// The queue can't accept it at the moment: it is full.
    NotNow,
    /// The broker permanently rejects it, with its reason.
    Refused(String),
    /// The connection ended each time that it was sent, with the last reason.
    EndsConnection(String),
}

/// Verdicts by message number.
type Verdicts = Vec<(u64, Verdict)>;

/// News of the publisher.
#[derive(Debug, Default)]
pub(crate) struct PublisherNews {
    /// Messages whose outcome is known.
    pub(crate) verdicts: Verdicts,
    /// Change of the connection's state.
    pub(crate) change: Option<PublishConnectionChange>,
    /// Publications that were unconfirmed when the connection was lost.
    pub(crate) lost: Vec<Unconfirmed>,
}

impl From<Verdicts> for PublisherNews {
    fn from(verdicts: Verdicts) -> Self {
        Self {
            verdicts,
            ..Self::default()
        }
    }
}

/// The broker's error text when it ends the connection for more channels than it allows.
const TOO_MANY_CHANNELS: &str = "number of channels opened";

type InFlight = Pin<Box<dyn Future<Output = PublishResult>>>;
type ChannelOpening = Pin<Box<dyn Future<Output = (usize, lapin::Result<Channel>)>>>;

/// The end of one flight.
struct PublishResult {
    /// Number of the message.
    id: u64,
    track: usize,
    /// Number of the flight; a message that is sent again gets another.
    number: u64,
    result: lapin::Result<Confirmation>,
}

/// The connection, and the messages in flight.
pub(crate) struct Publisher {
    connection: PublishConnection,
    next_id: u64,
    /// Messages whose outcome is not known yet.
    parcels: HashMap<u64, Rc<OutboundMessage>>,
    tracks: Tracks<Rc<Channel>>,
    openings: FuturesUnordered<ChannelOpening>,
    flights: FuturesUnordered<InFlight>,
    /// Errors that ended a track's channel, whose flights are still ending.
    ends: HashMap<usize, lapin::Error>,
    /// Number of messages sent again although the broker may have had them.
    sent_again: u64,
    alarm: Pin<Box<Sleep>>,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("connection", &self.connection)
            .field("open", &self.tracks.len())
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// Publishes over a connection made by others, and one channel.
    pub(crate) async fn over(broker: Rc<Broker>) -> Result<Self, RabbitMqError> {
        let mut publisher = Self::new(PublishConnection::over(broker).await?, Tracks::one());
        publisher.adopt();
        Ok(publisher)
    }

    /// Publishes over a connection of its own, which the broker lists by this name.
    pub(crate) fn own(config: RabbitMqSource, name: String) -> Self {
        Self::new(PublishConnection::own(config, name), Tracks::each())
    }

    fn new(connection: PublishConnection, tracks: Tracks<Rc<Channel>>) -> Self {
        Self {
            connection,
            next_id: 0,
            parcels: HashMap::new(),
            tracks,
            openings: FuturesUnordered::new(),
            flights: FuturesUnordered::new(),
            ends: HashMap::new(),
            sent_again: 0,
            alarm: Box::pin(sleep(Duration::ZERO)),
        }
    }

    /// Takes over the channel of a connection that has opened.
    fn adopt(&mut self) {
        if let Some(end) = self.connection.opened() {
            let most = end.broker.connection().configuration().channel_max();
            let channel = Rc::clone(&end.channel);
            self.tracks.adopt(channel, most, Instant::now());
        }
    }

    /// Sends a message, as soon as [`Publisher::poll_news`] is called. Returns the number under which its
    /// verdict is reported.
    pub(crate) fn send(&mut self, parcel: Rc<OutboundMessage>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send_as(id, parcel);
        id
    }

    /// Sends a message that has a number already.
    pub(crate) fn send_as(&mut self, id: u64, parcel: Rc<OutboundMessage>) {
        self.tracks.push(id, &parcel.to, parcel.body.len());
        self.parcels.insert(id, parcel);
    }

    /// Withdraws a message that is not in flight.
    pub(crate) fn withdraw(&mut self, id: u64) -> Option<Rc<OutboundMessage>> {
        self.tracks.forget(id);
        self.parcels.remove(&id)
    }

    /// Publications that were sent and not answered.
    pub(crate) fn unconfirmed(&self) -> Vec<Unconfirmed> {
        self.tracks.unconfirmed()
    }

    /// Stops waiting for a message: it is not sent again. Returns whether its verdict may still
    /// come.
    pub(crate) fn forget(&mut self, id: u64) -> bool {
        self.parcels.remove(&id);
        self.tracks.forget(id)
    }

    /// Marks a message as unanswered for long. A message that ends the channel does so at once, so this one
    /// is not the cause, and others need not wait for it.
    pub(crate) fn mark_silent(&mut self, id: u64) {
        self.tracks.mark_silent(id);
    }

    /// Returns whether the message waits for a queue that has been silent for long.
    pub(crate) fn is_stuck(&self, id: u64) -> bool {
        self.tracks.is_stuck(id)
    }

    /// Time since which its queue has not answered to it or to an earlier message; `None` if it waits for
    /// another reason.
    pub(crate) fn unanswered_since(&self, id: u64) -> Option<Instant> {
        self.tracks.unanswered_since(id)
    }

    /// Restarts the time for the broker's answers, since it reads again.
    pub(crate) fn restart_waits(&mut self, now: Instant) {
        self.tracks.restart_waits(now);
    }

    /// The channel, if all messages share one and it is open.
    pub(crate) fn channel(&self) -> Option<Channel> {
        self.tracks
            .channel(0)
            .map(|channel| Channel::clone(channel))
    }

    /// Number of messages sent again since the last call although the broker may have had them.
    pub(crate) fn take_sent_again(&mut self) -> u64 {
        std::mem::take(&mut self.sent_again)
    }

    /// Resets the connection's back-off, since the cause of its loss is found.
    pub(crate) fn reset_backoff(&mut self) {
        self.connection.reset_backoff();
    }

    /// Closes the connection in an orderly way.
    pub(crate) async fn close(self) {
        let Self {
            connection,
            tracks,
            flights,
            openings,
            ..
        } = self;
        // They hold references to it.
        drop((flights, openings));
        let channels: Vec<Rc<Channel>> = tracks.into_channels().collect();
        join_all(channels.iter().map(|channel| close(channel))).await;
        drop(channels);
        connection.close().await;
    }

    /// Resolves when there is news; never, while nothing is in flight.
    ///
    /// # Errors
    /// If a connection made by others is lost.
    pub(crate) fn poll_news(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PublisherNews, RabbitMqError>> {
        loop {
            // Before the connection, so that messages confirmed before its end are not sent again.
            let finished = self.poll_finished(cx);
            if !finished.is_empty() || self.tracks.ended().is_some() {
                match self.handle_results(finished) {
                    Ok(verdicts) if verdicts.is_empty() => continue,
                    Ok(verdicts) => return Poll::Ready(Ok(verdicts.into())),
                    Err((verdicts, error)) => return Poll::Ready(self.lose(verdicts, error)),
                }
            }
            if let Some(change) = ready!(self.connection.poll(cx, !self.tracks.is_empty())) {
                return Poll::Ready(Ok(self.with_change(Vec::new(), change)));
            }
            let has_sent = self.send_ready();
            match self.poll_openings(cx) {
                Ok(has_opened) if has_sent || has_opened || self.is_due(cx) => {}
                Ok(_) => return Poll::Pending,
                Err(error) => return Poll::Ready(self.lose(Vec::new(), error)),
            }
        }
    }

    /// Evaluates the broker's answers; the error is one that makes the connection unusable.
    fn handle_results(
        &mut self,
        mut finished: Vec<PublishResult>,
    ) -> Result<Verdicts, (Verdicts, RabbitMqError)> {
        // If a message is alone, it is the one that was returned.
        if let Some(track) = self.unnumbered() {
            // It may be any of the messages that were accepted there, so each is sent again alone.
            let is_taken = |one: &PublishResult| matches!(one.result, Ok(Confirmation::Ack(_)));
            finished.retain(|one| one.track != track || !is_taken(one));
            let verdicts = self.sort_results(finished);
            self.tracks.suspect_all(track);
            let why = "a message was returned without the number that it was sent with";
            let error = RabbitMqError::Lost { why: why.into() };
            return Err((verdicts, error));
        }
        let mut verdicts = self.sort_results(finished);
        while let Some(track) = self.tracks.ended() {
            match self.settle_channel_end(track) {
                Ok(refused) => verdicts.extend(refused),
                Err(error) => return Err((verdicts, error)),
            }
        }
        Ok(verdicts)
    }

    fn with_change(
        &mut self,
        verdicts: Verdicts,
        change: PublishConnectionChange,
    ) -> PublisherNews {
        let mut lost = Vec::new();
        match change {
            PublishConnectionChange::Up => self.adopt(),
            // No channel would be opened before the broker reads again.
            PublishConnectionChange::Blocked(_) => self.tracks.hold(true),
            PublishConnectionChange::Unblocked => self.tracks.hold(false),
            PublishConnectionChange::Down(ref error) => {
                if error.to_string().contains(TOO_MANY_CHANNELS) {
                    self.tracks.limit_to_open();
                }
                self.openings.clear();
                self.flights.clear();
                self.ends.clear();
                lost = self.tracks.unconfirmed();
                self.sent_again += self.tracks.requeue_all();
            }
        }
        PublisherNews {
            verdicts,
            change: Some(change),
            lost,
        }
    }

    /// Handles the loss of the connection.
    fn lose(
        &mut self,
        verdicts: Verdicts,
        error: RabbitMqError,
    ) -> Result<PublisherNews, RabbitMqError> {
        if !self.connection.is_own() {
            return Err(error);
        }
        let change = self.connection.handle_loss(error);
        Ok(self.with_change(verdicts, change))
    }

    /// Sends the messages that may be sent. Returns whether there were any.
    fn send_ready(&mut self) -> bool {
        let (now, mut any) = (Instant::now(), false);
        while let Some(broker) = self.connection.opened().map(|end| Rc::clone(&end.broker))
            && let Some(step) = self.tracks.next(now)
        {
            match step {
                TrackStep::Open(track) => self.openings.push(Box::pin(async move {
                    let opened = open_channel(&broker).await;
                    (track, opened)
                })),
                TrackStep::Send { track, id } => self.start_publish(&broker, track, id),
            }
            any = true;
        }
        any
    }

    fn start_publish(&mut self, broker: &Broker, track: usize, id: u64) {
        let channel = self.tracks.channel(track);
        if let (Some(channel), Some(parcel)) = (channel, self.parcels.get(&id)) {
            let number = broker.returns().number();
            let flight = publish(Rc::clone(channel), Rc::clone(parcel), number);
            self.flights.push(Box::pin(async move {
                let result = flight.await;
                PublishResult {
                    id,
                    track,
                    number,
                    result,
                }
            }));
        }
    }

    /// Takes in opened channels. Returns whether there was one.
    fn poll_openings(&mut self, cx: &mut Context<'_>) -> Result<bool, RabbitMqError> {
        let mut any = false;
        while let Poll::Ready(Some((track, opened))) = Pin::new(&mut self.openings).poll_next(cx) {
            let channel = opened.map_err(|error| RabbitMqError::lost(&error))?;
            self.tracks.opened(track, Rc::new(channel), Instant::now());
            any = true;
        }
        Ok(any)
    }

    /// Flights that have ended by now.
    fn poll_finished(&mut self, cx: &mut Context<'_>) -> Vec<PublishResult> {
        let mut finished = Vec::new();
        while let Poll::Ready(Some(one)) = Pin::new(&mut self.flights).poll_next(cx) {
            finished.push(one);
        }
        finished
    }

    /// Returns whether it is time to check what may be sent although nothing was answered.
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.tracks.alarm(Instant::now()) else {
            return false;
        };
        if at != self.alarm.deadline() {
            self.alarm.as_mut().reset(at);
        }
        self.alarm.as_mut().poll(cx).is_ready()
    }

    /// Separates the broker's answers from the end of a channel.
    fn sort_results(&mut self, finished: Vec<PublishResult>) -> Verdicts {
        let (mut verdicts, now) = (Vec::with_capacity(finished.len()), Instant::now());
        for one in finished {
            // Checked in any case, since no other code removes it.
            let was_returned = self.was_returned(&one);
            let PublishResult {
                id, track, result, ..
            } = one;
            let verdict = match result {
                Ok(_) if was_returned => Verdict::Returned,
                Ok(Confirmation::Ack(_)) => Verdict::Confirmed,
                Ok(Confirmation::Nack(_) | Confirmation::NotRequested) => Verdict::NotNow,
                Err(error) => {
                    self.tracks.lose(id);
                    self.ends.entry(track).or_insert(error);
                    continue;
                }
            };
            self.parcels.remove(&id);
            let had_it = self.tracks.record_answer(id, now);
            self.sent_again += u64::from(had_it && verdict == Verdict::Confirmed);
            verdicts.push((id, verdict));
        }
        verdicts
    }

    fn was_returned(&self, one: &PublishResult) -> bool {
        let Some(end) = self.connection.opened() else {
            return false;
        };
        let returns = end.broker.returns();
        let is_alone = self.tracks.alone(one.track) == Some(one.id);
        let channel = self.tracks.channel(one.track).filter(|_| is_alone);
        returns.take(one.number)
            || channel.is_some_and(|channel| returns.take_unnumbered(channel.id()))
    }

    /// Track over which a message was returned that may be any of the messages there, if there is one.
    fn unnumbered(&self) -> Option<usize> {
        let unnumbered = self.connection.opened()?.broker.returns().unnumbered();
        let is_it = |channel: &Rc<Channel>| unnumbered.contains(&channel.id());
        self.tracks.crowded(is_it)
    }

    /// Finds the message that ended a track's channel, once all flights of the track have ended. An error is
    /// one of its own connection.
    fn settle_channel_end(&mut self, track: usize) -> Result<Verdicts, RabbitMqError> {
        let error = self.ends.remove(&track);
        let end = self.connection.opened();
        let is_connected = end.is_some_and(|end| end.broker.connection().status().connected());
        let is_channel_error = is_connected && error.as_ref().is_some_and(is_channel_error);
        if self.connection.is_own()
            && !is_channel_error
            && let Some(error) = &error
        {
            return Err(RabbitMqError::lost(error));
        }
        let end = self.tracks.settle_end(track, is_channel_error);
        let mut verdicts = Verdicts::new();
        if let (Some(id), Some(error)) = (end.refused, error) {
            self.parcels.remove(&id);
            verdicts.push((id, Verdict::Refused(error_text(&error))));
        }
        let gone = end.forgotten.into_iter();
        verdicts.extend(gone.map(|id| (id, Verdict::NotNow)));
        Ok(verdicts)
    }
}

async fn publish(
    channel: Rc<Channel>,
    parcel: Rc<OutboundMessage>,
    number: u64,
) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions {
        mandatory: parcel.mandatory,
        immediate: false,
    };
    let mut properties = parcel.properties.clone();
    if parcel.mandatory {
        properties = returned::numbered(properties, number);
    }
    let sent = channel.basic_publish(
        parcel.exchange.clone(),
        parcel.to.clone(),
        options,
        &parcel.body,
        properties,
    );
    sent.await?.await
}
