//! The source of a pool that reads from RabbitMQ: connecting, with retries for as long as the pool wants
//! messages. The work on a connection is in `session.rs`.

mod acks;
mod arrivals;
mod book;
mod checks;
mod depth;
mod health;
mod inbox;
mod message;
mod outbox;
mod publication;
mod purpose;
mod session;
mod survived;
mod targets;
mod task;
mod terms;
mod turns;

use tokio::time::{Instant, sleep_until};

use crate::broker::error::RabbitMqError;
use crate::broker::publish_connection::{GOOD_AFTER, RECONNECT};
use ganger_config::model::RabbitMqSource;
use ganger_core::event_loop::EventLoop;
use ganger_queue::delivery::Publish;
use ganger_queue::publishing::confirm;
use ganger_queue::source::Link;
use health::HealthIssue;
use session::Session;
use task::Task;

/// Opens the source; the returned future runs it to its end, on this event loop.
///
/// # Errors
/// Errors that an operator has to correct: a wrong password, missing queues and the like. A broker that can't
/// be reached is no error: the source waits for it.
pub(crate) fn open(
    config: &RabbitMqSource,
    link: Link,
    event_loop: &EventLoop,
) -> Result<impl Future<Output = ()> + use<>, RabbitMqError> {
    let mut task = Task::new(config.clone(), link);
    let following = task.end.following.clone();
    let opening = Session::open(&task.config, &task.key, task.pool(), 0, following);
    let first = match event_loop.run(opening) {
        Ok(session) => Some(session),
        Err(error) if error.is_passing() => {
            let problem = error.to_string();
            task.health
                .begin(&task.end, HealthIssue::Connection, problem);
            None
        }
        Err(error) => return Err(error),
    };
    Ok(task.run(first))
}

impl Task {
    async fn run(mut self, mut first: Option<Session>) {
        let mut failures = u32::from(first.is_none());
        loop {
            let session = match first.take() {
                Some(session) => Ok(session),
                None => match self.reconnect(failures).await {
                    Some(opened) => opened,
                    None => return,
                },
            };
            let begun = Instant::now();
            let error = match session {
                Ok(session) => match self.serve(session).await {
                    Ok(()) => return,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            failures = if begun.elapsed() >= GOOD_AFTER {
                1
            } else {
                failures.saturating_add(1)
            };
            self.health
                .begin(&self.end, HealthIssue::Connection, error.to_string());
        }
    }

    /// Works until the intake is closed and everything settled, or the connection is lost.
    async fn serve(&mut self, mut session: Session) -> Result<(), RabbitMqError> {
        self.health.resolve(&self.end, HealthIssue::Connection);
        self.health.publish(&self.end);
        self.end.facts.note(|figures| {
            figures.connections = Some(figures.connections.unwrap_or(0) + 1);
        });
        let result = session.run(self).await;
        self.next_token = session.next_token();
        self.share.promise(0);
        self.report_backlog(None);
        self.turns.lose(&self.end);
        let Err(error) = result else {
            session.close().await;
            return Ok(());
        };
        self.health
            .begin(&self.end, HealthIssue::Connection, error.to_string());
        self.health
            .resolve_all_but(&self.end, HealthIssue::Connection);
        let why = "the connection was lost before their acknowledgements";
        self.arrivals.lost(session.fingerprints());
        let unsure = session.abandon();
        // Messages that no worker has begun should not be begun: they are redelivered.
        self.end.lost();
        self.health.may_run_twice(&self.end, unsure, why);
        Err(error)
    }

    /// Waits and connects. Returns `None` if no connection is needed any more.
    async fn reconnect(&mut self, failures: u32) -> Option<Result<Session, RabbitMqError>> {
        let until = Instant::now() + RECONNECT.wait(failures, fastrand::f64());
        let (config, pool, token) = (self.config.clone(), self.pool(), self.next_token);
        let (key, following) = (self.key.clone(), self.end.following.clone());
        let opening = async move {
            sleep_until(until).await;
            Session::open(&config, &key, pool, token, following).await
        };
        let mut opening = std::pin::pin!(opening);
        while !self.is_over() {
            let end = &mut self.end;
            tokio::select! {
                biased;
                opened = &mut opening => return Some(opened),
                _ = end.intake.changed(), if end.intake.has_changed().is_ok() => {}
                Some(settlement) = end.settlements.recv() => self.settle_nothing(&settlement),
                Some(publish) = end.publishes.recv() => disconnected(publish),
            }
        }
        None
    }
}

/// Fails an emit without a connection: its message is no longer held by this daemon.
fn disconnected(publish: Publish) {
    confirm(
        publish.confirmed,
        &publish.message.queue,
        Err("the connection is lost".into()),
    );
}
