//! Alerts by webhook: each problem is reported to the user's servers once, and once more when it is resolved.
//! Runs on a thread of its own with a runtime of its own, which reads the pools' status: no webhook, however
//! slow, affects a pool.
//!
//! ```text
//! pools ─▶ findings (what is wrong now) ─▶ judge (what has lasted) ─▶ told (what is news) ─▶ webhook
//! ```

mod alert;
mod delivery_state;
mod findings;
mod forms;
mod judge;
mod message;
mod notice;
mod rates;
mod sending;
mod trial;
mod webhook;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use futures_util::future::{join_all, select_all};
use tokio::runtime;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use alert::{Alert, AlertKey, AlertKind, Ended};
use findings::Snapshot;
use ganger_config::model::{AlertsConfig, Config};
use ganger_core::heartbeat::Heartbeat;
use ganger_pool::overview::{
    ActiveAlert, AlertsStatus, DaemonState, Overview, SilencedStatus, WebhookStatus,
};
use jiff::Timestamp;
use judge::{Changes, Judge};
use sending::Sending;
pub use trial::send_test;

use crate::silences::{Silence, Silences, covering};

/// Interval of looks at the daemon. Pools show changes after a tenth of a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time for which the end of the program waits for the webhook to take the last messages.
const LAST_MESSAGES_WITHIN: Duration = Duration::from_secs(3);

/// Maximum number of blocking lookups of names and files, each on a thread.
const BLOCKING_THREADS_MAX: usize = 2;

/// Running configuration, as it changes.
type Configs = watch::Receiver<Arc<Config>>;

/// The alerts. On drop, waits a moment until everything is sent.
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
                "the webhook did not accept the last alerts within {LAST_MESSAGES_WITHIN:?}"
            );
        }
    }
}

/// Starts to watch the daemon, and to send alerts to the webhook of its configuration, if it has one.
///
/// # Errors
/// If the operating system gives no thread.
pub fn start(overview: Overview, silences: Silences) -> io::Result<Alerts> {
    let (closing, closed) = watch::channel(false);
    let (end, ended) = mpsc::sync_channel(1);
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()?;
    let run = move || {
        let heart = Heartbeat::of_this_thread().on(runtime.handle());
        runtime.block_on(watch_and_send(&overview, &silences, closed));
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

/// Watches and sends until it is closed.
async fn watch_and_send(
    overview: &Overview,
    silences: &Silences,
    mut closed: watch::Receiver<bool>,
) {
    let mut config = overview.watch_config();
    loop {
        let alerts = config.borrow_and_update().alerts.clone();
        let is_over = match alerts {
            Some(alerts) => {
                Watch::new(overview, silences, alerts)
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

/// The watch of a configuration, until it names another webhook or none.
struct Watch<'a> {
    overview: &'a Overview,
    silences: &'a Silences,
    /// The silences at the last look.
    silenced: Vec<Silence>,
    rules: AlertsConfig,
    judge: Judge,
    /// Sending to each webhook.
    sendings: Vec<Sending>,
}

impl<'a> Watch<'a> {
    fn new(overview: &'a Overview, silences: &'a Silences, rules: AlertsConfig) -> Self {
        let webhooks = rules.webhooks.iter();
        Self {
            overview,
            silences,
            silenced: Vec::new(),
            judge: Judge::default(),
            sendings: webhooks
                .map(|webhook| Sending::new(webhook, rules.repeat))
                .collect(),
            rules,
        }
    }

    /// Runs until the alerts are closed or no longer configured. Returns whether they are closed.
    async fn run(mut self, config: &mut Configs, closed: &mut watch::Receiver<bool>) -> bool {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let config_now = self.overview.config();
            let links = config_now.admin.public_url.as_ref();
            let links = links.filter(|_| config_now.admin.ui);
            for sending in &mut self.sendings {
                sending.links_begin_with(links);
                sending.begin_next(Instant::now());
            }
            self.overview.set_alerts(Some(self.status()));
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => {
                    self.end(Ended::DaemonStops);
                    join_all(self.sendings.iter_mut().map(Sending::finish)).await;
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
                () = progress(&mut self.sendings) => {}
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
        let webhooks = self.webhooks();
        let ledger = self.overview.ledger();
        let snapshot = Snapshot {
            ledger: ledger.as_ref(),
            pools: &pools,
            reload: &self.overview.reload(),
            webhooks: &webhooks,
            at,
        };
        let changes = self.judge.look(now, snapshot, &self.rules);
        self.log(&changes);
        self.silenced = self.silences.list(Timestamp::now());
        let is_silenced =
            |(kind, of): &AlertKey| covering(&self.silenced, kind.as_str(), of).is_some();
        for sending in &mut self.sendings {
            sending.see(&self.judge, &changes, at, is_silenced);
        }
    }

    fn webhooks(&self) -> Vec<WebhookStatus> {
        let sendings = self.sendings.iter();
        sendings.map(|sending| sending.status().clone()).collect()
    }

    /// Returns the status of all webhooks together.
    fn status(&self) -> AlertsStatus {
        let webhooks = self.webhooks();
        let kinds = AlertKind::all().map(|kind| (kind.as_str().to_owned(), 0));
        let mut firing: BTreeMap<String, u64> = kinds.collect();
        for ((kind, _), _) in self.judge.firing() {
            *firing.entry(kind.as_str().to_owned()).or_default() += 1;
        }
        let active = self.judge.firing().map(|((kind, of), alert)| ActiveAlert {
            silenced: covering(&self.silenced, kind.as_str(), of).map(shown_silence),
            ..shown(alert)
        });
        AlertsStatus {
            webhook: webhooks
                .first()
                .map_or_else(String::new, |one| one.place.clone()),
            problem: webhooks.iter().find_map(|one| one.problem.clone()),
            firing,
            active: active.collect(),
            sent: webhooks.iter().map(|one| one.sent).sum(),
            failed: webhooks.iter().map(|one| one.failed).sum(),
            webhooks,
        }
    }

    fn log(&self, changes: &Changes) {
        for (key, alert) in self.judge.firing() {
            if changes.fired.contains(key) {
                let finding = &alert.finding;
                tracing::warn!(
                    alert = finding.kind.as_str(),
                    of = finding.subject,
                    summary = finding.summary,
                    run = finding.command,
                    "alert"
                );
            }
        }
        for ((kind, subject), why) in &changes.ended {
            tracing::info!(
                alert = kind.as_str(),
                of = subject,
                why = why.as_str(),
                "alert resolved"
            );
        }
    }

    fn end(&mut self, why: Ended) {
        let changes = self.judge.end(why);
        self.log(&changes);
        for sending in &mut self.sendings {
            sending.end_all(why, SystemTime::now());
        }
    }

    /// Applies other rules. A new webhook is told of all current alerts.
    fn follow(&mut self, rules: AlertsConfig) {
        let mut old = std::mem::take(&mut self.sendings);
        for webhook in &rules.webhooks {
            let same = old
                .iter_mut()
                .position(|sending| sending.adopts(webhook, rules.repeat));
            let sending = match same {
                Some(at) => old.remove(at),
                None => Sending::new(webhook, rules.repeat),
            };
            self.sendings.push(sending);
        }
        for sending in old {
            sending.leave(Ended::Unwatched);
        }
        self.rules = rules;
    }

    /// Stops sending to the webhooks.
    fn leave(mut self) {
        self.end(Ended::Unwatched);
        self.overview.set_alerts(None);
        tracing::info!("alerts are no longer sent");
        for sending in self.sendings {
            sending.leave(Ended::Unwatched);
        }
    }
}

/// Waits until the result of a message to one of them is known. Cancel-safe.
async fn progress(sendings: &mut [Sending]) {
    let each = sendings.iter_mut();
    let each = each.map(|sending| Box::pin(sending.progress()));
    select_all(each).await;
}

/// Returns an alert as the daemon's status has it.
fn shown(Alert { finding, since }: &Alert) -> ActiveAlert {
    ActiveAlert {
        kind: finding.kind.as_str().to_owned(),
        severity: finding.kind.severity().as_str().to_owned(),
        of: finding.subject.clone(),
        pool: finding.pool.clone(),
        summary: finding.summary.clone(),
        command: finding.command.clone(),
        since: *since,
        silenced: None,
    }
}

/// Returns a silence as the daemon's status has it.
fn shown_silence(silence: &Silence) -> SilencedStatus {
    SilencedStatus {
        id: silence.id.clone(),
        until: silence.until.clone(),
        by: silence.by.clone(),
        reason: silence.reason.clone(),
    }
}

/// Returns the names of all kinds.
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    AlertKind::all().map(AlertKind::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_config::model::{AlertForm, Secret, WebhookConfig};
    use ganger_pool::request::ReloadStatus;
    use ganger_pool::status::{PoolState, PoolStatus};

    /// A pool on the source `main`, in this state.
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

    /// The default rules.
    pub(super) fn rules() -> AlertsConfig {
        AlertsConfig {
            webhooks: vec![webhook()],
            dead_letters: Some(10),
            crashes: Some(5),
            waiting: Some(Duration::from_secs(3600)),
            window: Duration::from_secs(60),
            paused: Some(Duration::from_secs(3600)),
            hold: Duration::from_secs(30),
            repeat: None,
        }
    }

    /// A webhook at which nothing listens.
    pub(super) fn webhook() -> WebhookConfig {
        WebhookConfig {
            name: "ops".to_owned(),
            webhook: Secret::new("http://127.0.0.1:1/"),
            form: AlertForm::Json,
            headers: BTreeMap::new(),
            signing_secret: None,
            integration_key: None,
            ca_file: None,
            timeout: Duration::from_secs(10),
        }
    }

    /// A look at these pools without any other problem.
    pub(super) fn snapshot<'a>(
        pools: &'a [Arc<PoolStatus>],
        reload: &'a ReloadStatus,
    ) -> Snapshot<'a> {
        Snapshot {
            pools,
            reload,
            ledger: None,
            webhooks: &[],
            at: SystemTime::UNIX_EPOCH,
        }
    }
}
