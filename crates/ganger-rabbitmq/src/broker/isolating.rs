//! Publishing where some publications may end the connection: those are identified over a second connection
//! and are not sent again. `quarantine.rs` chooses them.

use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::error::RabbitMqError;
use super::publish_connection::PublishConnectionChange;
use super::publisher::{OutboundMessage, Publisher, PublisherNews, Verdict};
use super::quarantine::Quarantine;
use ganger_config::model::RabbitMqSource;

/// A publisher that does not lose connections over the same publication again and again.
#[derive(Debug)]
pub(crate) struct IsolatingPublisher {
    /// Name of the connections at the broker.
    name: String,
    shared: Publisher,
    /// Publisher of the messages in quarantine. It connects when there are any.
    alone: Publisher,
    quarantine: Quarantine,
    /// Messages in quarantine.
    parcels: HashMap<u64, Rc<OutboundMessage>>,
    alarm: Pin<Box<Sleep>>,
}

impl IsolatingPublisher {
    /// Creates a publisher with connections of its own, which the broker lists by this name.
    pub(crate) fn new(config: RabbitMqSource, name: String) -> Self {
        Self {
            alone: Publisher::own(config.clone(), format!("{name} alone")),
            shared: Publisher::own(config, name.clone()),
            name,
            quarantine: Quarantine::default(),
            parcels: HashMap::new(),
            alarm: Box::pin(sleep(Duration::ZERO)),
        }
    }

    /// Sends a message. Returns the number under which its verdict is reported.
    pub(crate) fn send(&mut self, parcel: Rc<OutboundMessage>) -> u64 {
        self.shared.send(parcel)
    }

    /// Stops waiting for a message: it is not sent again. Returns whether its verdict may still
    /// come.
    pub(crate) fn forget(&mut self, id: u64) -> bool {
        let has_verdict = self.publisher_mut(id).forget(id);
        self.release(id);
        has_verdict
    }

    /// Marks a message as unanswered for long: others need not wait for it.
    pub(crate) fn mark_silent(&mut self, id: u64) {
        self.publisher_mut(id).mark_silent(id);
    }

    /// Returns whether the message waits for a queue that has been silent for long.
    pub(crate) fn is_stuck(&self, id: u64) -> bool {
        self.publisher(id).is_stuck(id)
    }

    /// Time since which its queue has not answered; `None` if it waits for another reason.
    pub(crate) fn unanswered_since(&self, id: u64) -> Option<Instant> {
        self.publisher(id).unanswered_since(id)
    }

    /// Restarts the time for the broker's answers, since it reads again.
    pub(crate) fn restart_waits(&mut self, now: Instant) {
        self.shared.restart_waits(now);
        self.alone.restart_waits(now);
    }

    /// Number of messages sent again since the last call although the broker may have had them.
    pub(crate) fn take_sent_again(&mut self) -> u64 {
        self.shared.take_sent_again() + self.alone.take_sent_again()
    }

    /// Closes the connections in an orderly way.
    pub(crate) async fn close(self) {
        self.shared.close().await;
        self.alone.close().await;
    }

    fn publisher(&self, id: u64) -> &Publisher {
        match self.parcels.contains_key(&id) {
            true => &self.alone,
            false => &self.shared,
        }
    }

    fn publisher_mut(&mut self, id: u64) -> &mut Publisher {
        match self.parcels.contains_key(&id) {
            true => &mut self.alone,
            false => &mut self.shared,
        }
    }

    fn release(&mut self, id: u64) {
        self.quarantine.forget(id);
        self.parcels.remove(&id);
    }

    /// Resolves when there is news; never, while nothing is in flight. A change is one of the shared
    /// connection.
    ///
    /// # Errors
    /// Never: the connections are its own.
    pub(crate) fn poll_news(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PublisherNews, RabbitMqError>> {
        loop {
            self.send_alone();
            if let Poll::Ready(news) = self.alone.poll_news(cx) {
                let verdicts = self.handle_isolated_news(news?);
                if !verdicts.is_empty() {
                    return Poll::Ready(Ok(verdicts.into()));
                }
                continue;
            }
            if let Poll::Ready(news) = self.shared.poll_news(cx) {
                let news = news?;
                self.handle_shared_news(&news);
                return Poll::Ready(Ok(news));
            }
            if !self.is_due(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Sends the next message in quarantine.
    fn send_alone(&mut self) {
        if self.parcels.is_empty() {
            return;
        }
        let unconfirmed = self.alone.unconfirmed();
        if let Some(id) = self.quarantine.next(&unconfirmed, Instant::now())
            && let Some(parcel) = self.parcels.get(&id)
        {
            self.alone.send_as(id, Rc::clone(parcel));
        }
    }

    /// Handles the news of the shared connection.
    fn handle_shared_news(&mut self, news: &PublisherNews) {
        for (id, _) in &news.verdicts {
            self.release(*id);
        }
        let moved = self.quarantine.shared_lost(&news.lost, Instant::now());
        if moved.is_empty() {
            return;
        }
        tracing::warn!(
            connection = self.name,
            count = moved.len(),
            "connection lost twice with the same messages unconfirmed; sending them one at a time \
             over a separate connection"
        );
        for id in moved {
            if let Some(parcel) = self.shared.withdraw(id) {
                self.parcels.insert(id, parcel);
            }
        }
    }

    /// Handles the news of the quarantine's connection.
    fn handle_isolated_news(&mut self, news: PublisherNews) -> Vec<(u64, Verdict)> {
        let PublisherNews {
            mut verdicts,
            change,
            lost,
        } = news;
        for (id, _) in &verdicts {
            self.release(*id);
        }
        let loss = self.quarantine.alone_lost(&lost, Instant::now());
        for id in loss.cleared {
            if let Some(parcel) = self.alone.withdraw(id) {
                self.parcels.remove(&id);
                self.shared.send_as(id, parcel);
            }
        }
        if let Some(id) = loss.blamed
            && let Some(PublishConnectionChange::Down(error)) = change
        {
            self.alone.withdraw(id);
            self.parcels.remove(&id);
            self.alone.reset_backoff();
            self.shared.reset_backoff();
            let why = format!("the connection ended each time that it was sent: {error}");
            verdicts.push((id, Verdict::EndsConnection(why)));
        }
        verdicts
    }

    /// Returns whether the next message in quarantine is due.
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        if self.parcels.is_empty() {
            return false;
        }
        let Some(at) = self.quarantine.deadline(&self.alone.unconfirmed()) else {
            return false;
        };
        if at != self.alarm.deadline() {
            self.alarm.as_mut().reset(at);
        }
        self.alarm.as_mut().poll(cx).is_ready()
    }
}
