//! Values as pages show them: text from outside with what is invisible in it, times, durations, numbers, states.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use maud::{Markup, html};

/// Returns a mark of this daemon's start: another daemon has another.
pub(super) fn started() -> String {
    static STARTED: LazyLock<String> = LazyLock::new(|| {
        format!(
            "{}-{}",
            std::process::id(),
            Timestamp::now().as_millisecond()
        )
    });
    STARTED.clone()
}

/// Shows text from outside. Characters that are invisible, or that change how others are shown, are named.
pub(crate) fn text(text: &str) -> Markup {
    html! {
        @for piece in pieces(text) {
            @match piece {
                Piece::Plain(plain) => (plain),
                Piece::Hidden(hidden) => span.hidden title="character that is not shown" { (escape(hidden)) },
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Plain(&'a str),
    Hidden(char),
}

/// Returns whether a text has characters that are not shown as they are.
pub(super) fn has_hidden(text: &str) -> bool {
    text.chars().any(is_hidden)
}

/// Divides a text into what can be shown, and characters that can't.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut begin = 0;
    for (at, character) in text
        .char_indices()
        .filter(|(_, character)| is_hidden(*character))
    {
        if at > begin {
            pieces.push(Piece::Plain(&text[begin..at]));
        }
        pieces.push(Piece::Hidden(character));
        begin = at + character.len_utf8();
    }
    if begin < text.len() {
        pieces.push(Piece::Plain(&text[begin..]));
    }
    pieces
}

/// Returns whether a character is a control, has no width, or changes the direction of others.
fn is_hidden(character: char) -> bool {
    let is_break = matches!(character, '\n' | '\t');
    (character.is_control() && !is_break)
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn escape(character: char) -> String {
    format!("\\u{{{:x}}}", u32::from(character))
}

/// Returns the first characters of a text, in one line.
pub(super) fn first(text: &str, most: usize) -> String {
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.len() < text.trim_end().len() => format!("{line} …"),
        None => line.to_owned(),
    }
}

/// Shows a time: the browser shows it by its reader's clock and zone.
pub(super) fn time(at: Timestamp) -> Markup {
    let whole = at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time datetime=(at) title=(whole) { (whole) } }
}

/// Shows a time that is given as RFC 3339, or the text if it is none.
pub(super) fn time_of(at: &str) -> Markup {
    at.parse().map_or_else(|_| text(at), time)
}

/// Shows the time since an instant.
pub(super) fn since(at: SystemTime) -> Markup {
    let seconds = SystemTime::now().duration_since(at).unwrap_or_default();
    let instant = Timestamp::try_from(at).unwrap_or_default();
    let whole = instant.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time.ago datetime=(instant) title=(whole) { (age(seconds)) " ago" } }
}

/// Formats a time in its two largest units.
pub(super) fn age(time: Duration) -> String {
    ganger_pool::status::age(time.as_secs_f64())
}

/// Formats a number of milliseconds.
pub(super) fn millis(millis: u64) -> String {
    match millis {
        0..=999 => format!("{millis} ms"),
        1000..=9999 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => age(Duration::from_millis(millis)),
    }
}

/// Returns a number per second as a text.
pub(super) fn rate_of(rate: f64) -> String {
    match rate {
        rate if rate >= 100.0 => format!("{rate:.0}"),
        rate => format!("{rate:.1}"),
    }
}

/// Formats a latency in milliseconds.
pub(super) fn latency(milliseconds: f64) -> String {
    match milliseconds {
        0.0..100.0 => format!("{milliseconds:.1} ms"),
        100.0..1000.0 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.1} s", milliseconds / 1000.0),
    }
}

/// Formats a count with thin spaces between thousands.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut shown = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !shown.is_empty() {
            shown.push('\u{2009}');
        }
        shown.extend(group.iter().map(|digit| char::from(*digit)));
    }
    shown
}

/// Shows a state by a glyph, its word, and a color: never by the color alone.
pub(super) fn state(word: &str) -> Markup {
    let (glyph, tone) = glyph(word);
    html! { span.state.(tone) { span aria-hidden="true" { (glyph) } " " (word.replace('_', " ")) } }
}

/// Returns the glyph and the tone of a state.
pub(super) fn glyph(word: &str) -> (&'static str, &'static str) {
    match word {
        "running" | "active" | "busy" | "completed" => ("●", "good"),
        "starting" | "queued" | "waiting" | "idle" => ("○", "calm"),
        "paused" | "draining" | "drained" | "skipped" | "stopping" | "ended" => ("◐", "calm"),
        "degraded" | "open" | "source down" | "source_down" | "failed" | "timed_out" | "broken"
        | "disabled" | "stuck" => ("▲", "bad"),
        "cancelled" => ("✕", "calm"),
        _ => ("?", "warn"),
    }
}

/// Draws figures as a line, the newest at the right. The label tells them to who does not see it.
pub(super) fn sparkline(figures: &[f64], label: &str) -> Markup {
    const WIDTH: f64 = 120.0;
    const HEIGHT: f64 = 24.0;
    let most = figures.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let last = u32::try_from(figures.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let step = WIDTH / f64::from(last.max(1));
    let points = (0_u32..).zip(figures).map(|(at, figure)| {
        let (x, y) = (
            f64::from(at) * step,
            HEIGHT - 1.0 - figure / most * (HEIGHT - 2.0),
        );
        format!("{x:.1},{y:.1}")
    });
    let points = points.collect::<Vec<_>>().join(" ");
    html! {
        // A line is between two points.
        @if figures.len() < 2 { span.of title=(label) { "–" } } @else {
        svg.spark viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(label) preserveAspectRatio="none" {
            polyline points=(points) {}
        }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_named_and_markup_is_text() {
        let hostile = "<b>\u{202e}gpj.exe\u{0}\u{1b}[31m\n\u{200b}&\"";
        assert_eq!(
            text(hostile).into_string(),
            "&lt;b&gt;<span class=\"hidden\" title=\"character that is not shown\">\\u{202e}</span>gpj.exe\
             <span class=\"hidden\" title=\"character that is not shown\">\\u{0}</span>\
             <span class=\"hidden\" title=\"character that is not shown\">\\u{1b}</span>[31m\n\
             <span class=\"hidden\" title=\"character that is not shown\">\\u{200b}</span>&amp;&quot;"
        );
        assert_eq!(text("Zoë 日本語 🙂").into_string(), "Zoë 日本語 🙂");
    }

    #[test]
    fn numbers_are_read_at_a_glance() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1\u{2009}234\u{2009}567");
        assert_eq!(millis(12), "12 ms");
        assert_eq!(millis(1250), "1.2 s");
        assert_eq!(millis(65_000), "1m 5s");
    }

    #[test]
    fn the_beginning_of_a_text_is_a_line() {
        assert_eq!(first("\n  a b\nc", 10), "  a b …");
        assert_eq!(first("abcdef", 3), "abc…");
        assert_eq!(first("", 3), "");
    }
}
