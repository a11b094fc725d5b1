//! Test of the webhooks: a message of a problem that does not exist, and its end.

use std::time::SystemTime;

use futures_util::future::join_all;
use tokio::runtime;

use super::alert::{Alert, AlertKind, Ended, Finding};
use super::delivery_state::{End, Message};
use super::message::{body, name};
use super::notice::Sender;
use super::webhook::{PostResult, Webhook};
use ganger_config::model::{AlertsConfig, WebhookConfig};

/// Sends both messages to each webhook and waits until they are taken.
///
/// # Errors
/// The reasons, with the name of each webhook that has not taken them.
pub fn send_test(config: &AlertsConfig) -> Result<(), String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let all = config.webhooks.iter().map(|webhook| async move {
        let sent = send_both(webhook).await;
        sent.map_err(|why| format!("{}: {why}", webhook.name))
    });
    let sent = runtime.block_on(join_all(all));
    // A name that is being looked up holds up nobody.
    runtime.shutdown_background();
    let wrong: Vec<String> = sent.into_iter().filter_map(Result::err).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("; ")),
    }
}

async fn send_both(config: &WebhookConfig) -> Result<(), String> {
    let webhook = Webhook::new(config)?;
    let sender = Sender::this();
    let since = SystemTime::now();
    for why in [None, Some(Ended::Over)] {
        let at = SystemTime::now();
        let message = Message {
            alert: Alert {
                finding: test(),
                since,
            },
            end: why.map(|why| End { why, at }),
        };
        let body = body(&message, config, &sender, at);
        match webhook.post(&name(&message, &sender), body).await {
            PostResult::Taken => {}
            PostResult::Refused(why) | PostResult::Failed { why, .. } => return Err(why),
        }
    }
    Ok(())
}

fn test() -> Finding {
    Finding {
        kind: AlertKind::Test,
        subject: "test".into(),
        pool: None,
        source: Some("test".into()),
        queue: None,
        summary: "this is a test of ganger's alerts: nothing is wrong".into(),
        details: serde_json::Map::new(),
        error: None,
        stderr: Vec::new(),
        command: "ganger status".into(),
    }
}
