//! The head: the daemon, and whether its status is current.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::super::super::figures::{age, bytes, count};
use super::super::super::notes::{daemon_words, unread_note};
use super::super::model::Link;
use super::canvas::View;
use super::palette::{cut, shown};
use ganger_pool::overview::{DaemonState, Status};

pub(super) fn draw(view: &View<'_>, area: Rect, buffer: &mut Buffer) {
    let lines = [first(view), second(view)];
    for (line, row) in lines.into_iter().zip(area.rows()) {
        fitting(line, usize::from(row.width)).render(row, buffer);
    }
}

/// Cuts the line to fit, with a `…` where there is more.
fn fitting(line: Line<'static>, columns: usize) -> Line<'static> {
    let (mut fitting, mut left) = (line, columns);
    for span in &mut fitting.spans {
        span.content = cut(&span.content, left).into();
        left -= span.width().min(left);
    }
    fitting
}

fn first(view: &View<'_>) -> Line<'static> {
    let Some(status) = view.model.status() else {
        return Line::styled("ganger", view.palette.title());
    };
    let mut told = vec![
        Span::styled(
            format!("ganger {}", shown(&status.version)),
            view.palette.title(),
        ),
        Span::raw(format!(", pid {}, ", status.pid)),
        Span::styled(
            status.state.to_string(),
            match status.state {
                DaemonState::Running => view.palette.good(),
                DaemonState::Starting | DaemonState::Stopping => view.palette.warning(),
            },
        ),
        Span::raw(format!(", up {}", age(status.uptime_seconds))),
    ];
    told.push(Span::raw(memory(status)));
    if !status.wait_for_memory.is_empty() {
        let pools = shown(&status.wait_for_memory.join(", "));
        let waits = format!("; {pools} wait(s) for memory");
        told.push(Span::styled(waits, view.palette.warning()));
    }
    if status.log_records_dropped > 0 {
        let dropped = count(status.log_records_dropped);
        told.push(Span::raw(format!("; {dropped} log records dropped")));
    }
    Line::from(told)
}

/// Formats the memory that messages take, and its limit.
fn memory(status: &Status) -> String {
    let held = bytes(status.buffered_bytes as u64);
    let most = bytes(status.buffered_bytes_max as u64);
    format!("; memory {held} of {most}")
}

fn second(view: &View<'_>) -> Line<'static> {
    let model = view.model;
    let place = shown(&model.daemon);
    let ago = |time: std::time::Duration| age(time.as_secs_f64());
    match model.link(view.now) {
        Link::Asked => Line::raw(format!("asking {place}")),
        Link::Fresh => fresh(view, place),
        Link::Slow(since) => {
            let since = ago(since);
            let text = format!("{place} does not answer; this status is {since} old");
            Line::styled(text, view.palette.warning())
        }
        Link::Away(why, seen) => {
            let seen = match seen {
                Some(age) => format!("disconnected, this status is {} old: ", ago(age)),
                None => "not yet available: ".to_owned(),
            };
            let text = format!("{place} is {seen}{}", shown(&why.replace("\n  ", "; ")));
            Line::styled(text, view.palette.bad())
        }
    }
}

fn fresh(view: &View<'_>, place: String) -> Line<'static> {
    let reasons = view.model.status().map(Status::not_ready);
    let reasons = reasons.unwrap_or_default();
    let place = Span::raw(format!("{place}: "));
    let ready = match reasons.as_slice() {
        [] => Span::styled("ready", view.palette.good()),
        [reason, more @ ..] => {
            let more = match more.len() {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let text = format!("not ready{more}: {}", shown(reason));
            Span::styled(text, view.palette.bad())
        }
    };
    let words = view.model.status().and_then(daemon_words);
    let words = words.map(|note| Span::styled(format!("; {}", shown(&note)), view.palette.bad()));
    let unread = view.model.status().and_then(unread_note);
    let unread =
        unread.map(|note| Span::styled(format!("; {}", shown(&note)), view.palette.warning()));
    Line::from_iter([place, ready].into_iter().chain(words).chain(unread))
}
