//! Publishing on a channel of its own: persistent, mandatory, confirmed, many at once. What is
//! published and what follows from its fate is decided elsewhere. A publish that the broker
//! refuses for good ends the channel with everything in flight on it; then each of those is sent
//! again by itself, until the one to blame is found.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation};

use super::connect::{Broker, close};
use super::error::{RabbitMqError, is_of_the_channel, words};
use super::returns;

/// The most messages in flight at once.
const IN_FLIGHT_MAX: usize = 1024;
/// The most bytes of bodies in flight at once, but for a single message. What is more than the
/// library's buffer, 4 MiB, would still go out when the broker has closed the channel, and then it
/// ends the whole connection.
const BYTES_IN_FLIGHT_MAX: usize = 2 << 20;

/// A message to be published to a queue.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parcel {
    /// The queue.
    pub(super) to: ShortString,
    /// Whether it comes back if there is no such queue.
    pub(super) mandatory: bool,
    /// Its properties, headers included.
    pub(super) properties: BasicProperties,
    /// Its body.
    pub(super) body: Bytes,
}

/// What has become of a parcel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The queue has it, safely.
    Confirmed,
    /// There is no such queue.
    Returned,
    /// The queue can't take it just now: it is full.
    NotNow,
    /// The broker will never take it; its word.
    Refused(String),
}

type Flight = Pin<Box<dyn Future<Output = Landed>>>;
type Opening = Pin<Box<dyn Future<Output = Result<Rc<Channel>, RabbitMqError>>>>;

/// The end of one flight.
struct Landed {
    /// The parcel's.
    id: u64,
    /// The flight's own number; a parcel that is sent again has another.
    number: u64,
    word: lapin::Result<Confirmation>,
}

/// The channel that publishes, and what is on its way.
pub(super) struct Publisher {
    broker: Rc<Broker>,
    channel: Door,
    next_id: u64,
    /// Every parcel whose fate is open.
    parcels: HashMap<u64, Rc<Parcel>>,
    /// Those to be sent, in order.
    queue: VecDeque<u64>,
    /// Those of which one ended the channel. While there are any, they are sent one at a time and
    /// nothing else is.
    suspects: VecDeque<u64>,
    /// The suspect in flight.
    alone: Option<u64>,
    flights: FuturesUnordered<Flight>,
    bytes_in_flight: usize,
    /// The channel has ended, for this reason; what was in flight is coming down.
    ended: Option<lapin::Error>,
    lost: Vec<u64>,
    /// Sent once more although the broker may have had them.
    sent_again: u64,
}

/// The way to a channel.
enum Door {
    Open(Rc<Channel>),
    Opening(Opening),
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
    /// Opens the channel.
    pub(super) async fn open(broker: Rc<Broker>) -> Result<Self, RabbitMqError> {
        let channel = open_channel(Rc::clone(&broker)).await?;
        Ok(Self {
            broker,
            channel: Door::Open(channel),
            next_id: 0,
            parcels: HashMap::new(),
            queue: VecDeque::new(),
            suspects: VecDeque::new(),
            alone: None,
            flights: FuturesUnordered::new(),
            bytes_in_flight: 0,
            ended: None,
            lost: Vec::new(),
            sent_again: 0,
        })
    }

    /// Sends a parcel, as soon as [`Publisher::verdicts`] is polled. Returns the number by which
    /// its verdict comes.
    pub(super) fn send(&mut self, parcel: Rc<Parcel>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.parcels.insert(id, parcel);
        self.queue.push_back(id);
        id
    }

    /// The channel; none while it is being replaced.
    pub(super) fn channel(&self) -> Option<Channel> {
        match &self.channel {
            Door::Open(channel) => Some(Channel::clone(channel)),
            Door::Opening(_) => None,
        }
    }

    /// How many were sent once more, since this was last asked, although the broker may have had
    /// them.
    pub(super) fn take_sent_again(&mut self) -> u64 {
        std::mem::take(&mut self.sent_again)
    }

    /// Ends the channel in order.
    pub(super) async fn close(self) {
        if let Door::Open(channel) = &self.channel {
            close(channel).await;
        }
    }

    /// Resolves when the fate of some parcels is known; never, while nothing is on its way.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(super) fn poll_verdicts(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Vec<(u64, Verdict)>, RabbitMqError>> {
        loop {
            if let Err(error) = std::task::ready!(self.poll_channel(cx)) {
                return Poll::Ready(Err(error));
            }
            self.take_off();
            let landed = self.poll_landed(cx);
            if landed.is_empty() && self.ended.is_none() {
                return Poll::Pending;
            }
            let mut verdicts = match self.sort(landed) {
                Ok(verdicts) => verdicts,
                Err(error) => return Poll::Ready(Err(error)),
            };
            if self.ended.is_some() && self.flights.is_empty() {
                verdicts.extend(self.settle_the_end());
            }
            if !verdicts.is_empty() {
                return Poll::Ready(Ok(verdicts));
            }
            if self.ended.is_some() {
                return Poll::Pending;
            }
        }
    }

    fn poll_channel(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RabbitMqError>> {
        if let Door::Opening(opening) = &mut self.channel {
            match std::task::ready!(opening.as_mut().poll(cx)) {
                Ok(channel) => self.channel = Door::Open(channel),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Puts into flight what may be.
    fn take_off(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if !self.suspects.is_empty() || self.alone.is_some() {
            if self.flights.is_empty()
                && let Some(id) = self.suspects.pop_front()
            {
                self.alone = Some(id);
                self.launch(id);
            }
            return;
        }
        while let Some(id) = self.queue.front().copied() {
            let bytes = self.parcels.get(&id).map_or(0, |parcel| parcel.body.len());
            let fits = self.bytes_in_flight + bytes <= BYTES_IN_FLIGHT_MAX;
            if !self.flights.is_empty() && (!fits || self.flights.len() >= IN_FLIGHT_MAX) {
                return;
            }
            self.queue.pop_front();
            self.launch(id);
        }
    }

    fn launch(&mut self, id: u64) {
        let Door::Open(channel) = &self.channel else {
            self.queue.push_front(id);
            return;
        };
        if let Some(parcel) = self.parcels.get(&id) {
            self.bytes_in_flight += parcel.body.len();
            let number = self.broker.returns().number();
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
    fn sort(&mut self, landed: Vec<Landed>) -> Result<Vec<(u64, Verdict)>, RabbitMqError> {
        let returns = self.broker.returns();
        let mut verdicts = Vec::with_capacity(landed.len());
        for Landed { id, number, word } in landed {
            // Asked in any case: nobody else takes it out.
            let came_back = returns.take(number);
            let verdict = match word {
                Ok(_) if came_back => Verdict::Returned,
                Ok(Confirmation::Ack(_)) => Verdict::Confirmed,
                Ok(Confirmation::Nack(_) | Confirmation::NotRequested) => Verdict::NotNow,
                Err(error) => {
                    self.bytes_in_flight -= self.parcels.get(&id).map_or(0, |one| one.body.len());
                    self.lost.push(id);
                    self.ended.get_or_insert(error);
                    continue;
                }
            };
            let parcel = self.parcels.remove(&id);
            self.bytes_in_flight -= parcel.map_or(0, |parcel| parcel.body.len());
            self.alone = self.alone.filter(|alone| *alone != id);
            verdicts.push((id, verdict));
        }
        if returns.has_unnumbered() {
            // It may be any of these.
            let why = "a message came back without the number that it was sent with".to_owned();
            return Err(RabbitMqError::Lost { why });
        }
        Ok(verdicts)
    }

    /// All flights have come down after the channel's end: who is to blame?
    fn settle_the_end(&mut self) -> Option<(u64, Verdict)> {
        let error = self.ended.take()?;
        let mut lost = std::mem::take(&mut self.lost);
        lost.sort_unstable();
        self.channel = Door::Opening(Box::pin(open_channel(Rc::clone(&self.broker))));
        let alone = self.alone.take();
        if let Some(id) = alone
            && lost == [id]
            && is_of_the_channel(&error)
            && self.broker.connection().status().connected()
        {
            self.parcels.remove(&id);
            return Some((id, Verdict::Refused(words(&error))));
        }
        self.sent_again += u64::try_from(lost.len()).unwrap_or_default();
        for id in lost.into_iter().rev() {
            self.suspects.push_front(id);
        }
        None
    }
}

async fn open_channel(broker: Rc<Broker>) -> Result<Rc<Channel>, RabbitMqError> {
    let channel = broker.channel().await?;
    let confirms = channel.confirm_select(ConfirmSelectOptions::default());
    broker.answer(confirms).await?;
    Ok(Rc::new(channel))
}

async fn publish(
    channel: Rc<Channel>,
    parcel: Rc<Parcel>,
    number: u64,
) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions {
        mandatory: parcel.mandatory,
        immediate: false,
    };
    let mut properties = parcel.properties.clone();
    if parcel.mandatory {
        properties = returns::numbered(properties, number);
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
