//! The tables: their creation, their recognition, and their statements for people who create them by
//! hand. The statements are in the files `*.sql`.

use std::fmt::Write as _;

use tokio_postgres::Error;

use super::client::Client;
use super::error::{PostgresError, failed};
use crate::server::names::Names;

/// The oldest supported server, as `server_version_num`.
pub(super) const OLDEST_SERVER: i32 = 120_000;

/// Migrations from one version of the tables to the next, the first from an empty schema. A released
/// migration is never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("v1.sql"),
    include_str!("v2.sql"),
    include_str!("v3.sql"),
    include_str!("v4.sql"),
    include_str!("v5.sql"),
];

/// Tables that must all exist if one of them does: otherwise it belongs to another program.
const TABLES: [&str; 4] = [
    "consumer_messages",
    "ganger_version",
    "owners",
    "poisoned_messages",
];

/// Column by which each table is recognised: another program's is unlikely to have it.
const KNOWN_BY: [(&str, &str); 7] = [
    ("consumer_messages", "body_bytes"),
    ("finished_messages", "emit_id"),
    ("ganger_version", "version"),
    ("owners", "beaten_at"),
    ("poisoned_messages", "body_bytes"),
    ("published_messages", "unsubscribed"),
    ("subscriptions", "subscribed_at"),
];

/// Returns the statements that create the tables in that schema, for people who run them by hand.
pub(crate) fn statements(schema: &str, prefix: &str) -> String {
    let mut all = String::from("BEGIN;\n");
    if schema != "public" {
        writeln!(all, "CREATE SCHEMA IF NOT EXISTS {};", quoted(schema)).ok();
    }
    writeln!(all, "SET LOCAL search_path = {};\n", quoted(schema)).ok();
    all += &Names::with_prefix(prefix).apply_to(&MIGRATIONS.join("\n"));
    all + "COMMIT;\n"
}

/// Returns a name quoted for SQL, whatever its content.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Makes sure that the tables exist, and creates them if that is configured. Two daemons that do so wait
/// for each other.
pub(super) async fn prepare(
    client: &Client,
    schema: &str,
    declare: bool,
) -> Result<(), PostgresError> {
    if !is_to_be_made(client, schema, declare).await? {
        return Ok(());
    }
    let made = migrate(client, schema).await;
    if made.is_err() {
        // Best effort: the first error is returned, and the connection is not used any more.
        drop(client.roll_back().await);
    }
    made
}

/// Checks that the tables exist or will be created.
pub(super) async fn look(
    client: &Client,
    schema: &str,
    declare: bool,
) -> Result<(), PostgresError> {
    is_to_be_made(client, schema, declare).await.map(drop)
}

/// Returns whether all tables exist in their current form.
pub(super) async fn is_made(client: &Client, schema: &str) -> Result<bool, PostgresError> {
    Ok(found(client, schema).await? == Some(MIGRATIONS.len()))
}

async fn is_to_be_made(
    client: &Client,
    schema: &str,
    declare: bool,
) -> Result<bool, PostgresError> {
    let whole = is_made(client, schema).await?;
    if whole || declare {
        return Ok(!whole);
    }
    let schema = schema.to_owned();
    Err(PostgresError::Missing { schema })
}

async fn migrate(client: &Client, schema: &str) -> Result<(), PostgresError> {
    let making = || failed("making the tables");
    // Another daemon may wait here for as long as a migration rebuilds tables with millions of rows.
    let begin = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
                 SET LOCAL idle_in_transaction_session_timeout = 0";
    client.begin_with(begin).await.map_err(making())?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('ganger ' || $1::text, 0))";
    client.execute(lock, &[&schema]).await.map_err(making())?;
    let done = found(client, schema).await?.unwrap_or(0);
    if done == 0 {
        make_schema(client, schema).await?;
    }
    for step in MIGRATIONS.iter().skip(done) {
        client.batch_execute(step).await.map_err(making())?;
    }
    client.commit().await.map_err(making())
}

/// Creates the schema if it is missing, and only then: an account that may create tables need not be
/// allowed to create schemas.
async fn make_schema(client: &Client, schema: &str) -> Result<(), PostgresError> {
    let known = "SELECT to_regnamespace($1::text) IS NOT NULL";
    let known = client.query_one(known, &[&quoted(schema)]).await;
    if known.map_err(failed("looking for the schema"))?.get(0) {
        return Ok(());
    }
    let make = format!("CREATE SCHEMA {}", quoted(schema));
    let made = client.batch_execute_unchanged(&make).await;
    made.map_err(failed("making the schema"))
}

/// Returns the number of migrations that were run; none if there are no tables.
async fn found(client: &Client, schema: &str) -> Result<Option<usize>, PostgresError> {
    let looking = || failed("looking for the tables");
    let tables = "SELECT relname::text FROM pg_catalog.pg_class
                  JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
                  WHERE nspname = $1 AND relname = ANY($2::text[])
                  ORDER BY relname";
    let names: Vec<_> = TABLES
        .iter()
        .map(|table| client.table_name(table))
        .collect();
    let tables = client.query(tables, &[&schema, &names]).await;
    let tables = tables.map_err(looking())?;
    let tables: Vec<String> = tables.iter().map(|row| row.get(0)).collect();
    if tables.is_empty() {
        return Ok(None);
    }
    let foreign = match foreign(client, schema).await.map_err(looking())? {
        None if tables.len() < TABLES.len() => tables.into_iter().next(),
        foreign => foreign,
    };
    if let Some(table) = foreign {
        let schema = schema.to_owned();
        return Err(PostgresError::Foreign { schema, table });
    }
    let version = "SELECT max(version) FROM ganger_version";
    let version = client.query_one(version, &[]).await.map_err(looking())?;
    let found: i32 = version.get::<_, Option<i32>>(0).unwrap_or(0);
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    match usize::try_from(found) {
        Ok(steps) if found <= known => Ok(Some(steps)),
        _ => Err(PostgresError::Newer {
            schema: schema.to_owned(),
            found,
            known,
        }),
    }
}

/// Returns a table with one of ganger's names but without its distinguishing column: another program's.
async fn foreign(client: &Client, schema: &str) -> Result<Option<String>, Error> {
    let foreign = "SELECT relname::text FROM pg_catalog.pg_class
                   JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
                   JOIN unnest($2::text[], $3::text[]) AS ours(name, known_by) ON name = relname
                   WHERE nspname = $1 AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
                     WHERE attrelid = pg_class.oid AND attname = known_by)
                   ORDER BY relname LIMIT 1";
    let names = KNOWN_BY.map(|(table, _)| client.table_name(table)).to_vec();
    let known_by = KNOWN_BY.map(|(_, column)| column).to_vec();
    let found = client
        .query_opt(foreign, &[&schema, &names, &known_by])
        .await?;
    found.map(|row| row.try_get(0)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_can_be_a_schema() {
        assert_eq!(quoted("jobs"), r#""jobs""#);
        assert_eq!(quoted(r#"a"; DROP TABLE b"#), r#""a""; DROP TABLE b""#);
    }

    #[test]
    fn the_statements_are_one_transaction_in_the_schema() {
        let public = statements("public", "");
        assert!(public.starts_with("BEGIN;\nSET LOCAL search_path = \"public\";\n"));
        assert!(public.ends_with(
            "version = 5;
COMMIT;
"
        ));
        let own = statements("jobs", "");
        assert!(own.starts_with("BEGIN;\nCREATE SCHEMA IF NOT EXISTS \"jobs\";\n"));
    }
}
