//! Alerts by webhook: what is wrong is told to a server of the user's, once, and once more when it is
//! over. On a thread of its own with a runtime of its own, which reads what the pools show of
//! themselves: no webhook, however slow, is felt by a pool.
//!
//! ```text
//! pools ─▶ findings (what is wrong now) ─▶ judge (what has lasted) ─▶ told (what is news) ─▶ webhook
//! ```

mod alert;
mod findings;
mod judge;
mod message;
mod rates;
mod sending;
mod told;
mod trial;
mod webhook;

use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use tokio::runtime;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::config::model::{AlertsConfig, Config};
use crate::heartbeat::Heart;
use crate::status::{DaemonState, Overview};
use alert::Ended;
use judge::{Changes, Judge};
use sending::Sending;
pub use trial::try_out;

/// How often it is looked. Pools show changes after a tenth of a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the end of the program waits for the webhook to take what is left.
const LAST_MESSAGES_WITHIN: Duration = Duration::from_secs(3);

/// Lookups of names and files that may wait at once, each on a thread.
const BLOCKING_THREADS_MAX: usize = 2;

/// What the daemon runs, as it changes.
type Configs = watch::Receiver<Arc<Config>>;

/// The alerts. Dropped, they wait a moment until all is told.
#[derive(Debug)]
#[must_use]
pub struct Alerts {
    closing: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
}

impl Drop for Alerts {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        if self.ended.recv_timeout(LAST_MESSAGES_WITHIN) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(
                "the webhook has not taken the last alerts within {LAST_MESSAGES_WITHIN:?}"
            );
        }
    }
}

/// Begins to look at the daemon, and tells the webhook that its configuration names, if it does.
///
/// # Errors
/// If the operating system gives no thread.
pub fn start(overview: Overview) -> io::Result<Alerts> {
    let (closing, closed) = watch::channel(false);
    let (end, ended) = mpsc::sync_channel(1);
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()?;
    let run = move || {
        let heart = Heart::of_this_thread().on(runtime.handle());
        runtime.block_on(watch_and_tell(&overview, closed));
        drop(heart);
        // Nobody may wait for it.
        end.send(()).unwrap_or_default();
        // A name that is being looked up holds up nobody.
        runtime.shutdown_background();
    };
    std::thread::Builder::new()
        .name("alerts".into())
        .spawn(run)?;
    Ok(Alerts { closing, ended })
}

/// Does so until it is closed.
async fn watch_and_tell(overview: &Overview, mut closed: watch::Receiver<bool>) {
    let mut config = overview.watch_config();
    loop {
        let alerts = config.borrow_and_update().alerts.clone();
        let is_over = match alerts {
            Some(alerts) => {
                Watch::new(overview, alerts)
                    .run(&mut config, &mut closed)
                    .await
            }
            None => tokio::select! {
                biased;
                // Nobody to tell it is the end as well.
                _ = closed.wait_for(|closed| *closed) => true,
                changed = config.changed() => changed.is_err(),
            },
        };
        if is_over {
            return;
        }
    }
}

/// The watch that a configuration asks for, until it names another webhook or none.
struct Watch<'a> {
    overview: &'a Overview,
    rules: AlertsConfig,
    judge: Judge,
    sending: Sending,
}

impl<'a> Watch<'a> {
    fn new(overview: &'a Overview, rules: AlertsConfig) -> Self {
        Self {
            overview,
            judge: Judge::default(),
            sending: Sending::new(&rules),
            rules,
        }
    }

    /// Returns whether all is over.
    async fn run(mut self, config: &mut Configs, closed: &mut watch::Receiver<bool>) -> bool {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.sending.begin_next(Instant::now());
            let status = self.sending.status(&self.judge);
            self.overview.set_alerts(Some(status));
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => {
                    self.end(Ended::DaemonStops);
                    self.sending.finish().await;
                    return true;
                }
                changed = config.changed() => {
                    let alerts = config.borrow_and_update().alerts.clone();
                    match alerts {
                        _ if changed.is_err() => return true,
                        Some(rules) => self.follow(rules),
                        None => {
                            self.leave();
                            return false;
                        }
                    }
                }
                () = self.sending.progress() => {}
                _ = ticks.tick() => self.look(),
            }
        }
    }

    fn look(&mut self) {
        if self.overview.state() == DaemonState::Stopping {
            // That pools go is no news then, and nobody looks any more at what they were told of.
            return self.end(Ended::DaemonStops);
        }
        let (now, at) = (Instant::now(), SystemTime::now());
        let pools = self.overview.registry().pools();
        let changes = self.judge.look(now, at, &pools, &self.rules);
        self.log(&changes);
        self.sending.see(&self.judge, &changes, at);
    }

    fn log(&self, changes: &Changes) {
        for (key, alert) in self.judge.firing() {
            if changes.fired.contains(key) {
                let finding = &alert.finding;
                tracing::warn!(
                    alert = finding.kind.as_str(),
                    of = finding.subject(),
                    summary = finding.summary,
                    "alert"
                );
            }
        }
        for ((kind, subject), why) in &changes.ended {
            tracing::info!(
                alert = kind.as_str(),
                of = subject,
                why = why.as_str(),
                "the alert is over"
            );
        }
    }

    fn end(&mut self, why: Ended) {
        let changes = self.judge.end(why);
        self.log(&changes);
        self.sending.end_all(why, SystemTime::now());
    }

    /// Other rules. Another webhook is told anew of what there is.
    fn follow(&mut self, rules: AlertsConfig) {
        if !self.sending.adopts(&rules) {
            let old = std::mem::replace(&mut self.sending, Sending::new(&rules));
            old.leave(Ended::Unwatched);
        }
        self.rules = rules;
    }

    /// Nobody is to be told any more.
    fn leave(mut self) {
        self.end(Ended::Unwatched);
        self.overview.set_alerts(None);
        tracing::info!("no alerts are sent any more");
        self.sending.leave(Ended::Unwatched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::{AlertForm, Secret};
    use crate::pool::status::{PoolState, PoolStatus};

    /// A pool on the source `main`, as it stands.
    pub(super) fn pool(name: &str, state: PoolState) -> PoolStatus {
        PoolStatus {
            name: name.into(),
            source: "main".into(),
            queue: "work".into(),
            source_connected: true,
            state,
            ..PoolStatus::default()
        }
    }

    /// The defaults.
    pub(super) fn rules() -> AlertsConfig {
        AlertsConfig {
            webhook: Secret::new("http://127.0.0.1:1/"),
            form: AlertForm::Json,
            ca_file: None,
            dead_letters: Some(10),
            crashes: Some(5),
            waiting: Some(Duration::from_secs(3600)),
            window: Duration::from_secs(60),
            hold: Duration::from_secs(30),
            repeat: None,
            timeout: Duration::from_secs(10),
        }
    }
}
