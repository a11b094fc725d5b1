//! The ledger in PostgreSQL.

use futures_util::future::try_join_all;
use tokio::sync::OnceCell;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use super::client::Parameter;
use super::columns::occurrence;
use super::commands::cancel;
use super::connect::{ConnectTarget, RawConnection};
use super::error::PostgresError;
use super::settle::{self, Statements, now_ms};
use crate::ledger::sql::LedgerDialect;
use crate::ledger::values::{SqlCell, SqlRow, SqlValue};
use crate::server::ledger::{LOCKS, LedgerConnection};
use crate::server::reconnecting::Openable;
use crate::server::sql::Sql;
use crate::server::tables::Tables;
use ganger_queue::delivery::Outgoing;

impl Sql for &RawConnection {
    type Error = Error;

    const NOW_MS: &'static str = concat!("SELECT ", now_ms!());

    const OCCURRENCE: &'static str = occurrence!("m.headers");

    const BY_OWNER: &'static str = "";

    async fn has_ledger(&mut self) -> Result<bool, Error> {
        if self.ledger.is_found() {
            return Ok(true);
        }
        let there = "SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute
                     WHERE attrelid = to_regclass('occurrences') AND attname = 'resolved')";
        let there = self.client.query_one(there, &[]).await?.try_get(0)?;
        if there {
            self.ledger.found();
        }
        Ok(there)
    }

    async fn query_each(
        &mut self,
        text: &str,
        values: &[Vec<SqlValue<'_>>],
    ) -> Result<Vec<Vec<SqlRow>>, Error> {
        let Some(first) = values.first() else {
            return Ok(Vec::new());
        };
        let statement = self.ledger.prepared(&self.client, text, first).await?;
        // Sent one after the other without waiting.
        let each = values.iter().map(async |values| {
            let rows = self.client.query(&statement, &parameters(values)).await?;
            rows.iter().map(row).collect()
        });
        try_join_all(each).await
    }

    async fn each(&mut self, text: &str, values: &[Vec<SqlValue<'_>>]) -> Result<Vec<u64>, Error> {
        let Some(first) = values.first() else {
            return Ok(Vec::new());
        };
        let statement = self.ledger.prepared(&self.client, text, first).await?;
        // Sent one after the other without waiting.
        let each = values.iter().map(async |values| {
            let values = parameters(values);
            self.client.execute(&statement, &values).await
        });
        try_join_all(each).await
    }
}

fn parameters<'a>(values: &'a [SqlValue<'a>]) -> Vec<Parameter<'a>> {
    let values = values.iter();
    let parameter = |value: &'a SqlValue<'a>| match value {
        SqlValue::Number(number) => number as Parameter<'a>,
        SqlValue::Text(text) => text,
    };
    values.map(parameter).collect()
}

fn row(row: &Row) -> Result<SqlRow, Error> {
    let columns = row.columns().iter().enumerate();
    let cells = columns.map(|(at, column)| {
        let number = match *column.type_() {
            Type::INT2 => row.try_get::<_, Option<i16>>(at)?.map(i64::from),
            Type::INT4 => row.try_get::<_, Option<i32>>(at)?.map(i64::from),
            Type::INT8 => row.try_get(at)?,
            _ => {
                let text: Option<String> = row.try_get(at)?;
                return Ok(text.map_or(SqlCell::Null, SqlCell::Text));
            }
        };
        Ok(number.map_or(SqlCell::Null, SqlCell::Number))
    });
    cells.collect::<Result<_, Error>>().map(SqlRow)
}

/// A connection for the ledger.
#[derive(Debug)]
pub(super) struct LedgerClient {
    raw: RawConnection,
    statements: OnceCell<Statements>,
}

impl Openable for LedgerClient {
    type Target = ConnectTarget;
    type Refusal = PostgresError;
    type Error = Error;

    async fn open(target: &ConnectTarget) -> Result<Self, PostgresError> {
        let raw = target.connect().await?;
        target.prepare(&raw.client, Tables::Ledger).await?;
        Ok(Self {
            raw,
            statements: OnceCell::new(),
        })
    }

    fn is_closed(&self) -> bool {
        self.raw.client.is_closed()
    }

    fn abort(self) {
        self.raw.abort();
    }
}

impl Sql for LedgerClient {
    type Error = Error;

    const NOW_MS: &'static str = <&RawConnection as Sql>::NOW_MS;

    const OCCURRENCE: &'static str = <&RawConnection as Sql>::OCCURRENCE;

    const BY_OWNER: &'static str = <&RawConnection as Sql>::BY_OWNER;

    async fn has_ledger(&mut self) -> Result<bool, Error> {
        (&self.raw).has_ledger().await
    }

    async fn query_each(
        &mut self,
        text: &str,
        values: &[Vec<SqlValue<'_>>],
    ) -> Result<Vec<Vec<SqlRow>>, Error> {
        (&self.raw).query_each(text, values).await
    }

    async fn each(&mut self, text: &str, values: &[Vec<SqlValue<'_>>]) -> Result<Vec<u64>, Error> {
        (&self.raw).each(text, values).await
    }
}

impl LedgerConnection for LedgerClient {
    const DIALECT: LedgerDialect = LedgerDialect {
        insert_new: (
            "INSERT",
            "ON CONFLICT (schedule, slot) WHERE slot IS NOT NULL DO NOTHING",
        ),
        replace: "ON CONFLICT (name) DO UPDATE SET",
        new_value: ("excluded.", ""),
        rows_together: 50,
        event_order: "id",
        by_index: None,
        lock: Some(LOCKS),
    };

    const LOCK_TOGETHER: &'static str = "SELECT id FROM ledger WHERE id = 1 FOR SHARE";

    async fn problem(target: &ConnectTarget) -> Result<Option<String>, PostgresError> {
        let raw = target.connect_bare().await?;
        target.look(&raw.client, Tables::Ledger).await
    }

    async fn begin(&mut self) -> Result<(), Error> {
        let soon = "SET LOCAL idle_in_transaction_session_timeout = '2s'";
        self.raw.client.begin_with(soon).await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        self.raw.client.commit().await
    }

    async fn roll_back(&mut self) -> Result<(), Error> {
        self.raw.client.roll_back().await
    }

    async fn publish(&mut self, messages: &[Outgoing]) -> Result<(), Error> {
        let client = &self.raw.client;
        let prepare = || Statements::prepare(client);
        let statements = self.statements.get_or_try_init(prepare).await?;
        settle::publish(client, statements, messages.iter()).await
    }

    async fn bury(&mut self, queue: &str, id: &str) -> Result<usize, Error> {
        // No pool has it; its queue stands for one.
        cancel(&self.raw, queue, queue, id).await
    }
}
