//! The webhook: one POST, and the meaning of its answer. Of its URL only host and port are shown: anybody who
//! knows the URL may send to it.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use jiff::fmt::rfc2822;
use percent_encoding::percent_decode_str;
use ring::{digest, hmac};
use tokio::time::timeout;

use ganger_config::model::{Secret, WebhookConfig};
use ganger_https::{Https, Trust, chain, shown};

/// Maximum wait that an answer may ask for.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Result of a POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PostResult {
    /// The message was taken.
    Taken,
    /// The message is permanently rejected.
    Refused(String),
    /// The message may be taken another time.
    Failed {
        /// The cause.
        why: String,
        /// True if the server has received nothing of it.
        is_unseen: bool,
        /// Time that the server asks us to wait.
        wait: Option<Duration>,
    },
}

/// A webhook.
#[derive(Debug, Clone)]
pub(super) struct Webhook {
    client: Https,
    uri: String,
    headers: HeaderMap,
    /// Key that each request is signed with.
    signature: Option<hmac::Key>,
    timeout: Duration,
}

impl Webhook {
    /// Reads the files that it needs; connects on first use.
    pub(super) fn new(config: &WebhookConfig) -> Result<Self, String> {
        let given = config.webhook.expose();
        let mut url = url::Url::parse(given).map_err(|error| error.to_string())?;
        let headers = headers(config, &url)?;
        // They are in the header. A URL with a host takes their removal.
        let _removed = (url.set_username(""), url.set_password(None));
        url.set_fragment(None);
        let trust = Trust {
            ca_file: config.ca_file.as_deref(),
            identity: None,
        };
        let client = Https::new(url.as_str(), trust, config.timeout);
        Ok(Self {
            client: client.map_err(|error| error.to_string())?,
            uri: url.into(),
            headers,
            signature: config.signing_secret.as_ref().map(signing_key),
            timeout: config.timeout,
        })
    }

    /// Sends a message within the timeout. `name` tells messages apart.
    pub(super) async fn post(&self, name: &str, body: Vec<u8>) -> PostResult {
        let mut request = Request::post(&self.uri);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
        }
        if let Some(key) = &self.signature {
            let (id, at) = (message_id(name), unix_seconds(SystemTime::now()));
            request = request
                .header("webhook-id", &id)
                .header("webhook-timestamp", at)
                .header("webhook-signature", signature(key, &id, at, &body));
        }
        let request = match request.body(Bytes::from(body)) {
            Ok(request) => request,
            Err(error) => return PostResult::Refused(error.to_string()),
        };
        let failed = |why, is_unseen| PostResult::Failed {
            why,
            is_unseen,
            wait: None,
        };
        match timeout(self.timeout, self.client.ask(request)).await {
            Ok(Ok(answer)) => meaning(&answer, SystemTime::now()),
            Ok(Err(error)) => failed(chain(&error), error.is_unsent()),
            Err(_) => failed(
                format!("it did not answer within {:?}", self.timeout),
                false,
            ),
        }
    }
}

/// Returns the address of the webhook, as far as it may be shown.
pub(super) fn place(config: &WebhookConfig) -> String {
    shown(config.webhook.expose())
}

/// Returns the headers of each request.
fn headers(config: &WebhookConfig, url: &url::Url) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    let agent = concat!("ganger/", env!("CARGO_PKG_VERSION"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
    headers.extend(basic(url).map(|value| (header::AUTHORIZATION, value)));
    for (name, value) in &config.headers {
        let wrong = |error: &dyn std::error::Error| format!("header `{name}`: {error}");
        let key = HeaderName::try_from(name).map_err(|error| wrong(&error))?;
        let mut value = HeaderValue::try_from(value.expose()).map_err(|error| wrong(&error))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

/// Returns the key in a secret in the format of Standard Webhooks; the configuration has validated it.
fn signing_key(secret: &Secret) -> hmac::Key {
    let text = secret.expose();
    let bytes = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text));
    hmac::Key::new(hmac::HMAC_SHA256, &bytes.unwrap_or_default())
}

/// Returns the id of the message of that name, without dots: id, time and body are signed with dots between.
fn message_id(name: &str) -> String {
    let digest = digest::digest(&digest::SHA256, name.as_bytes());
    format!("msg_{}", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..18]))
}

fn unix_seconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Returns the signature of Standard Webhooks, version 1.
fn signature(key: &hmac::Key, id: &str, at: u64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(format!("{id}.{at}.").as_bytes());
    context.update(body);
    format!("v1,{}", STANDARD.encode(context.sign()))
}

fn basic(url: &url::Url) -> Option<HeaderValue> {
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (user, password) = (url.username(), url.password().unwrap_or_default());
    if user.is_empty() && password.is_empty() {
        return None;
    }
    let pair = STANDARD.encode(format!("{}:{}", decoded(user), decoded(password)));
    let mut value = HeaderValue::try_from(format!("Basic {pair}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Evaluates an answer. A redirect is not followed: the secret is for that host alone.
fn meaning(answer: &Response<Bytes>, now: SystemTime) -> PostResult {
    let status = answer.status();
    let why = format!("it answered {status}");
    match status {
        _ if status.is_success() => PostResult::Taken,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => PostResult::Failed {
            why,
            is_unseen: status == StatusCode::TOO_MANY_REQUESTS,
            wait: retry_after(answer.headers(), now),
        },
        _ if status.is_client_error() => PostResult::Refused(why),
        _ if status.is_redirection() => {
            PostResult::Refused(format!("{why}: redirects are not followed"))
        }
        _ => PostResult::Failed {
            why,
            is_unseen: false,
            wait: retry_after(answer.headers(), now),
        },
    }
}

/// Returns the time of `Retry-After`, in seconds or as an HTTP date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let moment = SystemTime::from(rfc2822::parse(text).ok()?.timestamp());
            moment.duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_is_taken_refused_or_tried_again() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let table = [
            (200, "", "taken"),
            (204, "", "taken"),
            (302, "", "refused"),
            (400, "", "refused"),
            (404, "7", "refused"),
            (408, "", "again"),
            (410, "", "refused"),
            (429, "7", "again unseen after 7s"),
            (
                429,
                "Sun, 06 Nov 1994 08:50:07 GMT",
                "again unseen after 30s",
            ),
            (
                429,
                "Sun, 06 Nov 1994 08:00:00 GMT",
                "again unseen after 0ns",
            ),
            (429, "soon", "again unseen"),
            (429, "99999999", "again unseen after 3600s"),
            (500, "", "again"),
            (503, "120", "again after 120s"),
        ];
        for (status, after, expected) in table {
            let mut answer = Response::builder().status(status);
            if !after.is_empty() {
                answer = answer.header("retry-after", after);
            }
            let told = match meaning(&answer.body(Bytes::new()).unwrap(), now) {
                PostResult::Taken => "taken".to_owned(),
                PostResult::Refused(_) => "refused".to_owned(),
                PostResult::Failed {
                    is_unseen, wait, ..
                } => {
                    let unseen = if is_unseen { " unseen" } else { "" };
                    let after = wait.map_or_else(String::new, |wait| format!(" after {wait:?}"));
                    format!("again{unseen}{after}")
                }
            };
            assert_eq!(told, expected, "{status} {after}");
        }
    }

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn a_message_is_signed_as_the_specification_has_it() {
        let key = signing_key(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let (one, other) = (message_id("host.example/a"), message_id("host.example/b"));
        assert!(one != other && !one.contains('.'), "{one}");
        assert_eq!(one, message_id("host.example/a"));
    }

    #[test]
    fn headers_are_sent_and_not_shown() {
        let config = WebhookConfig {
            headers: [("authorization".to_owned(), Secret::new("Bearer s3cret"))].into(),
            ..super::super::tests::webhook()
        };
        let url = url::Url::parse("https://who:p@host/x").unwrap();
        let headers = headers(&config, &url).unwrap();
        let all: Vec<_> = headers.get_all(header::AUTHORIZATION).iter().collect();
        assert_eq!(all, ["Bearer s3cret"], "instead of the URL's");
        assert!(!format!("{headers:?}").contains("s3cret"), "{headers:?}");
    }

    #[test]
    fn a_password_goes_into_a_header_and_is_not_shown() {
        let of = |url: &str| basic(&url::Url::parse(url).unwrap());
        let value = of("https://who:p%40ss@host/x").unwrap();
        assert_eq!(value.to_str().unwrap(), "Basic d2hvOnBAc3M=");
        assert_eq!(format!("{value:?}"), "Sensitive");
        assert_eq!(of("https://host/x"), None);
        let config = WebhookConfig {
            webhook: Secret::new("https://who:p%40ss@host/T0/s3cret?x=y"),
            ..super::super::tests::webhook()
        };
        assert_eq!(place(&config), "host:443");
    }
}
