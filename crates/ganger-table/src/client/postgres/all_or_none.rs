//! A command's transaction.

use std::future::Future;

use tokio_postgres::Error;

use crate::postgres::client::Client;

/// All or none.
pub(super) async fn in_a_transaction<T>(
    client: &Client,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    client.begin().await?;
    match work.await {
        Ok(done) => client.commit().await.map(|()| done),
        Err(error) => {
            // If that fails, too, the connection is lost, and the transaction with it.
            drop(client.roll_back().await);
            Err(error)
        }
    }
}
