//! A raw loop with workers for comparison: the messages that it consumes go to the same workers as the
//! daemon's, and are acknowledged as the workers answer. It has one thread besides lapin's own and does the
//! minimum: no worker and no deadline is supervised, and no message can fail. So it shows the cost of workers
//! as such.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::BytesMut;
use futures_util::{FutureExt, StreamExt};
use ganger_queue::delivery::Message;
use lapin::Consumer;
use lapin::message::Delivery;
use miette::{IntoDiagnostic, bail, miette};
use tokio::io::AsyncWriteExt;

use super::place::{Kind, Place, QUEUE};
use super::raw::{self, Acker, Acks};
use crate::common::one_thread;
use crate::common::piped::{CHUNK_BYTES, Worker, decode, encode};
use crate::running::Queue;
use crate::watch::Watched;

/// Measures the throughput of consuming and processing `messages` messages from a queue of its own.
pub(crate) fn measure(
    place: &Place<'_>,
    kind: Kind,
    prefetch: u16,
    workers: usize,
    messages: usize,
) -> miette::Result<Watched> {
    place.declare(kind)?;
    place.fill(messages)?;
    one_thread()?.block_on(async {
        let mut lanes = Vec::new();
        for _ in 0..workers {
            lanes.push(Lane::of(Worker::start().await?));
        }
        let work = async |consumer: &mut Consumer, channel| {
            let mut gang = Gang {
                consumer,
                acker: Acker::new(channel, Acks::Coalesced, prefetch),
                lanes: &mut lanes,
                out: VecDeque::new(),
                first: 0,
            };
            gang.work_off(messages).await
        };
        let watched = raw::watched(place, prefetch, messages, work).await?;
        lanes.into_iter().try_for_each(|lane| lane.worker.stop())?;
        Ok(watched)
    })
}

/// State of the loop.
struct Gang<'a> {
    consumer: &'a mut Consumer,
    acker: Acker,
    lanes: &'a mut [Lane],
    /// Unacknowledged messages, by their tags without a gap: the tag, and true if the message is done.
    out: VecDeque<(u64, bool)>,
    /// Number of messages before these.
    first: usize,
}

/// One worker and its messages.
struct Lane {
    worker: Worker,
    outgoing: BytesMut,
    incoming: BytesMut,
    /// Numbers of the worker's messages, in the order of its answers.
    in_hand: VecDeque<usize>,
}

impl Lane {
    fn of(worker: Worker) -> Self {
        Self {
            worker,
            outgoing: BytesMut::new(),
            incoming: BytesMut::with_capacity(CHUNK_BYTES),
            in_hand: VecDeque::new(),
        }
    }

    /// Reads available bytes. Returns the number of complete answers.
    fn read(&mut self) -> miette::Result<usize> {
        self.incoming.reserve(CHUNK_BYTES);
        match self.worker.pipe.try_read_buf(&mut self.incoming) {
            Ok(0) => bail!("the worker closed its pipe"),
            Ok(_) => decode(&mut self.incoming),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error).into_diagnostic(),
        }
    }
}

impl Gang<'_> {
    async fn work_off(&mut self, messages: usize) -> miette::Result<()> {
        let mut done = 0;
        while done < messages {
            let taken = self.take_in()?;
            self.send().await?;
            let answered = self.answers()?;
            done += answered;
            if answered > 0 {
                self.acknowledge().await?;
            }
            if taken == 0 && answered == 0 {
                self.acker.flush().await?;
                self.wait().await?;
            }
        }
        self.acker.flush().await
    }

    /// Gives the available messages to the workers with the fewest messages.
    fn take_in(&mut self) -> miette::Result<usize> {
        let mut taken = 0;
        while let Some(next) = self.consumer.next().now_or_never() {
            let delivery = next.ok_or_else(|| miette!("the consumer was cancelled"))?;
            self.give(delivery.into_diagnostic()?)?;
            taken += 1;
        }
        Ok(taken)
    }

    fn give(&mut self, delivery: Delivery) -> miette::Result<()> {
        let number = self.first + self.out.len();
        self.out.push_back((delivery.delivery_tag, false));
        let lane = self.lanes.iter_mut().min_by_key(|lane| lane.in_hand.len());
        let lane = lane.ok_or_else(|| miette!("no workers"))?;
        lane.in_hand.push_back(number);
        let message = Message {
            queue: QUEUE.into(),
            body: delivery.data.into(),
            headers: Vec::new(),
            correlation_id: String::new(),
            reply_to: None,
            properties: Vec::new(),
            occurrence: None,
        };
        encode(&message, &mut lane.outgoing)
    }

    async fn send(&mut self) -> miette::Result<()> {
        for lane in self.lanes.iter_mut() {
            if !lane.outgoing.is_empty() {
                let sent = lane.worker.pipe.write_all(&lane.outgoing).await;
                sent.into_diagnostic()?;
                lane.outgoing.clear();
            }
        }
        Ok(())
    }

    fn answers(&mut self) -> miette::Result<usize> {
        let mut all = 0;
        for lane in self.lanes.iter_mut() {
            let answers = lane.read()?;
            for number in lane.in_hand.drain(..answers) {
                self.out[number - self.first].1 = true;
            }
            all += answers;
        }
        Ok(all)
    }

    /// Acknowledges all messages before the first one that is not done.
    async fn acknowledge(&mut self) -> miette::Result<()> {
        while let Some((tag, true)) = self.out.front() {
            self.acker.take_in(*tag).await?;
            self.out.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// Waits for a message or an answer. A message is given to a worker at once, so that it is not lost.
    async fn wait(&mut self) -> miette::Result<()> {
        let next = poll_fn(|cx| self.poll_any(cx)).await;
        match next {
            Some(delivery) => self.give(delivery?),
            None => Ok(()),
        }
    }

    fn poll_any(&mut self, cx: &mut Context<'_>) -> Poll<Option<miette::Result<Delivery>>> {
        if let Poll::Ready(next) = self.consumer.poll_next_unpin(cx) {
            let next = next.ok_or_else(|| miette!("the consumer was cancelled"));
            return Poll::Ready(Some(next.and_then(IntoDiagnostic::into_diagnostic)));
        }
        let ready = |lane: &Lane| lane.worker.pipe.poll_read_ready(cx).is_ready();
        // Each pipe is polled, so that each can wake this task.
        match self
            .lanes
            .iter()
            .map(ready)
            .fold(false, |any, one| any | one)
        {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}
