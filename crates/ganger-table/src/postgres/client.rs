//! The client that runs all statements: the driver's client, the names of the tables, and the handling
//! of poolers. Behind a pooler such as PgBouncer, which hands each transaction to any free session,
//! nothing may outlive a transaction: no setting, no prepared statement.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use crate::server::names::Names;

/// A value for a statement.
pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// A statement that is run often.
#[derive(Debug, Clone)]
pub(crate) enum Statement {
    /// Prepared in the session.
    Prepared(tokio_postgres::Statement),
    /// Sent each time, in one round trip with its values.
    Unprepared { text: String, types: Vec<Type> },
}

/// Something that can be run: a statement, or its text.
pub(crate) trait AsQuery {
    fn as_query(&self) -> Query<'_>;
}

/// A statement, or its text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Query<'a> {
    Text(&'a str),
    Statement(&'a Statement),
}

impl AsQuery for str {
    fn as_query(&self) -> Query<'_> {
        Query::Text(self)
    }
}

impl AsQuery for Statement {
    fn as_query(&self) -> Query<'_> {
        Query::Statement(self)
    }
}

/// Client over one connection.
#[derive(Debug)]
pub(crate) struct Client {
    driver: tokio_postgres::Client,
    names: Names,
    /// Settings at the start of each transaction, if a pooler shares the sessions.
    pooled: Option<String>,
    /// True while a transaction is open.
    is_open: AtomicBool,
}

impl Client {
    /// Makes the client of a session of its own or, if `is_pooled` is set, of sessions that a pooler
    /// shares.
    pub(super) fn new(driver: tokio_postgres::Client, names: Names, is_pooled: bool) -> Self {
        Self {
            driver,
            names,
            pooled: is_pooled.then(String::new),
            is_open: AtomicBool::new(false),
        }
    }

    /// Returns whether a pooler shares the sessions.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled.is_some()
    }

    /// Returns whether the connection is lost.
    pub(crate) fn is_closed(&self) -> bool {
        self.driver.is_closed()
    }

    /// Returns the name of a table, with the prefix.
    pub(super) fn table_name(&self, table: &str) -> String {
        self.names.apply_to(table).into_owned()
    }

    /// Sets parameters from now on. The values are in SQL syntax.
    pub(crate) async fn set(&mut self, settings: &[(&str, &str)]) -> Result<(), Error> {
        let all = |set: &str| {
            let settings = settings.iter();
            let settings = settings.map(|(name, value)| format!("{set} {name} = {value};"));
            settings.collect::<String>()
        };
        match &mut self.pooled {
            Some(begins_with) => {
                *begins_with += &all("SET LOCAL");
                Ok(())
            }
            None => self.driver.batch_execute(&all("SET")).await,
        }
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&self) -> Result<(), Error> {
        self.begin_with("").await
    }

    /// Begins a transaction and runs `first` in it.
    pub(crate) async fn begin_with(&self, first: &str) -> Result<(), Error> {
        self.is_open.store(true, Ordering::Relaxed);
        let set = self.pooled.as_deref().unwrap_or_default();
        let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {set} {first}");
        self.driver.batch_execute(&begin).await
    }

    /// Commits it.
    pub(crate) async fn commit(&self) -> Result<(), Error> {
        self.is_open.store(false, Ordering::Relaxed);
        self.driver.batch_execute("COMMIT").await
    }

    /// Rolls it back.
    pub(crate) async fn roll_back(&self) -> Result<(), Error> {
        self.is_open.store(false, Ordering::Relaxed);
        self.driver.batch_execute("ROLLBACK").await
    }

    /// Runs statements without values.
    pub(crate) async fn batch_execute(&self, text: &str) -> Result<(), Error> {
        let run = async || self.driver.batch_execute(&self.names.apply_to(text)).await;
        self.as_one(Box::pin(run())).await
    }

    /// Does work that needs several round trips in the same session: behind a pooler, in a transaction,
    /// unless one is open.
    pub(crate) async fn as_one<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if !self.is_pooled() || self.is_open.load(Ordering::Relaxed) {
            return work.await;
        }
        Box::pin(self.begin()).await?;
        match work.await {
            Ok(done) => {
                Box::pin(self.commit()).await?;
                Ok(done)
            }
            Err(error) => {
                // If that fails, too, the connection is lost, and the transaction with it.
                drop(Box::pin(self.roll_back()).await);
                Err(error)
            }
        }
    }

    /// Runs statements without values and without the prefix for names.
    pub(super) async fn batch_execute_unchanged(&self, text: &str) -> Result<(), Error> {
        self.as_one(Box::pin(self.driver.batch_execute(text))).await
    }

    /// Prepares a statement that is run often.
    pub(crate) async fn prepare(&self, text: &str) -> Result<Statement, Error> {
        let text = self.names.apply_to(text);
        if !self.is_pooled() {
            return self.driver.prepare(&text).await.map(Statement::Prepared);
        }
        let types = self.as_one(Box::pin(self.types(&text))).await?;
        let text = text.into_owned();
        Ok(Statement::Unprepared { text, types })
    }

    /// Returns the types of a statement's parameters. The prepared statement for that is dropped here:
    /// rows of a result would keep it beyond the transaction.
    async fn types(&self, text: &str) -> Result<Vec<Type>, Error> {
        let prepared = self.driver.prepare(text).await?;
        Ok(prepared.params().to_vec())
    }

    /// Runs a statement, and returns its rows.
    pub(crate) async fn query<R: AsQuery + ?Sized>(
        &self,
        statement: &R,
        values: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let run = async || match statement.as_query() {
            Query::Text(text) => {
                let text = self.names.apply_to(text);
                if self.is_pooled() {
                    let types = self.types(&text).await?;
                    return self.driver.query_typed(&text, &typed(values, &types)).await;
                }
                self.driver.query(&*text, values).await
            }
            Query::Statement(Statement::Prepared(known)) => self.driver.query(known, values).await,
            Query::Statement(Statement::Unprepared { text, types }) => {
                self.driver.query_typed(text, &typed(values, types)).await
            }
        };
        self.as_one(Box::pin(run())).await
    }

    /// Runs a statement, and returns its only row.
    pub(crate) async fn query_one<R: AsQuery + ?Sized>(
        &self,
        statement: &R,
        values: &[Parameter<'_>],
    ) -> Result<Row, Error> {
        let run = async || match statement.as_query() {
            Query::Text(text) => {
                let text = self.names.apply_to(text);
                if self.is_pooled() {
                    let types = self.types(&text).await?;
                    let values = typed(values, &types);
                    return self.driver.query_typed_one(&text, &values).await;
                }
                self.driver.query_one(&*text, values).await
            }
            Query::Statement(Statement::Prepared(known)) => {
                self.driver.query_one(known, values).await
            }
            Query::Statement(Statement::Unprepared { text, types }) => {
                let values = typed(values, types);
                self.driver.query_typed_one(text, &values).await
            }
        };
        self.as_one(Box::pin(run())).await
    }

    /// Runs a statement, and returns its first row, if there is one.
    pub(crate) async fn query_opt<R: AsQuery + ?Sized>(
        &self,
        statement: &R,
        values: &[Parameter<'_>],
    ) -> Result<Option<Row>, Error> {
        let rows = self.query(statement, values).await?;
        Ok(rows.into_iter().next())
    }

    /// Runs a statement, and returns the number of rows that it changed.
    pub(crate) async fn execute<R: AsQuery + ?Sized>(
        &self,
        statement: &R,
        values: &[Parameter<'_>],
    ) -> Result<u64, Error> {
        let run = async || match statement.as_query() {
            // No row keeps the prepared statement, so it is dropped before the transaction ends.
            Query::Text(text) => {
                let text = self.names.apply_to(text);
                self.driver.execute(&*text, values).await
            }
            Query::Statement(Statement::Prepared(known)) => {
                self.driver.execute(known, values).await
            }
            Query::Statement(Statement::Unprepared { text, types }) => {
                let values = typed(values, types);
                self.driver.execute_typed(text, &values).await
            }
        };
        self.as_one(Box::pin(run())).await
    }
}

fn typed<'a>(values: &[Parameter<'a>], types: &[Type]) -> Vec<(Parameter<'a>, Type)> {
    let values = values.iter().copied();
    values.zip(types.iter().cloned()).collect()
}
