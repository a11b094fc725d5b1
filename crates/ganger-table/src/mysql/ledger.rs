//! The ledger in MySQL and MariaDB.

use super::client::{Answer, Client, Product};
use super::commands::cancel;
use super::connect::ConnectTarget;
use super::error::{CallError, MysqlError};
use super::settle;
use super::value::{Value, now_ms};
use crate::ledger::sql::LedgerDialect;
use crate::ledger::values::{SqlRow, SqlValue};
use crate::server::ledger::{LOCKS, LedgerConnection};
use crate::server::reconnecting::Openable;
use crate::server::sql::Sql;
use crate::server::tables::Tables;
use ganger_queue::delivery::Outgoing;

/// Has the server end a transaction soon if the client falls silent in it: others wait for it.
const SOON_ON_MARIADB: &str = "SET SESSION idle_transaction_timeout = 2";
const SOON_ON_MYSQL: &str = "SET SESSION wait_timeout = 2";

impl Sql for Client {
    type Error = CallError;

    const NOW_MS: &'static str = concat!("SELECT ", now_ms!());

    const OCCURRENCE: &'static str = "(CASE WHEN JSON_VALID(m.headers)
        THEN JSON_UNQUOTE(JSON_EXTRACT(m.headers, '$.\"x-ganger-occurrence\"')) END)";

    const BY_OWNER: &'static str = " FORCE INDEX (consumer_messages_claimed)";

    async fn has_ledger(&mut self) -> Result<bool, CallError> {
        if !self.has_ledger {
            let there = "SELECT count(*) FROM information_schema.columns
                         WHERE table_schema = DATABASE() AND table_name = ? AND column_name = 'resolved'";
            let called = self.table_name("occurrences");
            let there = Client::query(self, there, &[Value::from(&called)]).await?;
            let there = there.first().map(|row| row.get::<i64>(0)).transpose()?;
            self.has_ledger = there.unwrap_or(0) > 0;
        }
        Ok(self.has_ledger)
    }

    async fn query_each(
        &mut self,
        text: &str,
        values: &[Vec<SqlValue<'_>>],
    ) -> Result<Vec<Vec<SqlRow>>, CallError> {
        let answers = run_each(self, text, values).await?;
        let rows = |answer: &Answer| {
            let rows = answer.rows.iter().map(|row| Ok(SqlRow(row.cells()?)));
            rows.collect()
        };
        answers.iter().map(rows).collect()
    }

    async fn each(
        &mut self,
        text: &str,
        values: &[Vec<SqlValue<'_>>],
    ) -> Result<Vec<u64>, CallError> {
        let answers = run_each(self, text, values).await?;
        Ok(answers.iter().map(|answer| answer.changed).collect())
    }
}

async fn run_each(
    client: &mut Client,
    text: &str,
    values: &[Vec<SqlValue<'_>>],
) -> Result<Vec<Answer>, CallError> {
    let text = quoted(text);
    let mut script = client.script();
    for values in values {
        script.add(&text, &own(values));
    }
    client.run(script).await
}

/// Quotes the columns whose names are words of this dialect as it wants it.
fn quoted(text: &str) -> String {
    let text = text.replace("\"cursor\"", "`cursor`");
    text.replace("\"signal\"", "`signal`")
}

fn own<'a>(values: &[SqlValue<'a>]) -> Vec<Value<'a>> {
    let values = values.iter().map(|value| match value {
        SqlValue::Number(number) => Value::from(*number),
        SqlValue::Text(text) => Value::from(*text),
    });
    values.collect()
}

/// A connection for the ledger.
#[derive(Debug)]
pub(super) struct LedgerClient(Client);

impl Openable for LedgerClient {
    type Target = ConnectTarget;
    type Refusal = MysqlError;
    type Error = CallError;

    async fn open(target: &ConnectTarget) -> Result<Self, MysqlError> {
        let mut client = target.connect().await?;
        target.prepare(&mut client, Tables::Ledger).await?;
        Ok(Self(client))
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn abort(self) {
        self.0.abort();
    }
}

impl Sql for LedgerClient {
    type Error = CallError;

    const NOW_MS: &'static str = <Client as Sql>::NOW_MS;

    const OCCURRENCE: &'static str = <Client as Sql>::OCCURRENCE;

    const BY_OWNER: &'static str = <Client as Sql>::BY_OWNER;

    async fn has_ledger(&mut self) -> Result<bool, CallError> {
        self.0.has_ledger().await
    }

    async fn query_each(
        &mut self,
        text: &str,
        values: &[Vec<SqlValue<'_>>],
    ) -> Result<Vec<Vec<SqlRow>>, CallError> {
        self.0.query_each(text, values).await
    }

    async fn each(
        &mut self,
        text: &str,
        values: &[Vec<SqlValue<'_>>],
    ) -> Result<Vec<u64>, CallError> {
        self.0.each(text, values).await
    }
}

impl LedgerConnection for LedgerClient {
    const DIALECT: LedgerDialect = LedgerDialect {
        insert_new: ("INSERT IGNORE", ""),
        replace: "ON DUPLICATE KEY UPDATE",
        new_value: ("VALUES(", ")"),
        rows_together: 50,
        event_order: "id",
        by_index: Some(("FORCE INDEX (", ")")),
        lock: Some(LOCKS),
    };

    const LOCK_TOGETHER: &'static str = "SELECT id FROM ledger WHERE id = 1 LOCK IN SHARE MODE";

    async fn problem(target: &ConnectTarget) -> Result<Option<String>, MysqlError> {
        let mut client = target.connect_bare().await?;
        target.look(&mut client, Tables::Ledger).await
    }

    async fn begin(&mut self) -> Result<(), CallError> {
        let soon = match self.0.product() {
            Product::MariaDb => SOON_ON_MARIADB,
            Product::MySql => SOON_ON_MYSQL,
        };
        let mut script = self.0.transaction(None);
        script.add(soon, &[]);
        self.0.run(script).await.map(drop)
    }

    async fn commit(&mut self) -> Result<(), CallError> {
        self.0.commit().await
    }

    async fn roll_back(&mut self) -> Result<(), CallError> {
        let mut script = self.0.script();
        script.add("ROLLBACK", &[]);
        if self.0.product() == Product::MySql {
            script.add("SET SESSION wait_timeout = 28800", &[]);
        }
        self.0.run(script).await.map(drop)
    }

    async fn publish(&mut self, messages: &[Outgoing]) -> Result<(), CallError> {
        let mut script = self.0.script();
        settle::publish(&mut script, messages.iter());
        self.0.run(script).await.map(drop)
    }

    async fn bury(&mut self, queue: &str, id: &str) -> Result<usize, CallError> {
        // No pool has it; its queue stands for one.
        cancel(&mut self.0, queue, queue, id).await
    }
}
