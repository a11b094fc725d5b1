//! Publishing on a channel of its own: persistent, mandatory, confirmed, many at once. What is
//! published and what follows from its fate is decided elsewhere. A publish that the broker
//! refuses for good ends the channel with everything in flight on it; then each of those is sent
//! again by itself, until the one to blame is found.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use lapin::message::{BasicReturnMessage, Delivery};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation};

use super::connect::{Broker, close};
use super::error::{RabbitMqError, is_of_the_channel, words};
use super::returns::{Report, Returns, Said};

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

type Flight = Pin<Box<dyn Future<Output = (u64, lapin::Result<Confirmation>)>>>;
type Opening = Pin<Box<dyn Future<Output = Result<Rc<Channel>, RabbitMqError>>>>;

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
    returns: Returns<Parcel>,
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
            returns: Returns::default(),
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
            let mut verdicts = self.sort(landed);
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
            let flight = publish(Rc::clone(channel), Rc::clone(parcel));
            self.flights
                .push(Box::pin(async move { (id, flight.await) }));
        }
    }

    /// Everything that has come down by now, without exception: [`Returns`] needs that.
    fn poll_landed(&mut self, cx: &mut Context<'_>) -> Vec<(u64, lapin::Result<Confirmation>)> {
        if self.flights.is_empty() {
            return Vec::new();
        }
        let flag = Arc::new(Flag {
            raised: AtomicBool::new(false),
            waker: cx.waker().clone(),
        });
        let waker = Waker::from(Arc::clone(&flag));
        let mut flagging = Context::from_waker(&waker);
        let mut landed = Vec::new();
        loop {
            flag.raised.store(false, Ordering::SeqCst);
            match Pin::new(&mut self.flights).poll_next(&mut flagging) {
                Poll::Ready(Some(one)) => landed.push(one),
                Poll::Ready(None) => return landed,
                // The set gives way now and then although more of its futures are ready, and
                // raises the flag itself.
                Poll::Pending if flag.raised.load(Ordering::SeqCst) => {}
                Poll::Pending => return landed,
            }
        }
    }

    /// Tells words of the broker from the end of the channel.
    fn sort(&mut self, landed: Vec<(u64, lapin::Result<Confirmation>)>) -> Vec<(u64, Verdict)> {
        let mut words = Vec::with_capacity(landed.len());
        for (id, result) in landed {
            let parcel = self.parcels.get(&id);
            self.bytes_in_flight -= parcel.map_or(0, |parcel| parcel.body.len());
            match result {
                Ok(confirmation) => words.push((id, confirmation)),
                Err(error) => {
                    self.lost.push(id);
                    self.ended.get_or_insert(error);
                }
            }
        }
        let mut reports = Vec::with_capacity(words.len());
        for (id, word) in words {
            let taken = !word.is_nack();
            let returned = word.take_message();
            let brings = returned.is_some();
            reports.push(Report { id, taken, brings });
            if let Some(message) = returned {
                self.returns.came_back(parcel_of(message));
            }
        }
        let parcels = &self.parcels;
        let is = |id: u64, returned: &Parcel| is_it(parcels, id, returned);
        let clear = self.returns.digest(&reports, self.flights.len(), is);
        clear
            .into_iter()
            .map(|(id, said)| (id, self.conclude(id, said)))
            .collect()
    }

    fn conclude(&mut self, id: u64, said: Said) -> Verdict {
        self.parcels.remove(&id);
        if self.alone == Some(id) {
            self.alone = None;
        }
        match said {
            Said::Taken => Verdict::Confirmed,
            Said::NotNow => Verdict::NotNow,
            Said::Returned => Verdict::Returned,
        }
    }

    /// All flights have come down after the channel's end: who is to blame?
    fn settle_the_end(&mut self) -> Option<(u64, Verdict)> {
        let error = self.ended.take()?;
        let mut lost = std::mem::take(&mut self.lost);
        lost.extend(self.returns.reset());
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

/// Whether a parcel may be the one that came back. If nothing that is open is like it, which can't
/// be, each that went to the same queue may be.
fn is_it(parcels: &HashMap<u64, Rc<Parcel>>, id: u64, returned: &Parcel) -> bool {
    let Some(parcel) = parcels.get(&id) else {
        return false;
    };
    let unknown = || !parcels.values().any(|parcel| alike(parcel, returned));
    alike(parcel, returned) || (parcel.to == returned.to && unknown())
}

fn alike(one: &Parcel, other: &Parcel) -> bool {
    // A header may be a number that does not equal itself.
    let same =
        |a: &BasicProperties, b: &BasicProperties| a == b || format!("{a:?}") == format!("{b:?}");
    one.to == other.to && one.body == other.body && same(&one.properties, &other.properties)
}

/// A message that came back, in the form in which it was sent.
fn parcel_of(message: BasicReturnMessage) -> Parcel {
    let Delivery {
        routing_key,
        properties,
        data,
        ..
    } = message.delivery;
    Parcel {
        to: routing_key,
        mandatory: true,
        properties,
        body: data.into(),
    }
}

/// Wakes another, and remembers that it did.
struct Flag {
    raised: AtomicBool,
    waker: Waker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raised.store(true, Ordering::SeqCst);
        self.waker.wake_by_ref();
    }
}

async fn open_channel(broker: Rc<Broker>) -> Result<Rc<Channel>, RabbitMqError> {
    let channel = broker.channel().await?;
    let confirms = channel.confirm_select(ConfirmSelectOptions::default());
    broker.answer(confirms).await?;
    Ok(Rc::new(channel))
}

async fn publish(channel: Rc<Channel>, parcel: Rc<Parcel>) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions {
        mandatory: parcel.mandatory,
        immediate: false,
    };
    let (to, properties) = (parcel.to.clone(), parcel.properties.clone());
    let sent = channel.basic_publish("".into(), to, options, &parcel.body, properties);
    sent.await?.await
}
