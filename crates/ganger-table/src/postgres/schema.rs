//! The tables: their creation, their recognition, and their statements for people who create them by
//! hand. The statements are in the files `*.sql`.

use tokio_postgres::Error;

use super::client::Client;
use super::error::{PostgresError, failed};
use crate::server::names::Names;
use crate::server::tables::{LEDGER_KNOWN_BY, Tables};

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

/// Migrations of the tables of the ledger, which are made where there is one.
const LEDGER_MIGRATIONS: &[&str] = &[
    include_str!("ledger.sql"),
    include_str!("ledger_v2.sql"),
    include_str!("ledger_v3.sql"),
    include_str!("ledger_v4.sql"),
    include_str!("ledger_v5.sql"),
];

/// Tables that must all exist if one of them does: otherwise it belongs to another program.
const TABLES: &[&str] = &[
    "consumer_messages",
    "ganger_version",
    "owners",
    "poisoned_messages",
];

/// The same for the ledger.
const LEDGER_TABLES: &[&str] = &["ledger", "occurrence_events", "occurrences", "schedules"];

/// Column by which each table is recognised: another program's is unlikely to have it.
const KNOWN_BY: &[(&str, &str)] = &[
    ("consumer_messages", "body_bytes"),
    ("finished_messages", "emit_id"),
    ("ganger_version", "version"),
    ("owners", "beaten_at"),
    ("poisoned_messages", "body_bytes"),
    ("published_messages", "unsubscribed"),
    ("subscriptions", "subscribed_at"),
];

/// Returns the statements that create the tables in that schema, for people who run them by hand: a transaction for each
/// version, below its title, which fails unless the version before it is there.
pub(crate) fn statements(schema: &str, prefix: &str) -> String {
    let names = Names::with_prefix(prefix);
    let create_schema = match schema {
        "public" => String::new(),
        other => format!("CREATE SCHEMA IF NOT EXISTS {};\n", quoted(other)),
    };
    let mut transactions = Vec::new();
    for (tables, mut before) in [
        (Tables::Queues, create_schema),
        (Tables::Ledger, String::new()),
    ] {
        for (done, step) in migrations(tables).iter().enumerate() {
            let (title, step) = step.split_once("\n\n").unwrap_or_default();
            let follows = match done {
                0 => String::new(),
                done => {
                    let versioned = tables.versioned();
                    format!("SELECT 1 / count(*) FROM {versioned} WHERE version = {done};\n\n")
                }
            };
            transactions.push(format!(
                "{title}\n\nBEGIN;\n{}SET LOCAL search_path = {};\n\n{}COMMIT;\n",
                std::mem::take(&mut before),
                quoted(schema),
                names.apply_to(&(follows + step)),
            ));
        }
    }
    transactions.join("\n")
}

/// Returns a name quoted for SQL, whatever its content.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn migrations(tables: Tables) -> &'static [&'static str] {
    match tables {
        Tables::Queues => MIGRATIONS,
        Tables::Ledger => LEDGER_MIGRATIONS,
    }
}

/// Makes sure that the tables exist, and creates them if that is configured. Two daemons that do so wait
/// for each other.
pub(super) async fn prepare(
    client: &Client,
    tables: Tables,
    schema: &str,
    declare: bool,
) -> Result<(), PostgresError> {
    if !is_to_be_made(client, tables, schema, declare).await? {
        return Ok(());
    }
    let made = migrate(client, tables, schema).await;
    if made.is_err() {
        // Best effort: the first error is returned, and the connection is not used any more.
        drop(client.roll_back().await);
    }
    made
}

/// Checks that the tables exist or will be created.
pub(super) async fn look(
    client: &Client,
    tables: Tables,
    schema: &str,
    declare: bool,
) -> Result<(), PostgresError> {
    let looked = is_to_be_made(client, tables, schema, declare).await;
    looked.map(drop)
}

/// Returns whether all tables of the queues exist in their current form.
pub(super) async fn is_made(client: &Client, schema: &str) -> Result<bool, PostgresError> {
    Ok(found(client, Tables::Queues, schema).await? == MIGRATIONS.len())
}

async fn is_to_be_made(
    client: &Client,
    tables: Tables,
    schema: &str,
    declare: bool,
) -> Result<bool, PostgresError> {
    let done = found(client, tables, schema).await?;
    let is_there = done == migrations(tables).len();
    if is_there || declare {
        return Ok(!is_there);
    }
    let (schema, version) = (schema.to_owned(), done + 1);
    Err(match tables {
        Tables::Queues => PostgresError::Missing { schema, version },
        Tables::Ledger => PostgresError::NoLedger { schema, version },
    })
}

/// Runs the missing migrations.
async fn migrate(client: &Client, tables: Tables, schema: &str) -> Result<(), PostgresError> {
    begin(client, schema).await?;
    let making = || failed("making the tables");
    let done = found(client, tables, schema).await?;
    if done == 0 {
        make_schema(client, schema).await?;
    }
    for step in migrations(tables).iter().skip(done) {
        client.batch_execute(step).await.map_err(making())?;
    }
    client.commit().await.map_err(making())
}

/// Begins a transaction that makes tables, and waits until no other daemon does.
async fn begin(client: &Client, schema: &str) -> Result<(), PostgresError> {
    let making = || failed("making the tables");
    // Another daemon may wait here for as long as a migration rebuilds tables with millions of rows.
    let begin = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
                 SET LOCAL idle_in_transaction_session_timeout = 0";
    client.begin_with(begin).await.map_err(making())?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('ganger ' || $1::text, 0))";
    let locked = client.execute(lock, &[&schema]).await;
    locked.map(drop).map_err(making())
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

/// Returns the number of migrations that were run.
async fn found(client: &Client, tables: Tables, schema: &str) -> Result<usize, PostgresError> {
    let looking = || failed("looking for the tables");
    let (all, known_by) = match tables {
        Tables::Queues => (TABLES, KNOWN_BY),
        Tables::Ledger => (LEDGER_TABLES, LEDGER_KNOWN_BY),
    };
    let there = "SELECT relname::text FROM pg_catalog.pg_class
                 JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
                 WHERE nspname = $1 AND relname = ANY($2::text[])
                 ORDER BY relname";
    let names = all.iter().map(|table| client.table_name(table));
    let names: Vec<String> = names.collect();
    let there = client.query(there, &[&schema, &names]).await;
    let there = there.map_err(looking())?;
    let foreign = foreign(client, schema, known_by).await;
    let foreign = match foreign.map_err(looking())? {
        None if there.is_empty() => return Ok(0),
        None if there.len() < all.len() => there.first().map(|row| row.get(0)),
        foreign => foreign,
    };
    let schema = schema.to_owned();
    if let Some(table) = foreign {
        return Err(PostgresError::Foreign { schema, table });
    }
    let version = format!("SELECT max(version) FROM {}", tables.versioned());
    let version = client
        .query_one(version.as_str(), &[])
        .await
        .map_err(looking())?;
    let found = version.get::<_, Option<i32>>(0).unwrap_or(0);
    let known = i32::try_from(migrations(tables).len()).unwrap_or(i32::MAX);
    match usize::try_from(found) {
        Ok(steps) if found <= known => Ok(steps),
        _ => Err(PostgresError::Newer {
            schema,
            found,
            known,
        }),
    }
}

/// Returns a table with one of these names but without its distinguishing column: another program's.
async fn foreign(
    client: &Client,
    schema: &str,
    known_by: &[(&str, &str)],
) -> Result<Option<String>, Error> {
    let foreign = "SELECT relname::text FROM pg_catalog.pg_class
                   JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
                   JOIN unnest($2::text[], $3::text[]) AS ours(name, known_by) ON name = relname
                   WHERE nspname = $1 AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
                     WHERE attrelid = pg_class.oid AND attname = known_by)
                   ORDER BY relname LIMIT 1";
    let names = known_by.iter().map(|(table, _)| client.table_name(table));
    let names: Vec<String> = names.collect();
    let known_by: Vec<&str> = known_by.iter().map(|(_, column)| *column).collect();
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
    fn each_version_is_a_transaction_below_its_title() {
        let public = statements("public", "");
        let begin = "\n\nBEGIN;\nSET LOCAL search_path = \"public\";\n\n";
        for (version, first) in [
            ("Version 1", "CREATE TABLE consumer_messages ("),
            (
                "Version 5",
                "SELECT 1 / count(*) FROM ganger_version WHERE version = 4;\n",
            ),
            ("Ledger, version 1", "CREATE TABLE schedules ("),
            (
                "Ledger, version 4",
                "SELECT 1 / count(*) FROM ledger WHERE version = 3;\n",
            ),
        ] {
            let (_, step) = public.split_once(&format!("-- {version}")).unwrap();
            let (_, step) = step.split_once(begin).unwrap();
            assert!(step.starts_with(first), "{version}: {step}");
        }
        assert!(public.ends_with("\nUPDATE ledger SET version = 5;\nCOMMIT;\n"));
        let own = statements("jobs", "q_");
        let created = "BEGIN;\nCREATE SCHEMA IF NOT EXISTS \"jobs\";\nSET LOCAL";
        assert_eq!(own.matches(created).count(), 1);
        assert!(own.contains("\n-- Ledger, version 2: "), "{own}");
        assert!(own.contains(" FROM q_ledger WHERE version = 1;"), "{own}");
    }
}
