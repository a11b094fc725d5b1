//! The tables: their creation, their recognition, and their statements for people who create them by
//! hand. The statements are in the files `*.sql`.

use super::client::Client;
use super::error::{CallError, MysqlError, failed, is_made_or_in_use, is_trigger_denied, sentence};
use super::value::Value;
use crate::server::names::Names;
use crate::server::tables::{LEDGER_KNOWN_BY, Tables};

/// Migrations from one version of the tables to the next, the first from an empty database. A released
/// migration is never changed. Each can be run again from its beginning: DDL is not transactional, so an
/// interrupted one leaves what it has created.
const MIGRATIONS: &[&str] = &[
    include_str!("v1.sql"),
    include_str!("v2.sql"),
    include_str!("v3.sql"),
];

/// Migrations of the tables of the ledger, which are made where there is one.
const LEDGER_MIGRATIONS: &[&str] = &[
    include_str!("ledger.sql"),
    include_str!("ledger_v2.sql"),
    include_str!("ledger_v3.sql"),
    include_str!("ledger_v4.sql"),
    include_str!("ledger_v5.sql"),
];

/// Statements for messages to topics, also in place of the first version's table. They need triggers,
/// which a server with a binary log may allow only an administrator to create; everything else works
/// without them.
const TOPICS: &str = include_str!("topics.sql");
/// Trigger by which the server assigns the ids of all messages.
const IDS: &str = include_str!("ids.sql");
/// Short lock timeout for the creation of that trigger: while it waits for somebody's long transaction,
/// it blocks all access to the table.
const BRIEFLY: &str = "SET SESSION lock_wait_timeout = 1";
const NO_TOPICS: &str = "DROP TABLE IF EXISTS published_messages_new";

/// Tables that are checked for being ganger's, each with a column that another program's table is
/// unlikely to have.
const KNOWN_BY: &[(&str, &str)] = &[
    ("consumer_messages", "unique_hold"),
    ("finished_messages", "emit_id"),
    ("ganger_version", "version"),
    ("owners", "lock_name"),
    ("poisoned_messages", "unique_until"),
    ("published_messages", "unsubscribed"),
    ("subscriptions", "subscribed_at"),
];

/// Named lock for the creation of the tables, by the database and the table names.
const LOCK: &str = "
SELECT GET_LOCK(CONCAT('ganger.', LEFT(SHA2(CONCAT(DATABASE(), '.', ?), 256), 40)), ?)";
const UNLOCK: &str = "
DO RELEASE_LOCK(CONCAT('ganger.', LEFT(SHA2(CONCAT(DATABASE(), '.', ?), 256), 40)))";

/// Maximum time to wait for it, in seconds: a migration may rebuild tables with millions of rows.
const LOCKED_FOR: i64 = 3600;

/// Returns the statements that create the tables in an empty database, for the server's own command-line
/// client.
pub(crate) fn statements(prefix: &str) -> String {
    // The body of the first trigger has several statements.
    let topics = TOPICS.replacen("CREATE TRIGGER", "DELIMITER //\nCREATE TRIGGER", 1);
    let topics = topics.replacen("\nEND;\n", "\nEND//\nDELIMITER ;\n", 1);
    let tables = MIGRATIONS.join("\n");
    let ledger = LEDGER_MIGRATIONS.join("\n");
    let all = format!(
        "SET NAMES utf8mb4;\n\n{tables}\nDROP TRIGGER IF EXISTS consumer_messages_id;\n{IDS}\n{topics}\n{ledger}"
    );
    Names::with_prefix(prefix).apply_to(&all).into_owned()
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
    client: &mut Client,
    tables: Tables,
    database: &str,
    declare: bool,
) -> Result<(), MysqlError> {
    if is_to_be_made(client, tables, database, declare).await? {
        // After an error the connection is not used any more, and its end releases the lock.
        lock(client).await?;
        migrate(client, tables, database).await?;
        unlock(client).await?;
    }
    match tables {
        Tables::Queues if declare => prepare_ids(client).await,
        Tables::Queues | Tables::Ledger => Ok(()),
    }
}

/// Creates the trigger that assigns the ids of all messages, unless it exists or triggers may not be
/// created.
async fn prepare_ids(client: &mut Client) -> Result<(), MysqlError> {
    if numbers_all(client).await? {
        return Ok(());
    }
    lock(client).await?;
    let made = match numbers_all(client).await? {
        false => client.batch_execute(&format!("{BRIEFLY}; {IDS}")).await,
        true => Ok(()),
    };
    unlock(client).await?;
    match made {
        // It may exist without being visible to this account; otherwise the next start tries again.
        Err(error) if is_trigger_denied(&error) || is_made_or_in_use(&error) => Ok(()),
        made => made.map_err(failed("making the tables")),
    }
}

/// Returns whether the server assigns the ids of all messages, as far as this account can see.
async fn numbers_all(client: &mut Client) -> Result<bool, MysqlError> {
    let there = "SELECT count(*) FROM information_schema.triggers
                 WHERE trigger_schema = DATABASE() AND trigger_name = ?";
    let called = client.table_name("consumer_messages_id");
    let found = client.query_one(there, &[Value::from(&called)]).await;
    let found = found.and_then(|row| row.get::<i64>(0));
    Ok(found.map_err(failed("looking for the tables"))? > 0)
}

/// Waits until no other daemon creates tables here, and removes the limits of statements.
async fn lock(client: &mut Client) -> Result<(), MysqlError> {
    let making = || failed("making the tables");
    let name = client.table_name("ganger_version");
    client.lift_limits().await.map_err(making())?;
    let lock = [Value::from(&name), LOCKED_FOR.into()];
    let locked = client.query_one(LOCK, &lock).await;
    let locked = locked.and_then(|row| row.get::<Option<i64>>(0));
    if locked.map_err(making())? == Some(1) {
        return Ok(());
    }
    let why = CallError::Unexpected("that another daemon is still creating them".to_owned());
    Err(making()(why))
}

async fn unlock(client: &mut Client) -> Result<(), MysqlError> {
    let making = || failed("making the tables");
    let name = client.table_name("ganger_version");
    let unlocked = client.execute(UNLOCK, &[Value::from(&name)]).await;
    unlocked.map_err(making())?;
    client.set_limits().await.map_err(making())
}

/// Checks that the tables exist or will be created.
pub(super) async fn look(
    client: &mut Client,
    tables: Tables,
    database: &str,
    declare: bool,
) -> Result<(), MysqlError> {
    let looked = is_to_be_made(client, tables, database, declare).await;
    looked.map(drop)
}

/// Returns whether all tables of the queues exist in their current form.
pub(super) async fn is_made(client: &mut Client, database: &str) -> Result<bool, MysqlError> {
    let done = found_in_peace(client, Tables::Queues, database).await?;
    Ok(done == MIGRATIONS.len())
}

/// Returns the number of migrations that were run, while none is.
async fn found_in_peace(
    client: &mut Client,
    tables: Tables,
    database: &str,
) -> Result<usize, MysqlError> {
    match found(client, tables, database).await {
        // A table that is being altered shows no columns. The session that alters it holds the lock.
        Err(MysqlError::Foreign { .. }) => {
            lock(client).await?;
            let again = found(client, tables, database).await;
            unlock(client).await?;
            again
        }
        steps => steps,
    }
}

async fn is_to_be_made(
    client: &mut Client,
    tables: Tables,
    database: &str,
    declare: bool,
) -> Result<bool, MysqlError> {
    let done = found_in_peace(client, tables, database).await?;
    let is_there = done == migrations(tables).len();
    if is_there || declare {
        return Ok(!is_there);
    }
    let (database, version) = (database.to_owned(), done + 1);
    Err(match tables {
        Tables::Queues => MysqlError::Missing { database, version },
        Tables::Ledger => MysqlError::NoLedger { database, version },
    })
}

/// Runs the missing migrations.
async fn migrate(client: &mut Client, tables: Tables, database: &str) -> Result<(), MysqlError> {
    let done = found(client, tables, database).await?;
    let making = || failed("making the tables");
    if tables == Tables::Queues {
        // Before the migrations: after an interruption in between, the version shows that something is left
        // to do.
        match make_topics(client).await {
            Err(error) if is_trigger_denied(&error) => {}
            made => made.map_err(making())?,
        }
    }
    for step in migrations(tables).iter().skip(done) {
        client.batch_execute(step).await.map_err(making())?;
    }
    Ok(())
}

/// Makes sure that the table for messages to topics exists.
pub(super) async fn prepare_topics(client: &mut Client, declare: bool) -> Result<(), MysqlError> {
    let there = topics(client).await;
    let there = there.map_err(failed("looking for the tables"))?;
    // A table of the first version still works. The periodic work, which empties it, logs the
    // difference.
    let suffices = there == Topics::Unmarked;
    if there == Topics::Marked || suffices && !declare {
        return Ok(());
    }
    if !declare {
        return Err(MysqlError::NoTopics {
            why: "`declare = false` forbids creating it".to_owned(),
        });
    }
    lock(client).await?;
    let made = make_topics(client).await;
    unlock(client).await?;
    match made {
        Err(error) if is_trigger_denied(&error) && suffices => Ok(()),
        Err(error) if is_trigger_denied(&error) => Err(MysqlError::NoTopics {
            why: sentence(&error),
        }),
        made => made.map_err(failed("making the tables")),
    }
}

/// Creates the table for messages to topics, unless it exists in its current form.
async fn make_topics(client: &mut Client) -> Result<(), CallError> {
    if topics(client).await? == Topics::Marked {
        return Ok(());
    }
    let made = client.batch_execute(TOPICS).await;
    if made.is_err() {
        // Best effort: nothing reads the leftover table, and the next attempt removes it.
        drop(client.batch_execute(NO_TOPICS).await);
    }
    made
}

/// Returns the number of migrations that were run.
async fn found(client: &mut Client, tables: Tables, database: &str) -> Result<usize, MysqlError> {
    let looking = || failed("looking for the tables");
    let database = database.to_owned();
    let known_by = match tables {
        Tables::Queues => KNOWN_BY,
        Tables::Ledger => LEDGER_KNOWN_BY,
    };
    let there = known(client, known_by).await.map_err(looking())?;
    if let Some(table) = there.foreign {
        return Err(MysqlError::Foreign { database, table });
    }
    let versioned = tables.versioned();
    if !there.there.contains(&versioned) {
        return Ok(0);
    }
    let version = format!("SELECT COALESCE(MAX(version), 0) FROM {versioned}");
    let version = client.query_one(&version, &[]).await;
    let found: i64 = version.and_then(|row| row.get(0)).map_err(looking())?;
    let known = i64::try_from(migrations(tables).len()).unwrap_or(i64::MAX);
    match usize::try_from(found) {
        Ok(steps) if found <= known => Ok(steps),
        _ => Err(MysqlError::Newer {
            database,
            found,
            known,
        }),
    }
}

/// Existing tables with ganger's names.
#[derive(Debug, Default)]
struct KnownTables {
    /// The first table without its distinguishing column.
    foreign: Option<String>,
    /// The others.
    there: Vec<&'static str>,
}

async fn known(
    client: &mut Client,
    known_by: &'static [(&'static str, &'static str)],
) -> Result<KnownTables, CallError> {
    let tables = "
        SELECT t.table_name, EXISTS (SELECT 1 FROM information_schema.columns c
          WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.column_name = ?)
        FROM information_schema.tables t WHERE t.table_schema = DATABASE() AND t.table_name = ?";
    let mut script = client.script();
    for (table, column) in known_by {
        let called = client.table_name(table);
        script.add(tables, &[(*column).into(), Value::from(&called)]);
    }
    let answers = client.run(script).await?;
    let mut found = KnownTables::default();
    for (answer, (table, _)) in answers.iter().zip(known_by) {
        let Some(row) = answer.rows.first() else {
            continue;
        };
        match row.get::<i64>(1)? != 0 {
            true => found.there.push(table),
            false => {
                let name = client.table_name(table);
                found.foreign.get_or_insert(name);
            }
        }
    }
    Ok(found)
}

/// Form of the table for messages to topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topics {
    None,
    /// Form of the first version: its rows do not show that they have been copied to the queues.
    Unmarked,
    Marked,
}

async fn topics(client: &mut Client) -> Result<Topics, CallError> {
    let columns = "
        SELECT count(*) FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = ? AND column_name IN ('topic', 'fanned_out')";
    let published = client.table_name("published_messages");
    let columns = client
        .query_one(columns, &[Value::from(&published)])
        .await?;
    Ok(match columns.get::<i64>(0)? {
        2 => Topics::Marked,
        1 => Topics::Unmarked,
        _ => Topics::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_are_those_of_a_client_that_reads_line_by_line() {
        let all = statements("q_");
        assert!(
            all.starts_with("SET NAMES utf8mb4;\n\n-- Version 1 "),
            "{all}"
        );
        let trigger = "\nDELIMITER //\nCREATE TRIGGER q_published_messages_fan_out AFTER INSERT ON \
                       q_published_messages_new ";
        assert!(all.contains(trigger), "{all}");
        assert!(all.contains("\nEND//\nDELIMITER ;\n"), "{all}");
        let renamed = ", q_published_messages_new TO q_published_messages;\n";
        assert!(all.contains(renamed), "{all}");
        let mark = "\nSET NEW.fanned_out = 1, NEW.id = 0;\n";
        assert!(all.contains(mark), "{all}");
    }
}
