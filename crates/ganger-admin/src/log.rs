//! Log levels, for all and for single pools, changed while the daemon runs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use super::answer::Problem;
use super::body::JsonBody;
use super::context::Context;
use super::pools::unknown;
use ganger_telemetry::{LevelError, LogLevels};

/// The log level to set.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetLevel {
    /// A level or a filter, such as `debug` or `info,ganger_pool=debug`; for a pool a level. `null` restores
    /// the configured one.
    #[serde(deserialize_with = "given")]
    level: Option<String>,
    /// Only records of this pool's threads.
    #[serde(default)]
    pool: Option<String>,
}

/// Reads a field that must be present, though it may be null.
fn given<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(d)
}

/// Get the log levels.
#[utoipa::path(get, path = "/v1/log-level", tag = "daemon", responses(
    (status = 200, description = "The filter for all, and pools with a level of their own", body = LogLevels),
))]
pub(super) async fn levels() -> Json<LogLevels> {
    Json(ganger_telemetry::levels())
}

/// Set the log level, for all or for one pool. It holds until it is reset, until a reload brings another
/// `daemon.log_level` (not for pools), or until the daemon ends.
#[utoipa::path(post, path = "/v1/log-level", tag = "daemon", request_body = SetLevel, responses(
    (status = 200, description = "The current levels", body = LogLevels),
    (status = 404, description = "Unknown pool", body = Problem),
    (status = 422, description = "Invalid level", body = Problem),
))]
pub(super) async fn set_level(
    State(context): State<Context>,
    JsonBody(SetLevel { level, pool }): JsonBody<SetLevel>,
) -> Result<Json<LogLevels>, Problem> {
    let config = context.daemon.overview.config();
    let set = match &pool {
        None => ganger_telemetry::set_level(level.as_deref().unwrap_or(&config.daemon.log_level)),
        Some(name) => {
            let known: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
            // One that is gone may be taken back.
            if level.is_some() && !known.contains(&name.as_str()) {
                return Err(unknown(name, &known));
            }
            ganger_telemetry::set_pool_level(name, level.as_deref())
        }
    };
    set.map_err(|error| {
        let status = match error {
            LevelError::Filter(_) | LevelError::Level(_) => StatusCode::UNPROCESSABLE_ENTITY,
            LevelError::NoLog => StatusCode::CONFLICT,
        };
        Problem::new(status, error.to_string())
    })?;
    tracing::info!(pool, level, "log level changed by an operator");
    Ok(Json(ganger_telemetry::levels()))
}
