//! Publishing: persistent, mandatory, confirmed, many at once. What is published and what follows
//! from its fate is decided elsewhere, the line to the broker is in `line.rs`. A publish that the
//! broker refuses for good ends the channel with everything in flight on it; then each of those is
//! sent again by itself, until the one to blame is found. When a connection of its own is lost,
//! everything in flight is sent again over the next.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::time::Instant;

use super::aloft::Aloft;
use super::connect::Broker;
use super::error::{RabbitMqError, is_of_the_channel, words};
use super::line::{End, Line, LineChange};
use super::returned;
use crate::config::model::RabbitMqSource;

/// A message to be published to a queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutboundMessage {
    /// The queue.
    pub(crate) to: ShortString,
    /// Whether it comes back if there is no such queue.
    pub(crate) mandatory: bool,
    /// Its properties, headers included.
    pub(crate) properties: BasicProperties,
    /// Its body.
    pub(crate) body: Bytes,
}

/// What has become of a parcel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The queue has it, safely.
    Confirmed,
    /// There is no such queue.
    Returned,
    /// The queue can't take it just now: it is full.
    NotNow,
    /// The broker will never take it; its word.
    Refused(String),
}

/// What there is to tell.
#[derive(Debug, Default)]
pub(crate) struct PublisherNews {
    /// Whose fate is known.
    pub(crate) verdicts: Vec<(u64, Verdict)>,
    /// What has become of the line.
    pub(crate) change: Option<LineChange>,
}

type InFlight = Pin<Box<dyn Future<Output = Landed>>>;

/// The end of one flight.
struct Landed {
    /// The parcel's.
    id: u64,
    /// The flight's own number; a parcel that is sent again has another.
    number: u64,
    word: lapin::Result<Confirmation>,
}

/// The line, and what is on its way.
pub(crate) struct Publisher {
    line: Line,
    next_id: u64,
    /// Every parcel whose fate is open.
    parcels: HashMap<u64, Rc<OutboundMessage>>,
    /// Those to be sent, in order.
    queue: VecDeque<u64>,
    /// Those of which one ended the channel. While there are any, they are sent one at a time and
    /// nothing else is.
    suspects: VecDeque<u64>,
    /// The suspect in flight.
    alone: Option<u64>,
    flights: FuturesUnordered<InFlight>,
    /// Those in flight whose fate is open.
    aloft: Aloft,
    /// The channel has ended, for this reason; what was in flight is coming down.
    ended: Option<lapin::Error>,
    lost: Vec<u64>,
    /// Sent once more although the broker may have had them.
    sent_again: u64,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("open", &self.parcels.len())
            .field("suspects", &self.suspects)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// Over a connection that others have made.
    pub(crate) async fn over(broker: Rc<Broker>) -> Result<Self, RabbitMqError> {
        Ok(Self::new(Line::over(broker).await?))
    }

    /// Over a connection of its own, which the broker lists by this name.
    pub(crate) fn own(config: RabbitMqSource, name: String) -> Self {
        Self::new(Line::own(config, name))
    }

    fn new(line: Line) -> Self {
        Self {
            line,
            next_id: 0,
            parcels: HashMap::new(),
            queue: VecDeque::new(),
            suspects: VecDeque::new(),
            alone: None,
            flights: FuturesUnordered::new(),
            aloft: Aloft::default(),
            ended: None,
            lost: Vec::new(),
            sent_again: 0,
        }
    }

    /// Sends a parcel, as soon as [`Publisher::poll_news`] is called. Returns the number by which
    /// its verdict comes.
    pub(crate) fn send(&mut self, parcel: Rc<OutboundMessage>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.parcels.insert(id, parcel);
        self.queue.push_back(id);
        id
    }

    /// Nobody waits for this one any more: it is not sent again. Returns whether its verdict may come
    /// all the same.
    pub(crate) fn forget(&mut self, id: u64) -> bool {
        if self.parcels.remove(&id).is_none() {
            return false;
        }
        if self.queue.contains(&id) || self.suspects.contains(&id) {
            self.queue.retain(|other| *other != id);
            self.suspects.retain(|other| *other != id);
            return false;
        }
        self.aloft.land(id);
        self.release(id);
        true
    }

    /// The broker has said nothing of this one for long. What ends the channel does so at once: it
    /// is not to blame for that, and others need not wait for it.
    pub(crate) fn be_silent(&mut self, id: u64) {
        self.aloft.be_silent(id);
        self.release(id);
    }

    pub(crate) fn is_silent(&self, id: u64) -> bool {
        self.aloft.is_silent(id)
    }

    /// When it was sent to the broker; none if it was not yet.
    pub(crate) fn sent(&self, id: u64) -> Option<Instant> {
        self.aloft.since(id)
    }

    /// The broker listens again: the time for its answers begins now.
    pub(crate) fn wait_anew(&mut self, now: Instant) {
        self.aloft.begin_anew(now);
    }

    /// Others need not wait for this one.
    fn release(&mut self, id: u64) {
        self.alone = self.alone.filter(|alone| *alone != id);
    }

    /// The channel; none while there is none.
    pub(crate) fn channel(&self) -> Option<Channel> {
        self.line.end().map(|end| Channel::clone(&end.channel))
    }

    /// How many were sent once more, since this was last asked, although the broker may have had
    /// them.
    pub(crate) fn take_sent_again(&mut self) -> u64 {
        std::mem::take(&mut self.sent_again)
    }

    /// Ends the line in order.
    pub(crate) async fn close(self) {
        let Self { line, flights, .. } = self;
        // They hold on to it.
        drop(flights);
        line.close().await;
    }

    /// Resolves when there is something to tell; never, while nothing is on its way.
    ///
    /// # Errors
    /// If a connection of others is lost.
    pub(crate) fn poll_news(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PublisherNews, RabbitMqError>> {
        loop {
            if let Some(change) = ready!(self.line.poll(cx, !self.parcels.is_empty()))? {
                return Poll::Ready(Ok(self.told(Vec::new(), change)));
            }
            self.take_off();
            let mut landed = self.poll_landed(cx);
            if landed.is_empty() && self.ended.is_none() {
                return Poll::Pending;
            }
            // One that is alone is the one that came back.
            if self.has_unnumbered() && self.alone.is_none() {
                // It may be any of those that were taken: each is sent again, by itself.
                landed.retain(|one| !matches!(one.word, Ok(Confirmation::Ack(_))));
                let verdicts = self.sort(landed);
                self.suspect_all_in_flight();
                let why = "a message came back without the number that it was sent with";
                let error = RabbitMqError::Lost { why: why.into() };
                return Poll::Ready(self.lose(verdicts, error));
            }
            let mut verdicts = self.sort(landed);
            if self.ended.is_some() && self.flights.is_empty() {
                match self.settle_the_end() {
                    Ok(refused) => verdicts.extend(refused),
                    Err(error) => return Poll::Ready(self.lose(verdicts, error)),
                }
            }
            if !verdicts.is_empty() {
                let change = None;
                return Poll::Ready(Ok(PublisherNews { verdicts, change }));
            }
            if self.ended.is_some() {
                return Poll::Pending;
            }
        }
    }

    fn told(&mut self, verdicts: Vec<(u64, Verdict)>, change: LineChange) -> PublisherNews {
        if let LineChange::Down(_) = change {
            self.line_up_again();
        }
        let change = Some(change);
        PublisherNews { verdicts, change }
    }

    /// The connection is of no use any more.
    fn lose(
        &mut self,
        verdicts: Vec<(u64, Verdict)>,
        error: RabbitMqError,
    ) -> Result<PublisherNews, RabbitMqError> {
        if !self.line.is_own() {
            return Err(error);
        }
        let change = self.line.lost(error);
        Ok(self.told(verdicts, change))
    }

    /// Everything that is open is to be sent again.
    fn line_up_again(&mut self) {
        let in_flight = self.flights.len() + self.lost.len();
        self.sent_again += u64::try_from(in_flight).unwrap_or_default();
        self.flights.clear();
        self.lost.clear();
        self.ended = None;
        self.aloft = Aloft::default();
        if let Some(id) = self.alone.take() {
            self.suspects.push_front(id);
        }
        self.suspects.retain(|id| self.parcels.contains_key(id));
        let suspects = &self.suspects;
        let open = self.parcels.keys().copied();
        let mut open: Vec<u64> = open.filter(|id| !suspects.contains(id)).collect();
        open.sort_unstable();
        self.queue = open.into();
    }

    /// Puts into flight what may be.
    fn take_off(&mut self) {
        if self.ended.is_some() || self.line.end().is_none() {
            return;
        }
        if self.alone.is_none()
            && let Some(id) = self.suspects.pop_front()
        {
            self.alone = Some(id);
            self.launch(id);
        }
        while self.alone.is_none()
            && let Some(id) = self.queue.front().copied()
        {
            let bytes = self.parcels.get(&id).map_or(0, |parcel| parcel.body.len());
            if !self.aloft.has_room(bytes) {
                return;
            }
            self.queue.pop_front();
            self.launch(id);
        }
    }

    fn launch(&mut self, id: u64) {
        let Some(End { broker, channel }) = self.line.end() else {
            self.queue.push_front(id);
            return;
        };
        if let Some(parcel) = self.parcels.get(&id) {
            self.aloft.take_off(id, parcel.body.len(), Instant::now());
            let number = broker.returns().number();
            let flight = publish(Rc::clone(channel), Rc::clone(parcel), number);
            self.flights.push(Box::pin(async move {
                let word = flight.await;
                Landed { id, number, word }
            }));
        }
    }

    /// What has come down by now.
    fn poll_landed(&mut self, cx: &mut Context<'_>) -> Vec<Landed> {
        let mut landed = Vec::new();
        while let Poll::Ready(Some(one)) = Pin::new(&mut self.flights).poll_next(cx) {
            landed.push(one);
        }
        landed
    }

    /// Tells words of the broker from the end of the channel.
    fn sort(&mut self, landed: Vec<Landed>) -> Vec<(u64, Verdict)> {
        let mut verdicts = Vec::with_capacity(landed.len());
        for Landed { id, number, word } in landed {
            // Asked in any case: nobody else takes it out.
            let end = self.line.end();
            let is_alone = self.alone == Some(id);
            let came_back = end.is_some_and(|end| {
                let returns = end.broker.returns();
                returns.take(number) || (is_alone && returns.take_unnumbered())
            });
            let verdict = match word {
                Ok(_) if came_back => Verdict::Returned,
                Ok(Confirmation::Ack(_)) => Verdict::Confirmed,
                Ok(Confirmation::Nack(_) | Confirmation::NotRequested) => Verdict::NotNow,
                Err(error) => {
                    self.lost.push(id);
                    self.ended.get_or_insert(error);
                    continue;
                }
            };
            self.parcels.remove(&id);
            self.aloft.land(id);
            self.release(id);
            verdicts.push((id, verdict));
        }
        verdicts
    }

    fn suspect_all_in_flight(&mut self) {
        let waiting: HashSet<u64> = self.queue.iter().chain(&self.suspects).copied().collect();
        let open = self.parcels.keys().copied();
        let mut in_flight: Vec<u64> = open.filter(|id| !waiting.contains(id)).collect();
        in_flight.sort_unstable();
        self.suspects.extend(in_flight);
    }

    fn has_unnumbered(&self) -> bool {
        let end = self.line.end();
        end.is_some_and(|end| end.broker.returns().has_unnumbered())
    }

    /// All flights have come down after the channel's end: who is to blame? An error is that of a
    /// connection of our own.
    fn settle_the_end(&mut self) -> Result<Vec<(u64, Verdict)>, RabbitMqError> {
        let Some(error) = self.ended.take() else {
            return Ok(Vec::new());
        };
        let is_connected = |end: &End| end.broker.connection().status().connected();
        let is_connected = self.line.end().is_some_and(is_connected);
        let is_of_the_channel = is_connected && is_of_the_channel(&error);
        if self.line.is_own() && !is_of_the_channel {
            return Err(RabbitMqError::lost(&error));
        }
        self.line.replace_channel();
        let mut lost = std::mem::take(&mut self.lost);
        lost.sort_unstable();
        let aloft = std::mem::take(&mut self.aloft);
        let alone = self.alone.take();
        let is_to_blame = |id: &u64| Some(*id) == alone;
        let mut refused = Vec::new();
        if is_of_the_channel
            && let Some(id) = lost.iter().copied().find(is_to_blame)
            && lost
                .iter()
                .all(|id| is_to_blame(id) || aloft.is_silent(*id))
        {
            lost.retain(|other| *other != id);
            self.parcels.remove(&id);
            refused.push((id, Verdict::Refused(words(&error))));
        }
        let is_open = |id: &u64| self.parcels.contains_key(id);
        let (lost, forgotten): (Vec<u64>, Vec<u64>) = lost.into_iter().partition(is_open);
        self.sent_again += u64::try_from(lost.len()).unwrap_or_default();
        let again = if refused.is_empty() {
            &mut self.suspects
        } else {
            &mut self.queue
        };
        for id in lost.into_iter().rev() {
            again.push_front(id);
        }
        let gone = forgotten.into_iter().map(|id| (id, Verdict::NotNow));
        refused.extend(gone);
        Ok(refused)
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
