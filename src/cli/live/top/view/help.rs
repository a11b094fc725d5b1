//! The keys with their actions.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::canvas::{View, take};
use super::palette::cut;

const KEYS: [(&str, &str); 13] = [
    (
        "↑ ↓ k j",
        "select a pool, or a worker; PgUp, PgDn, Home and End as well",
    ),
    ("Tab", "switch between the workers and the pools"),
    (
        "o",
        "sort the workers by the age of their message, or by slot",
    ),
    ("p", "pause the pool, or resume it"),
    (
        "s",
        "scale the pool: a number, + or -, c for the configured one; Enter",
    ),
    ("+ -", "scale the pool, starting with one more or one fewer"),
    ("r", "replace the workers one by one, new before old"),
    ("d", "drain the pool: its workers stop once they are idle"),
    (
        "K",
        "kill the selected worker; its messages are redelivered",
    ),
    (
        "x",
        "cancel the message that the selected worker has in hand",
    ),
    ("e", "count the pool's dead letters by error"),
    ("? h", "show or hide this"),
    ("q Esc", "leave"),
];

pub(super) fn draw(view: &View<'_>, mut area: Rect, buffer: &mut Buffer) {
    for row in take(&mut area, 1).rows() {
        view.rule("keys", true, row, buffer);
    }
    let columns = usize::from(area.width);
    for ((keys, meaning), row) in KEYS.iter().zip(area.rows()) {
        let line = cut(&format!("{keys:<8} {meaning}"), columns);
        buffer.set_stringn(row.x, row.y, line, columns, Style::default());
    }
}
