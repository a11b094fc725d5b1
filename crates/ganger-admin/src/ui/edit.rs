//! The page that retries a dead letter with another body: typed, compared with the old one, then sent. Nothing that was
//! typed is lost.

use axum::extract::Path;
use axum::extract::rejection::FormRejection;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Form};
use ganger_queue::dead_letter::DeadLetter;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::Api;
use super::commands::command;
use super::content::in_lines;
use super::dead_letter::{editable, read};
use super::difference::difference;
use super::done::leave;
use super::form::message;
use super::page::{Page, Section};
use super::paths::{DEAD, dead_api, dead_letter_path, dead_path};
use super::shown::{has_hidden, text};
use crate::answer::Problem;

/// A body as it was typed.
#[derive(Debug, Default, Deserialize)]
pub(super) struct TypedBody {
    #[serde(default)]
    body: String,
    /// The button: `check`, `again` or `send`.
    #[serde(default)]
    step: String,
    /// Present if it may be other than JSON.
    any: Option<String>,
}

/// Shows the body of a dead letter for editing.
pub(super) async fn form(
    Extension(api): Extension<Api>,
    Path((source, id)): Path<(String, String)>,
) -> Result<Page, Problem> {
    let dead = read(&api, &source, &id).await?;
    let old = old_body(&source, &dead)?;
    Ok(editor(&source, &dead, old, false, None))
}

/// Takes a body as it was typed: compares it with the old one, or sends it.
pub(super) async fn enter(
    Extension(api): Extension<Api>,
    Path((source, id)): Path<(String, String)>,
    typed: Result<Form<TypedBody>, FormRejection>,
) -> Result<Response, Problem> {
    let Form(typed) = typed?;
    let dead = match read(&api, &source, &id).await {
        Ok(dead) => dead,
        Err(problem) => return Ok(lost(&typed.body, &problem).into_response()),
    };
    let old = old_body(&source, &dead)?;
    let new = with_line_ends(old, &typed.body);
    let any = typed.any.is_some();
    let again = |problem: Option<&str>| editor(&source, &dead, &new, any, problem).into_response();
    if typed.step == "again" {
        return Ok(again(None));
    }
    if let Err(why) = check(old, &new, any) {
        return Ok(again(Some(&why)));
    }
    if typed.step != "send" {
        return Ok(comparison(&source, &dead, (old, &new), any).into_response());
    }
    let wanted = json!({ "ids": [id], "body": new });
    let path = format!("{}/retry", dead_api(&source));
    Ok(match api.ask(&path, &wanted).await {
        Ok(answer) => leave(&message(&answer), &dead_path(&source)),
        Err(problem) => again(Some(problem.detail())),
    })
}

fn old_body<'a>(source: &str, dead: &'a DeadLetter) -> Result<&'a str, Problem> {
    editable(&dead.body).ok_or_else(|| {
        Problem::bad(format!(
            "this body can't be edited on a page: it is too large, not UTF-8, or has characters that browsers change. \
             Use `{}`",
            command(&[
                "dead", "retry", &dead.id, "--source", source, "--body", "FILE"
            ])
        ))
    })
}

/// Returns a text of a form, whose lines end with CR LF, with the line ends of the old one.
fn with_line_ends(old: &str, typed: &str) -> String {
    let new = typed.replace("\r\n", "\n");
    match old.contains("\r\n") {
        true => new.replace('\n', "\r\n"),
        false => new,
    }
}

/// Checks that a body is still JSON if the old one was.
fn check(old: &str, new: &str, any: bool) -> Result<(), String> {
    let json = |text: &str| serde_json::from_str::<Value>(text).map(drop);
    match json(new) {
        Err(error) if !any && json(old).is_ok() => Err(format!("this is not JSON: {error}")),
        _ => Ok(()),
    }
}

fn editor(source: &str, dead: &DeadLetter, body: &str, any: bool, problem: Option<&str>) -> Page {
    let is_json =
        editable(&dead.body).is_some_and(|old| serde_json::from_str::<Value>(old).is_ok());
    let form = html! {
        @if let Some(problem) = problem { (refused(problem)) }
        form method="post" {
            label.above for="new-body" { "Body" }
            // The line end at the beginning is not part of the text.
            textarea.tall #new-body name="body" spellcheck="false" autofocus { "\n" (body) }
            @if has_hidden(body) {
                details { summary { "There are characters in it that a browser does not show" } pre { (text(body)) } }
            }
            @if is_json {
                label { input type="checkbox" name="any" checked[any]; " May be other than JSON" }
            }
            div.actions {
                button name="step" value="check" { "Compare" }
                a.button href=(dead_letter_path(source, &dead.id)) { "Back" }
            }
        }
    };
    Page::new(
        Section::DeadLetters,
        format!("Edit dead letter {}", dead.id),
    )
    .with("subject", subject(source, dead))
    .with("editor", form)
    .still()
}

/// Shows why what was typed was not sent.
pub(super) fn refused(problem: &str) -> Markup {
    html! {
        ul.problems role="alert" { li.critical { strong { "Not sent: " } span.error { (text(problem)) } } }
    }
}

fn subject(source: &str, dead: &DeadLetter) -> Markup {
    html! {
        p {
            "The message goes back to queue " strong { (text(&dead.queue)) } " of " (text(source))
            " with this body; all else of it stays. It failed with:"
        }
        p.error.long tabindex="0" { (text(&dead.error)) }
    }
}

fn comparison(source: &str, dead: &DeadLetter, (old, new): (&str, &str), any: bool) -> Page {
    let in_lines = in_lines(old).zip(in_lines(new));
    let shown = html! {
        @if old == new {
            p { "The body is the same as before." }
        } @else {
            @match &in_lines {
                Some((old, new)) if old == new => p { "Only white space differs." },
                Some((old, new)) => {
                    p.none { "Compared value by value; it is sent as it was typed." }
                    (difference(old, new))
                },
                None => (difference(old, new)),
            }
        }
        form method="post" {
            textarea name="body" hidden { "\n" (new) }
            @if any { input type="hidden" name="any" value="on"; }
            div.actions {
                button name="step" value="send" { "Retry with this body" }
                button name="step" value="again" { "Edit further" }
                a.button href=(dead_letter_path(source, &dead.id)) { "Back" }
            }
        }
    };
    Page::new(
        Section::DeadLetters,
        format!("Retry dead letter {} with another body", dead.id),
    )
    .with("subject", subject(source, dead))
    .with("difference", shown)
    .still()
}

/// Shows what was typed for a dead letter that is gone.
fn lost(typed: &str, problem: &Problem) -> Page {
    let shown = html! {
        (refused(problem.detail()))
        p { "This is what you have typed:" }
        label.above for="typed" { "Body" }
        textarea.tall #typed readonly { "\n" (typed) }
        p { a href=(DEAD) { "All dead letters" } }
    };
    Page::new(Section::DeadLetters, "The dead letter is gone")
        .with("lost", shown)
        .still()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_not_edited_has_a_command_with_its_source() {
        let dead = DeadLetter {
            id: "13".to_owned(),
            body: vec![0xff].into(),
            ..DeadLetter::default()
        };
        let problem = old_body("main", &dead).unwrap_err();
        let command = "`ganger dead retry 13 --source main --body FILE`";
        assert!(problem.detail().contains(command), "{}", problem.detail());
    }

    #[test]
    fn json_stays_json_unless_that_is_wanted() {
        assert!(check("{}", "[1]", false).is_ok());
        assert!(check("plain", "{", false).is_ok());
        assert!(check("{}", "{", true).is_ok());
        let why = check("{}", "{\n  \"a\": }", false).unwrap_err();
        assert!(why.contains("line 2"), "{why}");
    }

    #[test]
    fn line_ends_stay_as_they_were() {
        assert_eq!(with_line_ends("a\nb", "x\r\ny"), "x\ny");
        assert_eq!(with_line_ends("a\r\nb", "x\r\ny"), "x\r\ny");
        assert_eq!(with_line_ends("", "x"), "x");
    }

    #[test]
    fn what_was_typed_is_shown_again() {
        let dead = DeadLetter {
            body: "{}".into(),
            ..DeadLetter::default()
        };
        let page = editor("main", &dead, "\n</textarea><script>", false, Some("<why>"));
        let shown: String = page.parts.iter().map(|part| part.body.as_str()).collect();
        assert!(
            shown.contains("autofocus>\n\n&lt;/textarea&gt;&lt;script&gt;</textarea>"),
            "{shown}"
        );
        assert!(shown.contains("&lt;why&gt;"));
        let page = comparison("main", &dead, ("{}", "{\"a\":1}"), false);
        let shown: String = page.parts.iter().map(|part| part.body.as_str()).collect();
        assert!(shown.contains("<ins>+   &quot;a&quot;: 1</ins>"), "{shown}");
    }
}
