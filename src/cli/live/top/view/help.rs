//! The keys with their actions.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::canvas::{View, take};
use super::palette::cut;

const KEYS: [(&str, &str); 13] = [
    (
        "↑ ↓ k j",
        "choose a pool, or a worker; PgUp, PgDn, Home and End as well",
    ),
    ("Tab", "move among the workers, and back among the pools"),
    (
        "o",
        "order the workers by the age of their message, or by slot",
    ),
    ("p", "pause the pool, or resume it"),
    (
        "s",
        "scale the pool: a number, + or -, c for what is configured; Enter",
    ),
    ("+ -", "likewise, beginning with one more or one fewer"),
    ("r", "replace the workers one by one, new before old"),
    ("d", "drain the pool: its workers leave when they are done"),
    ("K", "kill the chosen worker; what it has in hand goes back"),
    ("x", "cancel the message that the chosen worker has in hand"),
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
