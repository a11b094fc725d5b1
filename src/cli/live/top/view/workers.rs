//! The workers of the selected pool.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::super::figures::{age, bytes, count, percent};
use super::super::model::{Focus, Order};
use super::canvas::{View, range, take};
use super::palette::shown;
use super::table::{self, Column, Kind, TableRow, column, first_shown};
use ganger_pool::status::WorkerStatus;

const COLUMNS: [Column; 11] = [
    column("SLOT", Kind::Figure, 0),
    column("PID", Kind::Figure, 5),
    column("STATE", Kind::Word, 1),
    column("AGE", Kind::Figure, 2),
    column("IN HAND", Kind::Figure, 6),
    column("WINDOW", Kind::Figure, 8),
    column("ANSWERED", Kind::Figure, 4),
    column("CPU", Kind::Figure, 10),
    column("MEMORY", Kind::Figure, 9),
    column("MESSAGE", Kind::Text(8, 40), 3),
    column("PROGRESS", Kind::Text(8, usize::MAX), 7),
];
/// Index of the STATE column.
const STATE: usize = 2;

pub(super) fn draw(view: &View<'_>, mut area: Rect, buffer: &mut Buffer) {
    let model = view.model;
    let (workers, place) = (model.workers(), model.worker_place());
    let has_focus = model.focus == Focus::Workers;
    let rule = take(&mut area, 1);
    let room = usize::from(area.height).saturating_sub(1);
    let first = first_shown(workers.len(), place, room);
    let order = match model.order {
        Order::Slot => "",
        Order::Age => ", the oldest message first",
    };
    let title = range("workers", first, room, workers.len());
    for row in rule.rows() {
        view.rule(&format!("{title}{order}"), has_focus, row, buffer);
    }
    let lines: Vec<TableRow> = workers.iter().map(|worker| line(view, worker)).collect();
    // Nothing can be done with one before the arrows are among them.
    let style = match has_focus {
        true => view.palette.chosen(true),
        false => Style::new(),
    };
    table::draw(
        (&COLUMNS, &lines),
        (place, style),
        view.palette,
        area,
        buffer,
    );
}

fn line(view: &View<'_>, worker: &WorkerStatus) -> TableRow {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    TableRow {
        cells: vec![
            worker.slot.to_string(),
            or_dash(worker.pid.map(|pid| pid.to_string())),
            shown(&worker.state),
            or_dash(worker.message_age.map(age)),
            count(worker.in_flight as u64),
            count(worker.window as u64),
            count(worker.answered),
            or_dash(view.model.load(worker).map(percent)),
            or_dash(worker.memory_bytes.map(bytes)),
            or_dash(worker.message.as_deref().map(shown)),
            or_dash(worker.progress.as_deref().map(shown)),
        ],
        marked: (STATE, view.palette.worker(&worker.state)),
    }
}
