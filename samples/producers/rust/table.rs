//! Puts a message into a table queue, in the transaction of a row of its own.

use std::env;
use std::io::Write as _;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use serde_json::json;
use uuid::Uuid;

fn send(database: &str, correlation_id: &str) -> Result<(), Box<dyn std::error::Error>> {
    let headers = json!({ "tenant": "blue", "traceparent": env::var("TRACEPARENT")? });
    let mut db = Connection::open(database)?;
    db.busy_timeout(Duration::from_secs(10))?;
    db.pragma_update(None, "synchronous", "FULL")?; // or a power cut may take back what was sent
    // Rolled back when it is dropped before the commit.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT INTO orders (id, state) VALUES (17, 'new')", [])?;
    transaction.execute(
        "INSERT INTO consumer_messages
           (queue, body, headers, correlation_id, reply_to, message_id, content_type)
         VALUES ('orders', ?1, ?2, ?3, 'orders.replies', ?4, 'application/json')",
        [
            r#"{"order": 17}"#,
            &headers.to_string(),
            correlation_id,
            &Uuid::new_v4().to_string(),
        ],
    )?;
    transaction.commit()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = env::var("DATABASE").unwrap_or_else(|_| "ganger.db".into());
    let correlation_id = Uuid::new_v4().to_string();
    send(&database, &correlation_id)?;
    writeln!(std::io::stdout(), "{correlation_id}")?;
    Ok(())
}
