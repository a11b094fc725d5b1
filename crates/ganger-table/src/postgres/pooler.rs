//! Detection of a pooler in transaction mode. It hands each transaction to any free session, so that
//! nothing that depends on a session works.

use tokio_postgres::Error;

use super::client::Client;
use super::connect::{ConnectTarget, RawConnection};
use super::error::{PostgresError, failed};

/// Mark that a connection has set in its session, if there is one.
const SEEN: &str = "SELECT current_setting('ganger.session', true)";

/// Returns an error if the server is behind such a pooler, unless that is configured.
pub(crate) async fn reject_pooled(
    target: &ConnectTarget,
    raw: &RawConnection,
) -> Result<(), PostgresError> {
    if target.is_pooled {
        return Ok(());
    }
    let other = match target.connect_bare().await {
        Ok(other) => other,
        Err(error) if error.is_transient() => return Ok(()),
        Err(error) => return Err(error),
    };
    let looked = is_pooled_session(&raw.client, &other.client).await;
    match looked.map_err(failed("looking whose the session is"))? {
        false => Ok(()),
        true => Err(PostgresError::Pooled {
            server: target.server.clone(),
        }),
    }
}

/// Returns whether the mark that one connection sets appears in the session of the other, or disappears
/// from its own while the other uses a session.
async fn is_pooled_session(one: &Client, other: &Client) -> Result<bool, Error> {
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
