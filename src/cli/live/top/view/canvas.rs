//! Drawing tools of all parts of the screen: the view, rules with titles, splitting of areas.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tokio::time::Instant;

use super::super::model::Model;
use super::palette::{Palette, cut};

/// A screen to be drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) model: &'a Model,
    pub(crate) palette: Palette,
    pub(crate) now: Instant,
}

impl View<'_> {
    /// Draws a line with a title in it.
    pub(super) fn rule(&self, title: &str, has_focus: bool, row: Rect, buffer: &mut Buffer) {
        let columns = usize::from(row.width);
        let line = "─".repeat(columns);
        buffer.set_stringn(row.x, row.y, line, columns, self.palette.rule());
        let title = cut(&format!(" {title} "), columns.saturating_sub(4));
        let style = match has_focus {
            true => self.palette.title(),
            false => self.palette.rule(),
        };
        if columns > 4 {
            buffer.set_stringn(row.x + 2, row.y, title, columns - 2, style);
        }
    }
}

/// Formats the visible range: `pools 3 to 7 of 12`, or `12 pools`.
pub(super) fn range(what: &str, first: usize, room: usize, all: usize) -> String {
    match all {
        all if room == 0 || all <= room => format!("{what}: {all}"),
        all => format!("{what} {} to {} of {all}", first + 1, first + room),
    }
}

/// Takes the first lines of an area from it.
pub(super) fn take(area: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    let taken = Rect {
        height: lines,
        ..*area
    };
    area.y += lines;
    area.height -= lines;
    taken
}

/// Takes the last lines of an area from it.
pub(super) fn take_last(area: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    area.height -= lines;
    Rect {
        y: area.y + area.height,
        height: lines,
        ..*area
    }
}

/// Takes the columns on the right of an area from it, with a space between.
pub(super) fn take_right(area: &mut Rect, columns: u16) -> Rect {
    let columns = columns.min(area.width);
    let left = area.width - columns;
    let taken = Rect {
        x: area.x + left,
        width: columns,
        ..*area
    };
    area.width = left.saturating_sub(2);
    taken
}
