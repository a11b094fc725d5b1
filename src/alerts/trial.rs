//! A trial of the webhook: a message of something that is not, and that it is over.

use std::time::SystemTime;

use tokio::runtime;

use super::alert::{Alert, AlertKind, Ended, Finding};
use super::message::{Sender, body};
use super::told::{End, Message};
use super::webhook::{Posted, Webhook, place};
use crate::config::model::AlertsConfig;

/// Sends both and waits until they are taken.
///
/// # Errors
/// Why they were not, with host and port of the webhook.
pub fn try_out(config: &AlertsConfig) -> Result<(), String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let sent = runtime.block_on(send_both(config));
    // A name that is being looked up holds up nobody.
    runtime.shutdown_background();
    sent.map_err(|why| format!("{}: {why}", place(config)))
}

async fn send_both(config: &AlertsConfig) -> Result<(), String> {
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
        match webhook.post(body(&message, config.form, &sender, at)).await {
            Posted::Taken => {}
            Posted::Refused(why) | Posted::Failed { why, .. } => return Err(why),
        }
    }
    Ok(())
}

fn test() -> Finding {
    Finding {
        kind: AlertKind::Test,
        pool: None,
        source: "test".into(),
        queue: None,
        summary: "this is a test of ganger's alerts: nothing is wrong".into(),
        details: serde_json::Map::new(),
    }
}
