//! The page of a dead letter: why its message was given up, the message itself, and what an operator can do.

use axum::Extension;
use axum::extract::Path;
use ganger_queue::client::shown::DeadLetterJson;
use ganger_queue::dead_letter::{DeadLetter, DeadReply};
use ganger_queue::delivery::Headers;
use maud::{Markup, html};
use nix::sys::signal::Signal;

use super::api::Api;
use super::commands::{command, commands};
use super::content::content;
use super::dead::{PoolPages, dead_letter};
use super::page::{Page, Section};
use super::paths::{EDIT, RUNS, dead_api, dead_path, form, path, queue_path};
use super::query::Fields;
use super::shown::{text, time_of};
use crate::answer::Problem;
use crate::occurrences::Occurrences;

/// Shows a dead letter.
pub(super) async fn page(
    Extension(api): Extension<Api>,
    Path((source, id)): Path<(String, String)>,
) -> Result<Page, Problem> {
    let dead = read(&api, &source, &id).await?;
    let run = run_of(&api, &dead).await;
    let pools = PoolPages::read(&api).await?;
    let page = Page::new(Section::DeadLetters, format!("Dead letter {id}"))
        .with("summary", summary(&source, &dead, run.as_deref(), &pools))
        .with("actions", actions(&source, &dead))
        .with("body", body(&dead))
        .with("facts", facts(&source, &dead));
    let page = match &dead.reply {
        Some(reply) => page.with("reply", undelivered(reply)),
        None => page,
    };
    Ok(page
        .with("commands", commands(&as_commands(&source, &dead)))
        .still())
}

/// Reads a dead letter in full.
pub(super) async fn read(api: &Api, source: &str, id: &str) -> Result<DeadLetter, Problem> {
    let path = path("/v1/dead/{source}/letters/{id}", &[source, id]);
    dead_letter(api.get::<DeadLetterJson>(&path).await?)
}

/// Returns the page of the run of its message, if a ledger has it.
async fn run_of(api: &Api, dead: &DeadLetter) -> Option<String> {
    let id = dead.message_id.as_deref().unwrap_or(&dead.correlation_id);
    let sought = Fields::from([("message_id", id)]);
    let found = sought.at("/v1/occurrences");
    let found: Occurrences = match id {
        "" => return None,
        _ => api.get(&found).await.ok()?,
    };
    (!found.occurrences.is_empty()).then(|| sought.at(RUNS))
}

fn summary(source: &str, dead: &DeadLetter, run: Option<&str>, pools: &PoolPages) -> Markup {
    let alike = Fields::from([("pool", &*dead.pool), ("reason", &dead.reason)]);
    html! {
        p.lead {
            span.state.bad { span aria-hidden="true" { "▲" } " " (text(&dead.reason)) }
            " in pool " (pools.link(&dead.pool)) " after " (dead.attempts) " "
            @if dead.attempts == 1 { "attempt" } @else { "attempts" }
            ", last " (time_of(&dead.last_failed_at)) "."
        }
        p.error.long tabindex="0" { (text(&dead.error)) }
        @if !dead.stderr.is_empty() {
            h2 { "Last lines of the worker" }
            pre tabindex="0" { @for line in &dead.stderr { (text(line)) "\n" } }
        }
        p {
            @if let Some(run) = run { a href=(run) { "Its run" } " · " }
            a href=(alike.at(&dead_path(source))) { "Others of this pool and reason" } " · "
            a href=(dead_path(source)) { "All of " (text(source)) }
        }
    }
}

/// Returns the body as a text that a form can hold: without a character that browsers change.
pub(super) fn editable(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let line_ends = text.matches("\r\n").count();
    let is_kept = match line_ends {
        0 => !text.contains('\r'),
        // Either each line ends so or none does: a form does not say.
        _ => text.matches('\r').count() == line_ends && text.matches('\n').count() == line_ends,
    };
    (is_kept && !text.contains('\0') && text.len() <= EDITED_BYTES_MAX).then_some(text)
}

/// Maximum size of a body that is edited on a page, in bytes.
const EDITED_BYTES_MAX: usize = 1 << 20;

fn actions(source: &str, dead: &DeadLetter) -> Markup {
    let api = dead_api(source);
    let back = dead_path(source);
    html! {
        div.actions {
            form method="post" action=(form("post", &format!("{api}/retry"))) {
                input type="hidden" name="ids:list" value=(dead.id);
                input type="hidden" name="back" value=(back);
                button title="The message goes back to its queue, with a clean count of attempts" { "Retry" }
            }
            @if editable(&dead.body).is_some() {
                a.button href=(path(EDIT, &[source, &dead.id])) { "Edit and retry…" }
            }
            details.ask {
                summary { "Drop…" }
                form method="post" action=(form("delete", &api)) {
                    input type="hidden" name="ids:list" value=(dead.id);
                    input type="hidden" name="back" value=(back);
                    p { "1 message is deleted for good, with its body." }
                    button.danger { "Drop" }
                }
            }
        }
    }
}

fn body(dead: &DeadLetter) -> Markup {
    html! {
        h2 { "Body" }
        (content(&dead.body))
        @if !dead.headers.is_empty() {
            h2 { "Headers" }
            (headers(&dead.headers))
        }
    }
}

/// Shows the headers of a message.
pub(super) fn headers(headers: &Headers) -> Markup {
    html! {
        div.wide tabindex="0" {
            table {
                thead { tr { th scope="col" { "Header" } th scope="col" { "Value" } } }
                tbody {
                    @for (name, value) in headers {
                        tr { th.cut scope="row" { (text(name)) } td { div.long tabindex="0" { (text(value)) } } }
                    }
                }
            }
        }
    }
}

fn facts(source: &str, dead: &DeadLetter) -> Markup {
    let queue = queue_path(source, &dead.queue);
    let exit = dead.exit_code.map(|code| format!("exit code {code}"));
    let signal = dead.signal.map(|number| {
        let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
        format!("signal {number}, {name}")
    });
    let end: Vec<String> = exit.into_iter().chain(signal).collect();
    let texts = [
        ("Message", &dead.message_name),
        ("Message id", &dead.message_id),
        ("Content type", &dead.content_type),
        ("Key", &dead.key),
        ("Reply to", &dead.reply_to),
    ];
    html! {
        h2 { "Facts" }
        dl.facts {
            dt { "First failed" } dd { (time_of(&dead.first_failed_at)) }
            dt { "Last failed" } dd { (time_of(&dead.last_failed_at)) }
            dt { "Attempts" } dd { (dead.attempts) }
            dt { "Crashes" } dd { (dead.crashes) }
            @if !end.is_empty() { dt { "Worker's end" } dd { (end.join("; ")) } }
            @if dead.oom { dt { "Memory" } dd { "The kernel killed the worker for lack of memory." } }
            dt { "Queue" } dd { a href=(queue) { (text(&dead.queue)) } }
            @for (label, value) in texts {
                @if let Some(value) = value { dt { (label) } dd { (text(value)) } }
            }
            @if !dead.correlation_id.is_empty() { dt { "Correlation id" } dd { (text(&dead.correlation_id)) } }
            @if dead.priority != 0 { dt { "Priority" } dd { (dead.priority) } }
        }
    }
}

fn undelivered(reply: &DeadReply) -> Markup {
    html! {
        h2 { "Reply" }
        p { "The work was done; this reply to queue " (text(&reply.queue)) " could not be delivered." }
        (content(&reply.body))
        @if !reply.headers.is_empty() { (headers(&reply.headers)) }
    }
}

fn as_commands(source: &str, dead: &DeadLetter) -> Vec<String> {
    let id = &*dead.id;
    let of = |verb: &str| command(&["dead", verb, id, "--source", source]);
    vec![
        of("show"),
        of("retry"),
        command(&["dead", "retry", id, "--source", source, "--body", "FILE"]),
        of("drop"),
        command(&["worker", "try", "--dead", id, "--source", source]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_names_the_source() {
        let dead = DeadLetter {
            id: "-13".to_owned(),
            ..DeadLetter::default()
        };
        let lines = as_commands("main", &dead);
        assert_eq!(
            lines[2],
            "ganger dead retry --source main --body FILE -- -13"
        );
        assert_eq!(lines[4], "ganger worker try --dead=-13 --source main");
    }

    #[test]
    fn the_page_of_a_pool_that_is_gone_is_no_link() {
        let dead = DeadLetter {
            pool: "gone".to_owned(),
            ..DeadLetter::default()
        };
        let shown = summary("main", &dead, None, &PoolPages::default()).into_string();
        assert!(!shown.contains("/ui/pools/"), "{shown}");
        assert!(shown.contains("not configured any more"), "{shown}");
    }

    #[test]
    fn only_a_body_that_comes_back_as_it_was_is_edited() {
        for (body, is_editable) in [
            (&b"a\nb"[..], true),
            (b"a\r\nb\r\n", true),
            (b"", true),
            (b"a\r\nb\n", false),
            (b"a\rb", false),
            (b"a\0", false),
            (&[0xff], false),
        ] {
            assert_eq!(editable(body).is_some(), is_editable, "{body:?}");
        }
    }

    #[test]
    fn all_of_a_hostile_dead_letter_is_text() {
        let dead = DeadLetter {
            id: "<i>".to_owned(),
            error: "<script>\u{202e}".to_owned(),
            stderr: vec!["<b>".to_owned()],
            headers: vec![("<h>".to_owned(), "<v>".to_owned())],
            body: "<body>".into(),
            reply: Some(DeadReply {
                queue: "<q>".to_owned(),
                body: "<r>".into(),
                headers: Vec::new(),
            }),
            signal: Some(9),
            ..DeadLetter::default()
        };
        let reply = dead.reply.as_ref().unwrap();
        let parts = [
            summary("<s>", &dead, None, &PoolPages::default()),
            actions("<s>", &dead),
            body(&dead),
            facts("<s>", &dead),
            undelivered(reply),
        ];
        let shown: String = parts.into_iter().map(|part| part.into_string()).collect();
        for tag in [
            "<i>", "<script>", "<h>", "<v>", "<body>", "<q>", "<r>", "<s>", "\u{202e}",
        ] {
            assert!(!shown.contains(tag), "{tag}");
        }
        assert!(shown.contains("signal 9, SIGKILL"));
    }
}
