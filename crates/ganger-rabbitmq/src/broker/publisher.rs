//! Publishing: persistent, mandatory, confirmed, many at once. The content and the consequences of
//! a verdict are decided elsewhere; the connection is in `line.rs`, the choice of channels in
//! `tracks`. A publish that the broker permanently rejects ends its channel with everything in
//! flight there; then each of those is sent again alone, until the one to blame is found. When a
//! connection of its own is lost, everything in flight is sent again over the next; `isolating.rs`
//! finds which of it may have ended the connection.

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
use super::error::{RabbitMqError, is_of_the_channel, words};
use super::line::{Line, LineChange, open_channel};
use super::returned;
use super::tracks::flight::Unconfirmed;
use super::tracks::{TrackStep, Tracks};
use ganger_config::model::RabbitMqSource;

/// A message to be published to a queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutboundMessage {
    /// Name of the queue.
    pub(crate) to: ShortString,
    /// The message is returned if there is no such queue.
    pub(crate) mandatory: bool,
    /// Properties, headers included.
    pub(crate) properties: BasicProperties,
    /// Body.
    pub(crate) body: Bytes,
}

/// Fate of a published message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The queue has it safely.
    Confirmed,
    /// There is no such queue.
    Returned,
    /// The queue can't accept it at the moment: it is full.
    NotNow,
    /// The broker permanently rejects it; its reason.
    Refused(String),
    /// The connection ended each time that it was sent; the last reason.
    EndsConnection(String),
}

/// Verdicts by message number.
type Verdicts = Vec<(u64, Verdict)>;

/// News of the publisher.
#[derive(Debug, Default)]
pub(crate) struct PublisherNews {
    /// Messages whose fate is known.
    pub(crate) verdicts: Verdicts,
    /// Change of the line's state.
    pub(crate) change: Option<LineChange>,
    /// Publications that were unconfirmed when the line was lost.
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

type InFlight = Pin<Box<dyn Future<Output = Landed>>>;
type ChannelOpening = Pin<Box<dyn Future<Output = (usize, lapin::Result<Channel>)>>>;

/// The end of one flight.
struct Landed {
    /// Number of the message.
    id: u64,
    track: usize,
    /// Number of the flight; a message that is sent again gets another.
    number: u64,
    word: lapin::Result<Confirmation>,
}

/// The line, and the messages in flight.
pub(crate) struct Publisher {
    line: Line,
    next_id: u64,
    /// Messages whose fate is open.
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
            .field("line", &self.line)
            .field("open", &self.tracks.len())
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// Publishes over a connection that others have made, and one channel.
    pub(crate) async fn over(broker: Rc<Broker>) -> Result<Self, RabbitMqError> {
        let mut publisher = Self::new(Line::over(broker).await?, Tracks::one());
        publisher.adopt();
        Ok(publisher)
    }

    /// Publishes over a connection of its own, which the broker lists by this name.
    pub(crate) fn own(config: RabbitMqSource, name: String) -> Self {
        Self::new(Line::own(config, name), Tracks::each())
    }

    fn new(line: Line, tracks: Tracks<Rc<Channel>>) -> Self {
        Self {
            line,
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

    /// Takes over the channel of a line that has opened.
    fn adopt(&mut self) {
        if let Some(end) = self.line.end() {
            let most = end.broker.connection().configuration().channel_max();
            let channel = Rc::clone(&end.channel);
            self.tracks.adopt(channel, most, Instant::now());
        }
    }

    /// Sends a message, as soon as [`Publisher::poll_news`] is called. Returns the number by which
    /// its verdict comes.
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

    /// Marks a message as long unanswered. A message that ends the channel does so at once: this
    /// one is not to blame for that, and others need not wait for it.
    pub(crate) fn be_silent(&mut self, id: u64) {
        self.tracks.be_silent(id);
    }

    /// Returns whether the message waits for a queue that has been silent for long.
    pub(crate) fn is_stuck(&self, id: u64) -> bool {
        self.tracks.is_stuck(id)
    }

    /// Time since which its queue has not answered to it or to an earlier message; `None` if it
    /// waits for something else.
    pub(crate) fn unanswered_since(&self, id: u64) -> Option<Instant> {
        self.tracks.unanswered_since(id)
    }

    /// Restarts the time for the broker's answers, since it reads again.
    pub(crate) fn wait_anew(&mut self, now: Instant) {
        self.tracks.begin_anew(now);
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

    /// Resets the line's back-off, since the cause of its loss is found.
    pub(crate) fn excuse(&mut self) {
        self.line.excuse();
    }

    /// Closes the line in order.
    pub(crate) async fn close(self) {
        let Self {
            line,
            tracks,
            flights,
            openings,
            ..
        } = self;
        // They hold on to it.
        drop((flights, openings));
        let channels: Vec<Rc<Channel>> = tracks.into_channels().collect();
        join_all(channels.iter().map(|channel| close(channel))).await;
        drop(channels);
        line.close().await;
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
            // Before the line: what was confirmed before its end is not sent again.
            let landed = self.poll_landed(cx);
            if !landed.is_empty() || self.tracks.ended().is_some() {
                match self.hear(landed) {
                    Ok(verdicts) if verdicts.is_empty() => continue,
                    Ok(verdicts) => return Poll::Ready(Ok(verdicts.into())),
                    Err((verdicts, error)) => return Poll::Ready(self.lose(verdicts, error)),
                }
            }
            if let Some(change) = ready!(self.line.poll(cx, !self.tracks.is_empty())) {
                return Poll::Ready(Ok(self.told(Vec::new(), change)));
            }
            let has_sent = self.take_off();
            match self.poll_openings(cx) {
                Ok(has_opened) if has_sent || has_opened || self.is_due(cx) => {}
                Ok(_) => return Poll::Pending,
                Err(error) => return Poll::Ready(self.lose(Vec::new(), error)),
            }
        }
    }

    /// Evaluates the broker's answers; the error is one that makes the line unusable.
    fn hear(&mut self, mut landed: Vec<Landed>) -> Result<Verdicts, (Verdicts, RabbitMqError)> {
        // One that is alone is the one that came back.
        if let Some(track) = self.unnumbered() {
            // It may be any of those that were taken there: each is sent again, by itself.
            let is_taken = |one: &Landed| matches!(one.word, Ok(Confirmation::Ack(_)));
            landed.retain(|one| one.track != track || !is_taken(one));
            let verdicts = self.sort(landed);
            self.tracks.suspect_all(track);
            let why = "a message came back without the number that it was sent with";
            let error = RabbitMqError::Lost { why: why.into() };
            return Err((verdicts, error));
        }
        let mut verdicts = self.sort(landed);
        while let Some(track) = self.tracks.ended() {
            match self.settle_the_end(track) {
                Ok(refused) => verdicts.extend(refused),
                Err(error) => return Err((verdicts, error)),
            }
        }
        Ok(verdicts)
    }

    fn told(&mut self, verdicts: Verdicts, change: LineChange) -> PublisherNews {
        let mut lost = Vec::new();
        match change {
            LineChange::Up => self.adopt(),
            // It would not be opened before the broker listens again.
            LineChange::Blocked(_) => self.tracks.hold(true),
            LineChange::Unblocked => self.tracks.hold(false),
            LineChange::Down(ref error) => {
                if error.to_string().contains(TOO_MANY_CHANNELS) {
                    self.tracks.are_enough();
                }
                self.openings.clear();
                self.flights.clear();
                self.ends.clear();
                lost = self.tracks.unconfirmed();
                self.sent_again += self.tracks.line_up_again();
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
        if !self.line.is_own() {
            return Err(error);
        }
        let change = self.line.lost(error);
        Ok(self.told(verdicts, change))
    }

    /// Sends what may be sent. Returns whether there was anything.
    fn take_off(&mut self) -> bool {
        let (now, mut any) = (Instant::now(), false);
        while let Some(broker) = self.line.end().map(|end| Rc::clone(&end.broker))
            && let Some(step) = self.tracks.next(now)
        {
            match step {
                TrackStep::Open(track) => self.openings.push(Box::pin(async move {
                    let opened = open_channel(&broker).await;
                    (track, opened)
                })),
                TrackStep::Send { track, id } => self.launch(&broker, track, id),
            }
            any = true;
        }
        any
    }

    fn launch(&mut self, broker: &Broker, track: usize, id: u64) {
        let channel = self.tracks.channel(track);
        if let (Some(channel), Some(parcel)) = (channel, self.parcels.get(&id)) {
            let number = broker.returns().number();
            let flight = publish(Rc::clone(channel), Rc::clone(parcel), number);
            self.flights.push(Box::pin(async move {
                let word = flight.await;
                Landed {
                    id,
                    track,
                    number,
                    word,
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
    fn poll_landed(&mut self, cx: &mut Context<'_>) -> Vec<Landed> {
        let mut landed = Vec::new();
        while let Poll::Ready(Some(one)) = Pin::new(&mut self.flights).poll_next(cx) {
            landed.push(one);
        }
        landed
    }

    /// Returns whether it is time to see what may be sent although nothing was answered.
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
    fn sort(&mut self, landed: Vec<Landed>) -> Verdicts {
        let (mut verdicts, now) = (Vec::with_capacity(landed.len()), Instant::now());
        for one in landed {
            // Asked in any case: nobody else takes it out.
            let came_back = self.came_back(&one);
            let Landed {
                id, track, word, ..
            } = one;
            let verdict = match word {
                Ok(_) if came_back => Verdict::Returned,
                Ok(Confirmation::Ack(_)) => Verdict::Confirmed,
                Ok(Confirmation::Nack(_) | Confirmation::NotRequested) => Verdict::NotNow,
                Err(error) => {
                    self.tracks.lose(id);
                    self.ends.entry(track).or_insert(error);
                    continue;
                }
            };
            self.parcels.remove(&id);
            let had_it = self.tracks.land(id, now);
            self.sent_again += u64::from(had_it && verdict == Verdict::Confirmed);
            verdicts.push((id, verdict));
        }
        verdicts
    }

    fn came_back(&self, one: &Landed) -> bool {
        let Some(end) = self.line.end() else {
            return false;
        };
        let returns = end.broker.returns();
        let is_alone = self.tracks.alone(one.track) == Some(one.id);
        let channel = self.tracks.channel(one.track).filter(|_| is_alone);
        returns.take(one.number)
            || channel.is_some_and(|channel| returns.take_unnumbered(channel.id()))
    }

    /// Track over which a message was returned that may be any of those there, if there is one.
    fn unnumbered(&self) -> Option<usize> {
        let unnumbered = self.line.end()?.broker.returns().unnumbered();
        let is_it = |channel: &Rc<Channel>| unnumbered.contains(&channel.id());
        self.tracks.crowded(is_it)
    }

    /// Finds the message to blame once all flights of a track have ended after its channel's end.
    /// An error is that of a connection of our own.
    fn settle_the_end(&mut self, track: usize) -> Result<Verdicts, RabbitMqError> {
        let error = self.ends.remove(&track);
        let end = self.line.end();
        let is_connected = end.is_some_and(|end| end.broker.connection().status().connected());
        let is_of_the_channel = is_connected && error.as_ref().is_some_and(is_of_the_channel);
        if self.line.is_own()
            && !is_of_the_channel
            && let Some(error) = &error
        {
            return Err(RabbitMqError::lost(error));
        }
        let end = self.tracks.settle_end(track, is_of_the_channel);
        let mut verdicts = Verdicts::new();
        if let (Some(id), Some(error)) = (end.refused, error) {
            self.parcels.remove(&id);
            verdicts.push((id, Verdict::Refused(words(&error))));
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
        "".into(),
        parcel.to.clone(),
        options,
        &parcel.body,
        properties,
    );
    sent.await?.await
}
