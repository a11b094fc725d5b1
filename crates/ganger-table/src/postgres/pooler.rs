//! Whether a session is ours: a pooler in transaction mode hands each transaction to whichever is free, and
//! what we count on is then now here, now there.

use tokio_postgres::Error;

use super::client::Client;
use super::error::{PostgresError, failed};
use super::line::{Line, Place};

/// What one session has set, if it has.
const SEEN: &str = "SELECT current_setting('ganger.session', true)";

/// Refuses a server behind such a pooler, unless that was said.
pub(crate) async fn refuse(place: &Place, line: &Line) -> Result<(), PostgresError> {
    if place.is_pooled {
        return Ok(());
    }
    let other = match place.connect_bare().await {
        Ok(other) => other,
        Err(error) if error.is_passing() => return Ok(()),
        Err(error) => return Err(error),
    };
    let looked = is_handed_around(&line.client, &other.client).await;
    match looked.map_err(failed("looking whose the session is"))? {
        false => Ok(()),
        true => Err(PostgresError::Pooled {
            server: place.server.clone(),
        }),
    }
}

/// Whether what the one has set is in the session that the other gets, or not in its own while the other
/// has one.
async fn is_handed_around(one: &Client, other: &Client) -> Result<bool, Error> {
    let mark = fastrand::u64(..).to_string();
    let set = format!("SET ganger.session = '{mark}'");
    one.batch_execute(&set).await?;
    other.begin().await?;
    let theirs: Option<String> = other.query_one(SEEN, &[]).await?.try_get(0)?;
    if theirs.as_ref() == Some(&mark) {
        return Ok(true);
    }
    let ours: Option<String> = one.query_one(SEEN, &[]).await?.try_get(0)?;
    Ok(ours != Some(mark))
}
