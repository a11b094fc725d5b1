//! Sends messages to a webhook, one after the other, with retries until it takes them, and logs when the
//! webhook fails and recovers, once each time.

use std::future::pending;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::alert::{AlertKey, AlertKind, Ended};
use super::delivery_state::{DeliveryState, SendResult};
use super::forms::KEPT_ALIVE_EVERY;
use super::judge::{Changes, Judge};
use super::message::{body, name};
use super::notice::Sender;
use super::webhook::{PostResult, Webhook, place};
use ganger_config::model::{AlertForm, PublicUrl, WebhookConfig};
use ganger_core::backoff::Backoff;
use ganger_core::threads::or_refused;
use ganger_pool::overview::WebhookStatus;

/// Pauses between attempts.
const AGAIN: Backoff = Backoff {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_secs(60),
    jitter: 0.2,
};

/// Time for the last messages to a webhook that is removed.
const FAREWELL_WITHIN: Duration = Duration::from_secs(30);

type PendingPost = Pin<Box<dyn Future<Output = (Option<Webhook>, PostResult)> + Send>>;

/// A webhook, its known state and the message in flight.
pub(super) struct Sending {
    config: WebhookConfig,
    repeat: Option<Duration>,
    sender: Sender,
    delivery: DeliveryState,
    /// None before it is needed, or while one of its files can't be read.
    webhook: Option<Webhook>,
    /// True if the message in flight uses outdated settings.
    is_outdated: bool,
    on_its_way: Option<PendingPost>,
    /// Number of consecutive failures.
    failures: u32,
    /// Time before which nothing is sent.
    not_before: Option<Instant>,
    status: WebhookStatus,
}

impl Sending {
    /// Returns a sending to the webhook of that configuration, which knows nothing yet.
    pub(super) fn new(config: &WebhookConfig, repeat: Option<Duration>) -> Self {
        let form = config.form.as_str();
        let place = place(config);
        tracing::info!(
            webhook = config.name,
            place,
            form,
            "alerts are sent to the webhook"
        );
        Self {
            config: config.clone(),
            repeat: repeated(config.form, repeat),
            sender: Sender::this(),
            delivery: DeliveryState::default(),
            webhook: None,
            is_outdated: false,
            on_its_way: None,
            failures: 0,
            not_before: None,
            status: WebhookStatus {
                name: config.name.clone(),
                place,
                form: form.to_owned(),
                ..WebhookStatus::default()
            },
        }
    }

    /// Takes another configuration, if messages go by it to the same webhook in the same form.
    pub(super) fn adopts(&mut self, config: &WebhookConfig, repeat: Option<Duration>) -> bool {
        let old = &self.config;
        let is_same = old.webhook == config.webhook
            && old.form == config.form
            && old.integration_key == config.integration_key;
        if is_same {
            if old != config {
                self.webhook = None;
                self.is_outdated = self.on_its_way.is_some();
            }
            self.status.name.clone_from(&config.name);
            self.config = config.clone();
            self.repeat = repeated(config.form, repeat);
        }
        is_same
    }

    /// Takes the current alerts and their changes. The webhook is told neither of its own failure nor of those that are
    /// silenced.
    pub(super) fn see(
        &mut self,
        judge: &Judge,
        changes: &Changes,
        at: SystemTime,
        is_silenced: impl Fn(&AlertKey) -> bool,
    ) {
        let own = (AlertKind::WebhookFailing, self.config.name.clone());
        self.delivery
            .firing(judge.firing().filter(|(key, _)| **key != own));
        self.delivery.silence(is_silenced);
        self.delivery.ended(&changes.ended, at);
    }

    /// Ends all alerts.
    pub(super) fn end_all(&mut self, why: Ended, at: SystemTime) {
        self.delivery.end_all(why, at);
    }

    /// Returns the status of the webhook.
    pub(super) fn status(&self) -> &WebhookStatus {
        &self.status
    }

    /// Sets the URL of the dashboard, with which links begin; none for no links.
    pub(super) fn links_begin_with(&mut self, url: Option<&PublicUrl>) {
        self.sender.url = url.map(ToString::to_string);
    }

    /// Sends the next message, if there is one and it is due.
    pub(super) fn begin_next(&mut self, now: Instant) {
        if self.on_its_way.is_some() || self.not_before.is_some_and(|until| now < until) {
            return;
        }
        let Some(message) = self.delivery.next(now, self.repeat) else {
            return;
        };
        let name = name(&message, &self.sender);
        let body = body(&message, &self.config, &self.sender, SystemTime::now());
        let (webhook, config) = (self.webhook.clone(), self.config.clone());
        self.on_its_way = Some(Box::pin(async move {
            let webhook = match webhook {
                Some(webhook) => Ok(webhook),
                None => opened(config).await,
            };
            match webhook {
                Ok(webhook) => {
                    let posted = webhook.post(&name, body).await;
                    (Some(webhook), posted)
                }
                Err(why) => (None, not_begun(why)),
            }
        }));
    }

    /// Waits for the result of the message in flight; for ever if there is none. Cancel-safe.
    pub(super) async fn progress(&mut self) {
        let Some(posting) = &mut self.on_its_way else {
            return pending().await;
        };
        let (webhook, posted) = posting.as_mut().await;
        self.webhook = webhook.filter(|_| !std::mem::take(&mut self.is_outdated));
        self.on_its_way = None;
        self.handle_result(&posted);
    }

    fn handle_result(&mut self, posted: &PostResult) {
        let now = Instant::now();
        let webhook = &self.status.name;
        let (result, problem) = match posted {
            PostResult::Taken => {
                if self.failures > 0 {
                    tracing::info!(webhook, "the webhook accepts alerts again");
                }
                self.status.sent += 1;
                (SendResult::Done, None)
            }
            PostResult::Refused(why) => {
                tracing::error!(
                    webhook,
                    error = why,
                    "the webhook rejected an alert, which is not sent again"
                );
                (SendResult::Done, Some(why))
            }
            PostResult::Failed { why, is_unseen, .. } => {
                if self.failures == 0 {
                    tracing::warn!(
                        webhook,
                        error = why,
                        "the webhook does not accept alerts: they are sent again until it does"
                    );
                }
                let result = if *is_unseen {
                    SendResult::Unseen
                } else {
                    SendResult::Unclear
                };
                (result, Some(why))
            }
        };
        self.status.failed += u64::from(problem.is_some());
        self.status.problem = problem.cloned();
        self.delivery.handle_result(result, now);
        self.not_before = match posted {
            PostResult::Taken | PostResult::Refused(_) => {
                self.failures = 0;
                None
            }
            PostResult::Failed { wait, .. } => {
                self.failures = self.failures.saturating_add(1);
                let pause = AGAIN.wait(self.failures, fastrand::f64());
                Some(now + wait.unwrap_or_default().max(pause))
            }
        };
    }

    /// Sends the remaining messages, as long as the webhook takes them.
    pub(super) async fn finish(&mut self) {
        loop {
            self.not_before = None;
            self.begin_next(Instant::now());
            if self.on_its_way.is_none() {
                return;
            }
            self.progress().await;
            if self.failures > 0 {
                return;
            }
        }
    }

    /// Ends the sending; the webhook is told only that its alerts have ended.
    pub(super) fn leave(mut self, why: Ended) {
        self.end_all(why, SystemTime::now());
        tokio::spawn(async move {
            // What it has not taken by then it never will.
            drop(timeout(FAREWELL_WITHIN, self.finish()).await);
        });
    }
}

/// Returns the interval at which an ongoing alert is sent again. Alertmanager ends one that is not repeated.
fn repeated(form: AlertForm, repeat: Option<Duration>) -> Option<Duration> {
    match form {
        AlertForm::Alertmanager => {
            Some(repeat.map_or(KEPT_ALIVE_EVERY, |repeat| repeat.min(KEPT_ALIVE_EVERY)))
        }
        AlertForm::Json | AlertForm::Slack | AlertForm::Teams | AlertForm::PagerDuty => repeat,
    }
}

/// Opens the webhook. Its files are read on a thread that may block.
async fn opened(config: WebhookConfig) -> Result<Webhook, String> {
    let within = config.timeout;
    let opening = or_refused(async { spawn_blocking(move || Webhook::new(&config)).await });
    match timeout(within, opening).await {
        Ok(Ok(Ok(webhook))) => webhook,
        Ok(Ok(Err(lost))) => Err(lost.to_string()),
        Ok(Err(refused)) => Err(refused.to_string()),
        Err(_) => Err(format!(
            "its certificates could not be read within {within:?}"
        )),
    }
}

fn not_begun(why: String) -> PostResult {
    PostResult::Failed {
        why,
        is_unseen: true,
        wait: None,
    }
}
