//! The ledger as a whole.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::context::Context;

/// The ledger of the daemon.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Ledger)]
pub(super) struct LedgerJson {
    /// Its source.
    source: String,
    /// Reason for which all schedules are paused, if they are.
    pub(super) hold: Option<String>,
}

/// Get the ledger: its source, and the reason for which all schedules are paused, if they are. The status has the
/// number of schedules in each state.
#[utoipa::path(get, path = "/v1/ledger", tag = "schedules", responses(
    (status = 200, description = "The ledger", body = LedgerJson),
    (status = 409, description = "The daemon has no ledger", body = Problem),
    (status = 503, description = "The ledger can't be used now", body = Problem),
))]
pub(super) async fn ledger(State(context): State<Context>) -> Result<Json<LedgerJson>, Problem> {
    let source = context.ledger.config()?.source;
    let hold = context.ledger.with(|ledger| ledger.hold()).await?;
    Ok(Json(LedgerJson { source, hold }))
}
