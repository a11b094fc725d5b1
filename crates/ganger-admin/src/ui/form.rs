//! Forms: another encoding of requests to the API, for browsers. The form that is sent to `/ui/do/delete/v1/…` is the
//! request `DELETE /v1/…` with its fields as JSON; all else, the guard included, is the same.
//!
//! A field is a text, which is left out if it is empty; one whose name ends with `:int`, `:bool`, `:json` or `:list`
//! (of texts, each a field) is read as that. The fields of the object in the field `:json` are fields of the body. The
//! fields `if-match` and `if-none-match` are the headers of these names. The field `back` is the page to go to if it is
//! done, in which `{name}` is that text of the answer; else it is the page that the form was on. The field `said` is the
//! sentence that this page shows, in which `{name}` is a value of the answer, or the length of a list.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use url::Url;

use super::done::leave;
use super::layout::{problem_page, wants_document};
use super::paths::FORMS;
use crate::answer::Problem;
use crate::body::BODY_BYTES_MAX;
use crate::browser::{HOME, page_of};
use crate::client::segment;
use ganger_pool::overview::Overview;

/// Size of an answer that is read for its message, in bytes.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Mark of a request that a form has made.
#[derive(Debug, Clone, Copy)]
struct Sent;

/// Page to go to when a request of a form is done.
#[derive(Debug, Clone)]
struct Back(String);

/// Sentence that the next page shows when a request of a form is done.
#[derive(Debug, Clone)]
struct Said(String);

/// Returns whether a request is a form that a browser has sent on.
pub(crate) fn is_form(request: &Request) -> bool {
    request.extensions().get::<Sent>().is_some() && wants_document(request.headers())
}

/// Sends forms on as the requests that they are, and answers with the page that they were on. Their bodies are read once
/// the guard has admitted them.
pub(crate) async fn as_request(
    State(overview): State<Overview>,
    mut request: Request,
    next: Next,
) -> Response {
    let wanted = match *request.method() {
        Method::POST if overview.config().admin.ui => wanted(request.uri()),
        _ => None,
    };
    let Some((method, uri)) = wanted else {
        return next.run(request).await;
    };
    let back = request
        .headers()
        .get(header::REFERER)
        .and_then(|back| back.to_str().ok());
    let back = back.map_or_else(|| HOME.to_owned(), page_of_url);
    let wants_document = wants_document(request.headers());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request.extensions_mut().insert(Sent);
    let response = next.run(request).await;
    match wants_document {
        true => answer(response, &back).await,
        false => response,
    }
}

/// Returns the method and the path of the request that a form is; none if the path is not that of one.
fn wanted(uri: &Uri) -> Option<(Method, Uri)> {
    let (method, path) = uri
        .path_and_query()?
        .as_str()
        .strip_prefix(FORMS)?
        .split_once('/')?;
    let method = match method {
        "post" => Method::POST,
        "put" => Method::PUT,
        "patch" => Method::PATCH,
        "delete" => Method::DELETE,
        _ => return None,
    };
    let uri = format!("/{path}")
        .parse()
        .ok()
        .filter(|uri: &Uri| uri.path().starts_with("/v1/"))?;
    Some((method, uri))
}

/// Returns the page of ours at a URL, whatever name of this daemon it has.
fn page_of_url(url: &str) -> String {
    let url = Url::parse(url).ok();
    let path = url.map(|url| match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    });
    page_of(&path.unwrap_or_default())
}

/// Reads the body of a form as the JSON that the API takes.
pub(crate) async fn decode(request: Request, next: Next) -> Response {
    if request.extensions().get::<Sent>().is_none() {
        return next.run(request).await;
    }
    match decoded(request).await {
        Ok(request) => {
            let back = request.extensions().get::<Back>().cloned();
            let said = request.extensions().get::<Said>().cloned();
            let mut response = next.run(request).await;
            if let Some(back) = back {
                response.extensions_mut().insert(back);
            }
            if let Some(said) = said {
                response.extensions_mut().insert(said);
            }
            response
        }
        Err(problem) => problem.into_response(),
    }
}

async fn decoded(request: Request) -> Result<Request, Problem> {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await;
    let body = body.map_err(|error| Problem::bad(format!("the form can't be read: {error}")))?;
    let mut fields = Map::new();
    for (name, value) in url::form_urlencoded::parse(&body) {
        let condition = match &*name {
            "if-match" => header::IF_MATCH,
            "if-none-match" => header::IF_NONE_MATCH,
            "back" => {
                parts.extensions.insert(Back(value.into_owned()));
                continue;
            }
            "said" => {
                parts.extensions.insert(Said(value.into_owned()));
                continue;
            }
            _ => {
                add(&mut fields, &name, &value)?;
                continue;
            }
        };
        let tag = HeaderValue::from_str(&value);
        let tag = tag.map_err(|_| Problem::bad(format!("{name} is no value of a header")))?;
        parts.headers.insert(condition, tag);
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_TYPE);
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    Ok(Request::from_parts(
        parts,
        Body::from(Value::Object(fields).to_string()),
    ))
}

/// Adds a field of a form to the JSON of its request.
fn add(fields: &mut Map<String, Value>, name: &str, value: &str) -> Result<(), Problem> {
    let (key, kind) = name.split_once(':').unwrap_or((name, "text"));
    let wrong = |what: &str| Problem::bad(format!("{key} must be {what}: `{value}`"));
    if kind == "list" {
        let list = fields
            .entry(key)
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.push(value.into());
        }
        return Ok(());
    }
    if value.is_empty() {
        return Ok(());
    }
    if (key, kind) == ("", "json") {
        let whole = serde_json::from_str::<Map<String, Value>>(value);
        let whole = whole
            .map_err(|error| Problem::bad(format!("this is not an object in JSON: {error}")))?;
        fields.extend(whole);
        return Ok(());
    }
    let read = match kind {
        "int" => Value::from(
            value
                .trim()
                .parse::<i64>()
                .map_err(|_| wrong("a whole number"))?,
        ),
        "bool" => Value::from(matches!(value, "on" | "true")),
        "json" => {
            let read = serde_json::from_str(value);
            read.map_err(|error| Problem::bad(format!("{key} is not JSON: {error}")))?
        }
        // As a browser sends it, with the line ends of a form.
        _ => Value::from(value.replace("\r\n", "\n")),
    };
    fields.insert(key.to_owned(), read);
    Ok(())
}

/// Answers a form: with the page to return to, which shows what was done, or with the problem.
async fn answer(response: Response, back: &str) -> Response {
    let status = response.status();
    if !(status.is_success() || status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let back_to = response.extensions().get::<Back>().cloned();
    let said = response.extensions().get::<Said>().cloned();
    let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX)
        .await
        .unwrap_or_default();
    if !status.is_success() {
        let problem = serde_json::from_slice(&body);
        let problem =
            problem.unwrap_or_else(|_| Problem::new(status, String::from_utf8_lossy(&body)));
        return problem_page(status, &problem, None);
    }
    let told: Value = serde_json::from_slice(&body).unwrap_or_default();
    let back = back_to.map_or_else(|| back.to_owned(), |Back(back)| filled(&back, &told));
    let done = said.map_or_else(|| message(&told), |Said(said)| sentence(&said, &told));
    leave(&done, &back)
}

/// Returns a page of ours, in whose address the texts of an answer are filled in.
fn filled(back: &str, answer: &Value) -> String {
    let mut back = back.to_owned();
    for (name, value) in answer.as_object().into_iter().flatten() {
        if let Some(value) = value.as_str() {
            back = back.replace(&format!("{{{name}}}"), &segment(value).to_string());
        }
    }
    page_of(&back)
}

/// Returns a sentence with values of an answer, and with the lengths of its lists.
fn sentence(said: &str, answer: &Value) -> String {
    let mut said = said.to_owned();
    for (name, value) in answer.as_object().into_iter().flatten() {
        let value = match value {
            Value::Array(list) => list.len().to_string(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        said = said.replace(&format!("{{{name}}}"), &value);
    }
    said
}

/// Returns what an answer says was done.
pub(super) fn message(answer: &Value) -> String {
    match answer.get("done").and_then(Value::as_str) {
        Some(done) => done.to_owned(),
        None => {
            let fields = answer.as_object().into_iter().flatten();
            let fields = fields.filter_map(|(name, value)| match value {
                Value::Null | Value::Object(_) => None,
                Value::Array(list) => Some(format!("{} {name}", list.len())),
                Value::String(text) => Some(format!("{name} {text}")),
                value => Some(format!("{name} {value}")),
            });
            let fields: Vec<String> = fields.collect();
            match fields.is_empty() {
                true => "done".to_owned(),
                false => format!("done: {}", fields.join(", ")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn fields(body: &str) -> Result<Value, Problem> {
        let request = Request::post("/v1/a")
            .body(Body::from(body.to_owned()))
            .unwrap();
        let body = decoded(request).await?.into_body();
        let body = to_bytes(body, 1000).await.unwrap();
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    #[tokio::test]
    async fn the_fields_of_a_form_are_json() {
        let form = "reason=a%0D%0Ab&workers:int=3&force:bool=on&body:json=%5B1%5D&empty=&ids:list=x&ids:list=y";
        let expected = json!({ "reason": "a\nb", "workers": 3, "force": true, "body": [1], "ids": ["x", "y"] });
        assert_eq!(fields(form).await.unwrap(), expected);
        assert_eq!(fields("").await.unwrap(), json!({}));
        let whole = "%3Ajson=%7B%22cron%22%3A%22x%22%7D&back=%2Fui&if-none-match=*";
        assert_eq!(fields(whole).await.unwrap(), json!({ "cron": "x" }));
        for form in [
            "workers:int=x",
            "body:json={",
            "if-match=%0A",
            ":json=%5B1%5D",
        ] {
            assert!(fields(form).await.is_err(), "{form}");
        }
    }

    #[test]
    fn a_form_is_the_request_that_its_path_says() {
        let of = |path: &str| {
            wanted(&path.parse().unwrap()).map(|(method, uri)| format!("{method} {uri}"))
        };
        let cases = [
            (
                "/ui/do/post/v1/pools/p/scale?x=1",
                Some("POST /v1/pools/p/scale?x=1"),
            ),
            (
                "/ui/do/delete/v1/schedules/a%2Fb",
                Some("DELETE /v1/schedules/a%2Fb"),
            ),
            ("/ui/do/get/v1/status", None),
            ("/ui/do/post/ui/logout", None),
            ("/ui/do/post", None),
            ("/ui/do/p%20t/v1/a", None),
            ("/v1/pools/p/scale", None),
        ];
        for (path, expected) in cases {
            assert_eq!(of(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_form_leads_to_what_its_answer_names() {
        let answer = json!({ "occurrence": "a/b", "slots": 3 });
        for (back, page) in [
            ("/ui/occurrences/{occurrence}", "/ui/occurrences/a%2Fb"),
            ("/ui/schedules", "/ui/schedules"),
            ("//elsewhere/{occurrence}", "/ui"),
        ] {
            assert_eq!(filled(back, &answer), page);
        }
        let told = json!({ "slots": ["a", "b"], "done": 3, "slot": "x", "reason": null });
        assert_eq!(message(&told), "done: done 3, slot x, 2 slots");
        let said = sentence("{slots} slots run, {done} had", &told);
        assert_eq!(said, "2 slots run, 3 had");
    }

    #[test]
    fn a_form_returns_to_a_page_of_ours() {
        for (from, back) in [
            (
                "http://a.example:9464/ui/pools/p?worker=3",
                "/ui/pools/p?worker=3",
            ),
            ("http://a.example/elsewhere", "/ui"),
            ("javascript:alert(1)", "/ui"),
            ("", "/ui"),
        ] {
            assert_eq!(page_of_url(from), back, "{from}");
        }
    }
}
