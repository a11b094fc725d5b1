//! One connection's life: a loop that waits for an event, passes it to the part that it belongs to, and
//! carries out the steps that the parts return (`steps.rs`). The book of deliveries decides on the next step
//! of each, the outbox holds publications, the inbox plans the number of messages to request, and `acks`
//! reports the outcomes to the broker.

mod steps;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use lapin::Event;
use lapin::message::Delivery;
use tokio::time::{Instant, Sleep, sleep};

use super::acks::Acks;
use super::book::DeliveryBook;
use super::checks::{Checks, ensure_queues};
use super::depth::{Depth, DepthAnswer};
use super::health::HealthIssue;
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::survived::Fingerprint;
use super::task::Task;
use super::terms::{Rules, options};
use crate::broker::connect::{Broker, connect};
use crate::broker::consumers::{ConsumerNews, ConsumerSpec, Consumers};
use crate::broker::error::RabbitMqError;
use crate::broker::isolating::IsolatingPublisher;
use crate::broker::lifetime::ShortLived;
use crate::broker::publish_connection::PublishConnectionChange;
use crate::broker::publisher::PublisherNews as Published;
use crate::broker::signature::CopyKey;
use crate::broker::topology::Topology;
use ganger_config::model::{PoolConfig, RabbitMqSource};
use ganger_queue::delivery::{Claim, Following, Intake, Publish, Settlement};

/// Number of messages read, and of settlements taken in, before other work has a turn.
const BATCH: usize = 256;

/// A connection in use.
pub(super) struct Session {
    broker: Rc<Broker>,
    acks: Acks,
    inbox: Inbox,
    outbox: Outbox,
    book: DeliveryBook,
    rules: Rules,
    checks: Checks,
    depth: Depth,
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    /// Claim on the deliveries of this connection, which is valid as long as the connection.
    claim: Claim,
    /// Time of the next check of old deliveries.
    age_at: Instant,
    /// True if the intake is closed, and messages that were not handed out are being returned.
    closing: bool,
    read: Vec<Delivery>,
    settled: Vec<Settlement>,
    alarm: Pin<Box<Sleep>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("broker", &self.broker)
            .field("unacknowledged", &self.book.unacknowledged())
            .field("outbox", &self.outbox)
            .finish_non_exhaustive()
    }
}

/// Reason of a wake-up.
enum Wake {
    Intake,
    Policy,
    Turn,
    Broker(Option<Event>),
    Emit(Publish),
    Published(Result<Published, RabbitMqError>),
    Settled,
    Consumers(Result<ConsumerNews, RabbitMqError>),
    Checked(Result<Vec<ShortLived>, RabbitMqError>),
    Depth(DepthAnswer),
    Time,
}

impl Session {
    // -- beginning and end --

    /// Connects and checks the queues.
    pub(super) async fn open(
        config: &RabbitMqSource,
        key: &CopyKey,
        pool: Arc<PoolConfig>,
        next_token: u64,
        following: Option<Following>,
    ) -> Result<Self, RabbitMqError> {
        let name = format!("{} {}", config.connection_name, pool.name);
        let broker = connect(config, &name).await?;
        let topology = Topology::of(&pool);
        let short_lived = match ensure_queues(&broker, &topology, config.declare).await {
            Ok(short_lived) => short_lived,
            Err(error) => {
                broker.close().await;
                return Err(error);
            }
        };
        tracing::info!(
            pool = pool.name,
            host = broker.host(),
            "connected to RabbitMQ"
        );
        // The broker stops reading a connection that publishes when it is short of memory.
        let name = format!("{name} publishing");
        let publisher = IsolatingPublisher::new(config.clone(), name);
        let rules = Rules {
            pool,
            key: key.clone(),
            frame_max: broker.connection().configuration().frame_max(),
            patience: config.consumer_timeout,
            following,
        };
        let mut session =
            Self::new(Rc::new(broker), publisher, rules, topology, next_token).await?;
        session.warn_of_lifetimes(&short_lived);
        Ok(session)
    }

    async fn new(
        broker: Rc<Broker>,
        publisher: IsolatingPublisher,
        rules: Rules,
        topology: Topology,
        next_token: u64,
    ) -> Result<Self, RabbitMqError> {
        let pool = &rules.pool;
        let spec = ConsumerSpec::new(&pool.queue, &pool.name, options(pool))?;
        let events = Box::pin(broker.connection().events_listener());
        let channel = broker.channel().await?;
        let now = Instant::now();
        Ok(Self {
            inbox: Inbox::new(Consumers::new(Rc::clone(&broker), channel.clone(), spec)),
            broker,
            acks: Acks::new(channel),
            outbox: Outbox::new(publisher, &pool.name, now),
            book: DeliveryBook::new(next_token),
            rules,
            checks: Checks::new(topology),
            depth: Depth::default(),
            events,
            claim: Claim::default(),
            age_at: now,
            closing: false,
            read: Vec::with_capacity(BATCH),
            settled: Vec::with_capacity(BATCH),
            alarm: Box::pin(sleep(Duration::ZERO)),
        })
    }

    /// A token that no delivery has had.
    pub(super) fn next_token(&self) -> u64 {
        self.book.next_token()
    }

    /// Fingerprints of the held deliveries.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        self.book.fingerprints()
    }

    /// Closes the connection in an orderly way.
    pub(super) async fn close(self) {
        let Self {
            broker,
            acks,
            inbox,
            outbox,
            events,
            checks,
            ..
        } = self;
        drop((inbox, events, checks));
        acks.close().await;
        outbox.close().await;
        if let Some(broker) = Rc::into_inner(broker) {
            broker.close().await;
        }
    }

    /// Gives up a lost connection. Returns the number of messages that were settled without the broker's
    /// knowledge.
    pub(super) fn abandon(self) -> u64 {
        self.outbox.abandon();
        u64::try_from(self.book.unsure()).unwrap_or(u64::MAX)
    }

    // -- the loop --

    /// Works until the intake is closed and everything settled.
    ///
    /// # Errors
    /// If the connection is lost, with everything that was not acknowledged.
    pub(super) async fn run(&mut self, task: &mut Task) -> Result<(), RabbitMqError> {
        loop {
            self.turn(task)?;
            if self.is_finished(task) {
                let queue = self.inbox.queue();
                return self.acks.confirm_read(queue, &self.rules.pool.name).await;
            }
            let woken = self.event(task).await;
            self.handle(task, woken)?;
        }
    }

    /// Acts on the current state, whatever has changed.
    fn turn(&mut self, task: &mut Task) -> Result<(), RabbitMqError> {
        let now = Instant::now();
        self.outbox.try_again(now);
        self.check_all_ages(task, now)?;
        self.checks.begin(&self.broker, task.config.declare, now);
        self.closing |= task.intake() == Intake::Closed;
        if !self.closing {
            self.depth.begin(&self.broker, &self.rules.pool, now);
        }
        while let Some(job) = self.outbox.take_excess(self.book.parked()) {
            self.refuse(job, "the publish backlog is full")?;
        }
        self.plan_prefetch(task, now)?;
        self.take_turns(task, now)?;
        self.hand_out(task);
        self.acknowledge(task, now)?;
        self.report(task);
        Ok(())
    }

    /// Returns whether the end is requested, and nothing is left to settle or publish.
    fn is_finished(&self, task: &Task) -> bool {
        self.closing
            && task.out == 0
            && self.inbox.has_ended()
            && !self.depth.is_pending()
            && self.outbox.pending() == 0
            && !self.book.has_settled()
            && task.end.publishes.is_empty()
    }

    /// Waits for an event. Rare events come first, so that a steady stream of messages can't hide them.
    async fn event(&mut self, task: &mut Task) -> Wake {
        let deadline = self.deadline();
        if let Some(deadline) = deadline
            && deadline != self.alarm.deadline()
        {
            self.alarm.as_mut().reset(deadline);
        }
        let more_emits = self.outbox.has_room_for_emits();
        // A pool that has given up settles nothing more.
        let can_settle = !task.end.settlements.is_closed() || !task.end.settlements.is_empty();
        let (end, policy, turns) = (&mut task.end, &mut task.policy, &task.turns);
        let share = &task.share;
        let (settled, read) = (&mut self.settled, &mut self.read);
        tokio::select! {
            biased;
            _ = end.intake.changed(), if end.intake.has_changed().is_ok() => Wake::Intake,
            Ok(()) = policy.changed() => Wake::Policy,
            () = turns.called() => Wake::Turn,
            () = share.freed() => Wake::Turn,
            event = poll_fn(|cx| self.events.as_mut().poll_next(cx)) => Wake::Broker(event),
            checked = self.checks.finished() => Wake::Checked(checked),
            answer = self.depth.answered() => Wake::Depth(answer),
            Some(publish) = end.publishes.recv(), if more_emits => Wake::Emit(publish),
            news = poll_fn(|cx| self.outbox.poll_news(cx)) => Wake::Published(news),
            _ = end.settlements.recv_many(settled, BATCH), if can_settle => Wake::Settled,
            news = poll_fn(|cx| self.inbox.poll_read(cx, BATCH, read)) => {
                Wake::Consumers(news)
            }
            // Only a wake-up: due work is found in every turn.
            () = self.alarm.as_mut(), if deadline.is_some() => Wake::Time,
        }
    }

    /// Takes in an event.
    fn handle(&mut self, task: &mut Task, woken: Wake) -> Result<(), RabbitMqError> {
        match woken {
            Wake::Intake | Wake::Turn | Wake::Time => {}
            Wake::Policy => self.adopt(task.pool()),
            Wake::Broker(event) => self.handle_broker_event(event)?,
            Wake::Emit(publish) => self.emit(publish),
            Wake::Published(news) => {
                let Published {
                    verdicts, change, ..
                } = news?;
                if let Some(change) = change {
                    self.publish_connection_changed(task, change);
                }
                self.judge_all(task, verdicts)?;
            }
            Wake::Checked(checked) => self.checked(task, checked)?,
            Wake::Depth(DepthAnswer::Ready(ready)) => {
                // A message that waits here for credit counts as in the queue.
                let here = self.book.waiting() as u64;
                task.report_backlog(ready.map(|ready| ready.saturating_add(here)));
            }
            Wake::Depth(DepthAnswer::Delayed(delayed)) => {
                task.end.facts.note(|figures| figures.delayed = delayed);
            }
            Wake::Settled => {
                let mut settled = std::mem::take(&mut self.settled);
                let result = self.settle_all(task, settled.drain(..));
                self.settled = settled;
                result?;
            }
            Wake::Consumers(news) => {
                let news = news?;
                let mut read = std::mem::take(&mut self.read);
                for delivery in read.drain(..) {
                    self.receive(task, delivery)?;
                }
                self.read = read;
                if matches!(news, ConsumerNews::Cancelled) {
                    self.consumer_lost(task);
                }
            }
        }
        Ok(())
    }

    /// Time of the next deadline.
    fn deadline(&self) -> Option<Instant> {
        let moments = [
            self.acks.deadline(),
            self.checks.deadline(),
            self.depth.deadline().filter(|_| !self.closing),
            self.outbox.deadline(),
            self.inbox.deadline(),
            self.book.suspects().deadline(),
            Some(self.age_at),
        ];
        moments.into_iter().flatten().min()
    }

    /// Reports the figures and the current problems to the pool.
    fn report(&mut self, task: &mut Task) {
        task.end.facts.note(|figures| {
            figures.settlements_pending = Some(self.book.settled() as u64);
            figures.publishes_pending = Some(self.outbox.pending() as u64);
        });
        let (health, end) = (&mut task.health, &task.end);
        if self.outbox.take_recovered() {
            health.resolve(end, HealthIssue::Publishing);
        }
        if self.outbox.backlog().is_full() {
            let problem = "publications are not accepted, and the backlog is full";
            health.begin(end, HealthIssue::Backlog, problem);
        } else {
            health.resolve(end, HealthIssue::Backlog);
        }
        match self.book.parked() {
            0 => health.resolve(end, HealthIssue::Parked),
            count => {
                let problem =
                    format!("the broker permanently rejects the publications for {count} messages");
                health.begin(end, HealthIssue::Parked, problem);
            }
        }
    }

    // -- rare events --

    /// Adopts new rules: there may be more tiers.
    fn adopt(&mut self, pool: Arc<PoolConfig>) {
        self.checks.adopt(Topology::of(&pool));
        self.depth.make_due();
        self.rules.pool = pool;
    }

    fn handle_broker_event(&mut self, event: Option<Event>) -> Result<(), RabbitMqError> {
        match event {
            Some(Event::Error(error)) if !self.broker.connection().status().connected() => {
                return Err(RabbitMqError::lost(&error));
            }
            Some(_) => {}
            None => self.events = Box::pin(futures_util::stream::pending()),
        }
        Ok(())
    }

    /// Handles a change of the publishing connection, which invalidates nothing.
    fn publish_connection_changed(&mut self, task: &mut Task, change: PublishConnectionChange) {
        let (health, end) = (&mut task.health, &task.end);
        let is_blocked = match change {
            PublishConnectionChange::Up => {
                health.resolve(end, HealthIssue::PublishConnection);
                false
            }
            PublishConnectionChange::Blocked(reason) => {
                let problem = format!("the broker has blocked the connection: {reason}");
                health.begin(end, HealthIssue::Blocked, problem);
                true
            }
            PublishConnectionChange::Unblocked => {
                health.resolve(end, HealthIssue::Blocked);
                false
            }
            PublishConnectionChange::Down(error) => {
                health.resolve(end, HealthIssue::Blocked);
                let problem = format!("publications are waiting: {error}");
                health.begin(end, HealthIssue::PublishConnection, problem);
                self.outbox.lose();
                true
            }
        };
        self.outbox.set_blocked(is_blocked, Instant::now());
    }

    /// Handles a check of the queues, which follows a problem with them.
    fn checked(
        &mut self,
        task: &mut Task,
        checked: Result<Vec<ShortLived>, RabbitMqError>,
    ) -> Result<(), RabbitMqError> {
        match checked {
            Ok(short_lived) => {
                self.warn_of_lifetimes(&short_lived);
                task.health.resolve(&task.end, HealthIssue::Queues);
                Ok(())
            }
            Err(error) if error.is_passing() => Err(error),
            Err(error) => {
                self.checks.check_later();
                let problem = error.to_string();
                task.health.begin(&task.end, HealthIssue::Queues, problem);
                Ok(())
            }
        }
    }

    /// Warns of queues that may be deleted with their messages. This daemon does not cause that itself as
    /// long as the pool runs, since a consumer stays.
    fn warn_of_lifetimes(&mut self, short_lived: &[ShortLived]) {
        for one in short_lived {
            tracing::warn!(pool = self.rules.pool.name, queue = one.queue, "{one}");
        }
        let queue = self.inbox.queue();
        let is_read = |one: &ShortLived| one.queue == queue.as_str();
        self.inbox.keep_one(short_lived.iter().any(is_read));
    }

    /// Handles the cancellation of the consumers by the broker. From RabbitMQ 4.3 on a quorum queue does that
    /// if the work takes too long, and then late messages are delivered to others.
    fn consumer_lost(&mut self, task: &mut Task) {
        let late = self.book.count_late(self.rules.patience, Instant::now());
        let why = "the broker has cancelled their consumer, and they took nearly as long as its \
                   consumer_timeout or longer";
        let count = u64::try_from(late).unwrap_or(u64::MAX);
        task.health.may_run_twice(&task.end, count, why);
        let problem = "the broker cancelled the consumer: its queue was deleted, or has moved, or a \
                       message took longer than the broker's consumer_timeout";
        task.health.begin(&task.end, HealthIssue::Queues, problem);
        self.checks.mark_missing();
    }
}
