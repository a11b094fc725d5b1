//! Sample statuses for the tests of their displays.

use std::time::{Duration, SystemTime};

use ganger_pool::overview::{DaemonState, Status};
use ganger_pool::request::ReloadStatus;
use ganger_pool::status::PoolStatus;

/// Time at which a sample's daemon has been up for `uptime`.
pub(super) fn at(uptime: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(24) + uptime
}

/// Status of a running daemon that has been up for `uptime`.
pub(super) fn status(uptime: Duration, pools: Vec<PoolStatus>) -> Status {
    Status {
        version: "0.1.0".to_owned(),
        pid: 4711,
        state: DaemonState::Running,
        started_at: at(Duration::ZERO),
        uptime_seconds: uptime.as_secs_f64(),
        log_records_dropped: 0,
        log_records_left_out: 0,
        buffered_bytes: 12 << 20,
        buffered_bytes_max: 2 << 30,
        wait_for_memory: Vec::new(),
        reload: ReloadStatus::default(),
        alerts: None,
        unread_queues: Vec::new(),
        ledger: None,
        pools,
    }
}
