//! Commands on a database of MySQL or MariaDB: the SQL and the errors.

mod dead;
mod waiting;

pub(super) use waiting::cancel;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::client::{Client, Product};
use super::connect::ConnectTarget;
use super::error::{CallError, MysqlError, failed};
use super::row::Row;
use super::{claim, settle, topics, unique};
use crate::server::client::{Commands, ServerClient};
use crate::server::selection::Selection;
use crate::server::tables::Tables;
use ganger_config::model::{MysqlDatabase, Subscription};
use ganger_core::names::PAUSED_QUEUE;
use ganger_queue::client::{Depth, Reply, Subscribed, WaitingMessage};
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::delivery::{IfUnsubscribed, Outgoing, Unique};

/// Timeouts of a command. They are much longer than a daemon's, which has other work to do.
const TIME_LIMITS_OF_MARIADB: &str =
    "SET SESSION max_statement_time = 600, lock_wait_timeout = 60, innodb_lock_wait_timeout = 60";
const TIME_LIMITS_OF_MYSQL: &str = "SET SESSION max_execution_time = 600000, lock_wait_timeout = 60, innodb_lock_wait_timeout = 60";

/// Interval between two polls for a reply: MySQL sends no notifications.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Connects for commands.
pub(crate) fn open(database: &MysqlDatabase) -> Result<ServerClient<Client>, MysqlError> {
    ServerClient::open(ConnectTarget::of(database, "ganger")?)
}

async fn extend_time_limits(client: &mut Client) -> Result<(), MysqlError> {
    let time_limits = match client.product() {
        Product::MariaDb => TIME_LIMITS_OF_MARIADB,
        Product::MySql => TIME_LIMITS_OF_MYSQL,
    };
    let set = client.batch_execute(time_limits).await;
    set.map_err(failed("setting up the connection"))
}

impl Commands for Client {
    type Target = ConnectTarget;
    type Refusal = MysqlError;
    type Error = CallError;

    async fn connect(target: &ConnectTarget) -> Result<Self, MysqlError> {
        let mut client = target.connect_bare().await?;
        extend_time_limits(&mut client).await?;
        Ok(client)
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    async fn prepare(&mut self, target: &ConnectTarget) -> Result<(), MysqlError> {
        target.prepare(self, Tables::Queues).await?;
        extend_time_limits(self).await
    }

    async fn prepare_topics(&mut self, target: &ConnectTarget) -> Result<(), MysqlError> {
        target.prepare_topics(self).await?;
        extend_time_limits(self).await
    }

    async fn problem(&mut self, target: &ConnectTarget) -> Result<Option<String>, MysqlError> {
        target.look(self, Tables::Queues).await
    }

    async fn is_made(&mut self, target: &ConnectTarget) -> Result<bool, MysqlError> {
        target.is_made(self).await
    }

    fn no_runtime(error: &io::Error) -> MysqlError {
        MysqlError::System {
            why: error.to_string(),
        }
    }

    fn refusal(doing: &'static str, error: CallError) -> MysqlError {
        failed(doing)(error)
    }

    fn is_transient(refusal: &MysqlError) -> bool {
        refusal.is_transient()
    }

    async fn begin(&mut self) -> Result<(), CallError> {
        self.begin().await
    }

    async fn commit(&mut self) -> Result<(), CallError> {
        self.commit().await
    }

    async fn roll_back(&mut self) -> Result<(), CallError> {
        self.roll_back().await
    }

    async fn publish(&mut self, messages: &[&Outgoing]) -> Result<(), CallError> {
        let mut script = self.script();
        settle::publish(&mut script, messages.iter().copied());
        self.run(script).await.map(drop)
    }

    async fn publish_to_topic(
        &mut self,
        message: &Outgoing,
        unsubscribed: IfUnsubscribed,
    ) -> Result<(), CallError> {
        topics::publish(self, message, unsubscribed).await
    }

    async fn publish_unique(
        &mut self,
        message: &Outgoing,
        unique: &Unique,
    ) -> Result<Option<i64>, CallError> {
        unique::publish(self, message, unique).await
    }

    async fn subscribe(
        &mut self,
        wanted: &[Subscription],
    ) -> Result<Vec<(String, String)>, CallError> {
        let pair = |one: &Subscription| (one.topic.clone(), one.queue.clone());
        let pairs: Vec<(String, String)> = wanted.iter().map(pair).collect();
        topics::subscribe(self, &pairs).await
    }

    async fn subscriptions(&mut self) -> Result<Vec<Subscribed>, CallError> {
        let all = "SELECT topic, queue, subscribed_at FROM subscriptions ORDER BY topic, queue";
        let subscribed = |row: &Row| {
            Ok(Subscribed {
                topic: row.get(0)?,
                queue: row.get(1)?,
                since_ms: row.get(2)?,
            })
        };
        let all = self.query(all, &[]).await?;
        all.iter().map(subscribed).collect()
    }

    async fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, CallError> {
        let end = "DELETE FROM subscriptions WHERE topic = ? AND queue = ?";
        let ended = self.execute(end, &[topic.into(), queue.into()]).await?;
        Ok(ended > 0)
    }

    async fn depth(&mut self, queue: &str) -> Result<Depth, CallError> {
        waiting::depth(self, queue).await
    }

    async fn waiting_list(
        &mut self,
        queue: &str,
        most: usize,
    ) -> Result<Vec<WaitingMessage>, CallError> {
        waiting::list(self, queue, most).await
    }

    async fn cancel(&mut self, pool: &str, queue: &str, id: &str) -> Result<usize, CallError> {
        waiting::cancel(self, pool, queue, id).await
    }

    async fn is_paused(&mut self, queue: &str) -> Result<bool, CallError> {
        claim::is_paused(self, queue).await
    }

    async fn unpause(&mut self, queue: &str) -> Result<(), CallError> {
        let end = "DELETE FROM consumer_messages
                   WHERE queue = ? AND owner IS NULL AND available_after = 0 AND `key` = ?";
        let values = [PAUSED_QUEUE.into(), queue.into()];
        self.execute(end, &values).await.map(drop)
    }

    async fn daemons(&mut self) -> Result<u64, CallError> {
        let count = "SELECT COUNT(DISTINCT host, pid) FROM owners";
        self.query_one(count, &[]).await?.get(0)
    }

    async fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, CallError> {
        let there = waiting::reply_there(self, queue, correlation_id).await?;
        let Some(row) = there else {
            return Ok(None);
        };
        let take = async |client: &mut Self| waiting::take_reply(client, row).await;
        self.in_a_transaction(take).await
    }

    async fn wait(&mut self, longest: Duration) {
        sleep(longest.min(LOOK_EVERY)).await;
    }

    async fn dead_letters(
        &mut self,
        selection: &Selection<'_>,
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, DeadLetter)>, CallError> {
        dead::read_batch(self, selection, after, most).await
    }

    async fn send_back(
        &mut self,
        selection: &Selection<'_>,
        body: Option<&Bytes>,
    ) -> Result<usize, CallError> {
        dead::send_back(self, selection, body).await
    }

    async fn held(&mut self, selection: &Selection<'_>) -> Result<usize, CallError> {
        dead::held(self, selection).await
    }

    async fn drop_dead_letters(&mut self, selection: &Selection<'_>) -> Result<usize, CallError> {
        let dropped = dead::discard(self, selection).await?;
        Ok(usize::try_from(dropped).unwrap_or(usize::MAX))
    }
}
