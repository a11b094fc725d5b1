//! Requests that the screen can send to a daemon: plain data, and their wording.

use std::fmt;

use serde_json::{Value, json};

use super::super::remote::pool_path;

/// An action on a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolAction {
    pub(super) pool: String,
    pub(super) what: ActionKind,
}

/// Kind of action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ActionKind {
    Pause,
    Resume,
    Drain,
    Restart,
    /// Set this number of workers; none for the configured number.
    Scale(Option<usize>),
    /// Kill the worker of that slot, if it is still that process.
    Kill {
        slot: usize,
        pid: Option<u32>,
        in_flight: usize,
    },
    /// Cancel the message of that name.
    Cancel {
        id: String,
    },
}

impl PoolAction {
    /// Returns the API path of the request.
    pub(super) fn path(&self) -> String {
        let verb = match &self.what {
            ActionKind::Pause => "pause",
            ActionKind::Resume => "resume",
            ActionKind::Drain => "drain",
            ActionKind::Restart => "restart",
            ActionKind::Scale(_) => "scale",
            ActionKind::Kill { slot, .. } => &format!("workers/{slot}/kill"),
            ActionKind::Cancel { .. } => "cancel",
        };
        pool_path(&self.pool, verb)
    }

    /// Returns the body of the request.
    pub(super) fn body(&self) -> Option<Value> {
        match &self.what {
            ActionKind::Scale(workers) => Some(json!({ "workers": workers })),
            ActionKind::Cancel { id } => Some(json!({ "id": id })),
            ActionKind::Pause
            | ActionKind::Resume
            | ActionKind::Drain
            | ActionKind::Restart
            | ActionKind::Kill { .. } => None,
        }
    }
}

/// Formatted as a command: `pause email`.
impl fmt::Display for PoolAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = &self.pool;
        match &self.what {
            ActionKind::Pause => write!(f, "pause `{pool}`: stop its intake, keep its workers"),
            ActionKind::Resume => write!(f, "resume `{pool}`"),
            ActionKind::Drain => write!(f, "drain `{pool}`: stop its intake, then its workers"),
            ActionKind::Restart => write!(f, "restart the workers of `{pool}`, one by one"),
            ActionKind::Scale(Some(workers)) => write!(f, "scale `{pool}` to {workers} worker(s)"),
            ActionKind::Scale(None) => write!(f, "scale `{pool}` to the configured number"),
            ActionKind::Cancel { id } => write!(f, "cancel message `{id}` of `{pool}`"),
            ActionKind::Kill {
                slot,
                pid,
                in_flight,
            } => {
                write!(f, "kill worker {slot} of `{pool}`")?;
                if let Some(pid) = pid {
                    write!(f, " (pid {pid})")?;
                }
                match in_flight {
                    0 => Ok(()),
                    held => write!(f, "; redelivers {held} message(s) in hand"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_is_a_request() {
        let kill = ActionKind::Kill {
            slot: 3,
            pid: Some(77),
            in_flight: 2,
        };
        let cancel = ActionKind::Cancel {
            id: "order 7".to_owned(),
        };
        let table = [
            (ActionKind::Pause, "pause", Value::Null),
            (ActionKind::Resume, "resume", Value::Null),
            (ActionKind::Drain, "drain", Value::Null),
            (ActionKind::Restart, "restart", Value::Null),
            (ActionKind::Scale(Some(5)), "scale", json!({ "workers": 5 })),
            (ActionKind::Scale(None), "scale", json!({ "workers": null })),
            (kill, "workers/3/kill", Value::Null),
            (cancel, "cancel", json!({ "id": "order 7" })),
        ];
        for (what, verb, body) in table {
            let pool = "e mail".to_owned();
            let pool_action = PoolAction { pool, what };
            assert_eq!(pool_action.path(), format!("/v1/pools/e%20mail/{verb}"));
            assert_eq!(
                pool_action.body().unwrap_or_default(),
                body,
                "{pool_action}"
            );
        }
    }
}
