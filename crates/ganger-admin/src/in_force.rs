//! The configuration in force, and its differences from the one on disk.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::context::{Context, on_disk};
use ganger_config as config;
use ganger_config::changed::ChangedKeys;

/// The configuration in force.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct ConfigInForce {
    /// Keys by dotted name, such as `pools.email.workers`, each with its value as TOML. A secret is shown as the
    /// environment variable of its name.
    pub(super) settings: BTreeMap<String, String>,
    /// Keys in which the files differ from it: what a reload would change. None if the files are invalid.
    pub(super) differences: Option<ChangedKeys>,
    /// Problems for which a reload would be refused, a sentence each.
    pub(super) problems: Vec<String>,
}

/// Get the configuration in force, with its differences from the files, which are read anew.
#[utoipa::path(get, path = "/v1/config", tag = "daemon", operation_id = "show_config", responses(
    (status = 200, description = "The configuration in force", body = ConfigInForce),
))]
pub(super) async fn in_force(
    State(context): State<Context>,
) -> Result<Json<ConfigInForce>, Problem> {
    let read = context.daemon.read.clone();
    let read = on_disk(move || read()).await?;
    let config = context.daemon.overview.config();
    let (differences, problems) = match read {
        Ok(new) => (Some(ChangedKeys::between(&config, &new)), Vec::new()),
        Err(problems) => {
            let each = problems.messages().iter().map(config::Problem::one_line);
            (None, each.collect())
        }
    };
    Ok(Json(ConfigInForce {
        settings: config.effective.clone(),
        differences,
        problems,
    }))
}
