//! Details of the selected pool beside its figures.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::super::super::notes::pool_notes;
use super::canvas::{View, take};
use super::palette::{shown, wrapped};
use ganger_pool::status::PoolStatus;

/// Maximum number of lines of one note.
const NOTE_LINES_MAX: usize = 2;
/// Share of the remaining lines that all notes may take.
const NOTES_PART: u16 = 3;

/// Draws the pool's title and its notes, and takes their lines from the area.
pub(super) fn draw(view: &View<'_>, pool: &PoolStatus, area: &mut Rect, buffer: &mut Buffer) {
    let PoolStatus {
        name,
        source,
        kind,
        queue,
        ..
    } = pool;
    let title = shown(&format!("{name}: {kind} `{source}`, queue `{queue}`"));
    let most = usize::from(area.height / NOTES_PART);
    for row in take(area, 1).rows() {
        view.rule(&title, true, row, buffer);
    }
    let columns = usize::from(area.width);
    let notes = pool_notes(pool);
    let lines = notes
        .iter()
        .flat_map(|note| wrapped(&shown(note), columns, NOTE_LINES_MAX));
    let lines: Vec<String> = lines.take(most).collect();
    let room = take(area, u16::try_from(lines.len()).unwrap_or(u16::MAX));
    for (line, row) in lines.iter().zip(room.rows()) {
        buffer.set_stringn(row.x, row.y, line, columns, view.palette.warning());
    }
}
