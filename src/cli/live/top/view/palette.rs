//! Appearance: colours if they are wanted, and texts that are safe for a terminal.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use ganger_core::foreign;
use ganger_pool::status::PoolState;

/// The colours, or none of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    pub(crate) colours: bool,
}

impl Palette {
    fn of(self, colour: Color) -> Style {
        match self.colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// Style of a normal state.
    pub(super) fn good(self) -> Style {
        self.of(Color::Green)
    }

    /// Style of a warning.
    pub(super) fn warning(self) -> Style {
        self.of(Color::Yellow)
    }

    /// Style of a problem.
    pub(super) fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Style of a bar of a graph.
    pub(super) fn bar(self) -> Style {
        self.of(Color::Cyan)
    }

    /// Style of a title.
    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Style of a rule.
    pub(super) fn rule(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Style of the selected entry, in the focused list and in others.
    pub(super) fn chosen(self, has_focus: bool) -> Style {
        match has_focus {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new().add_modifier(Modifier::UNDERLINED),
        }
    }

    /// Style of a pool in that state.
    pub(super) fn pool(self, state: PoolState) -> Style {
        match state {
            PoolState::Running => self.good(),
            PoolState::Starting | PoolState::Paused | PoolState::Draining | PoolState::Drained => {
                self.warning()
            }
            PoolState::Degraded | PoolState::Open | PoolState::SourceDown => self.bad(),
        }
    }

    /// Style of a worker in that state.
    pub(super) fn worker(self, state: &str) -> Style {
        match state {
            "busy" => self.good(),
            "idle" => Style::new(),
            _ => self.warning(),
        }
    }
}

/// Returns a text that others may have written as one line that is safe for a terminal.
pub(super) fn shown(text: &str) -> String {
    foreign::line(text).replace('\t', " ")
}

/// Returns the width of a text in columns.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts the text to at most `columns` columns; `…` marks the cut. A character of two columns is
/// never halved.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut kept, mut taken) = (String::new(), 0);
    for sign in Span::raw(text).styled_graphemes(Style::new()) {
        taken += width(sign.symbol);
        if taken + 1 > columns {
            break;
        }
        kept.push_str(sign.symbol);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// Pads or cuts the text to exactly `columns` columns.
pub(super) fn padded(text: &str, columns: usize, to_the_right: bool) -> String {
    let text = cut(text, columns);
    let space = " ".repeat(columns.saturating_sub(width(&text)));
    match to_the_right {
        true => space + &text,
        false => text + &space,
    }
}

/// Wraps the text into at most `lines_max` lines, between words where these fit, cut at the end.
pub(super) fn wrapped(text: &str, columns: usize, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        // The last line takes all the rest, and is cut.
        let is_last = lines.len() == lines_max;
        match lines.last_mut() {
            Some(line) if is_last || width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.truncate(lines_max);
    lines.iter().map(|line| cut(line, columns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wide_is_never_halved() {
        let table = [
            ("plain", 5, "plain"),
            ("plain", 4, "pla…"),
            ("漢字漢字", 8, "漢字漢字"),
            ("漢字漢字", 7, "漢字漢…"),
            ("漢字漢字", 6, "漢字…"),
            ("漢字", 1, "…"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("anything", 0, ""),
        ];
        for (text, columns, expected) in table {
            assert_eq!(cut(text, columns), expected, "{text} in {columns}");
            assert_eq!(width(&padded(text, columns, true)), columns, "{text}");
        }
    }

    #[test]
    fn lines_are_broken_between_words() {
        let table: [(&str, usize, &[&str]); 4] = [
            ("one two three", 20, &["one two three"]),
            ("one two three", 8, &["one two", "three"]),
            ("one two three four", 8, &["one two", "three f…"]),
            ("incomprehensible", 8, &["incompr…"]),
        ];
        for (text, columns, expected) in table {
            assert_eq!(wrapped(text, columns, 2), expected, "{text} in {columns}");
        }
        assert!(wrapped("any", 8, 0).is_empty());
    }

    #[test]
    fn a_terminal_is_told_nothing_by_names() {
        assert_eq!(shown("a\tb\u{1b}[2J\n"), "a b\\u{1b}[2J\\n");
    }
}
