//! Requests that the screen can send to a daemon: plain data, and their wording.

use std::fmt;

use serde_json::{Value, json};

use super::super::remote::pool_path;

/// An action on a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deed {
    pub(super) pool: String,
    pub(super) what: What,
}

/// Kind of action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
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

impl Deed {
    /// Returns the API path of the request.
    pub(super) fn path(&self) -> String {
        let verb = match &self.what {
            What::Pause => "pause",
            What::Resume => "resume",
            What::Drain => "drain",
            What::Restart => "restart",
            What::Scale(_) => "scale",
            What::Kill { slot, .. } => &format!("workers/{slot}/kill"),
            What::Cancel { .. } => "cancel",
        };
        pool_path(&self.pool, verb)
    }

    /// Returns the body of the request.
    pub(super) fn body(&self) -> Option<Value> {
        match &self.what {
            What::Scale(workers) => Some(json!({ "workers": workers })),
            What::Cancel { id } => Some(json!({ "id": id })),
            What::Pause | What::Resume | What::Drain | What::Restart | What::Kill { .. } => None,
        }
    }
}

/// Formatted as a command: `pause email`.
impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = &self.pool;
        match &self.what {
            What::Pause => write!(f, "pause `{pool}`: stop its intake, keep its workers"),
            What::Resume => write!(f, "resume `{pool}`"),
            What::Drain => write!(f, "drain `{pool}`: stop its intake, then its workers"),
            What::Restart => write!(f, "restart the workers of `{pool}`, one by one"),
            What::Scale(Some(workers)) => write!(f, "scale `{pool}` to {workers} worker(s)"),
            What::Scale(None) => write!(f, "scale `{pool}` to the configured number"),
            What::Cancel { id } => write!(f, "cancel message `{id}` of `{pool}`"),
            What::Kill {
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
                    held => write!(f, "; {held} message(s) in hand are redelivered"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deed_is_a_request() {
        let kill = What::Kill {
            slot: 3,
            pid: Some(77),
            in_flight: 2,
        };
        let cancel = What::Cancel {
            id: "order 7".to_owned(),
        };
        let table = [
            (What::Pause, "pause", Value::Null),
            (What::Resume, "resume", Value::Null),
            (What::Drain, "drain", Value::Null),
            (What::Restart, "restart", Value::Null),
            (What::Scale(Some(5)), "scale", json!({ "workers": 5 })),
            (What::Scale(None), "scale", json!({ "workers": null })),
            (kill, "workers/3/kill", Value::Null),
            (cancel, "cancel", json!({ "id": "order 7" })),
        ];
        for (what, verb, body) in table {
            let pool = "e mail".to_owned();
            let deed = Deed { pool, what };
            assert_eq!(deed.path(), format!("/v1/pools/e%20mail/{verb}"));
            assert_eq!(deed.body().unwrap_or_default(), body, "{deed}");
        }
    }
}
