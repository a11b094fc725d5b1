//! The table of the pools.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::super::super::figures::{count, depth, latency, oldest, rate};
use super::super::model::Focus;
use super::canvas::{View, range, take};
use super::palette::shown;
use super::table::{self, Column, Kind, TableRow, column, first_shown};
use ganger_pool::status::PoolStatus;

const COLUMNS: [Column; 16] = [
    column("POOL", Kind::Text(12, 32), 0),
    column("STATE", Kind::Word, 1),
    column("KIND", Kind::Word, 15),
    column("QUEUE", Kind::Text(8, 24), 14),
    column("BUSY", Kind::Figure, 3),
    column("IDLE", Kind::Figure, 10),
    column("WANTED", Kind::Figure, 4),
    column("IN HAND", Kind::Figure, 13),
    column("WAITING", Kind::Figure, 5),
    column("OLDEST", Kind::Figure, 6),
    column("DONE/S", Kind::Figure, 2),
    column("FAIL/S", Kind::Figure, 7),
    column("P50", Kind::Figure, 11),
    column("P99", Kind::Figure, 8),
    column("RETRIED", Kind::Figure, 12),
    column("DEAD", Kind::Figure, 9),
];
/// Index of the STATE column.
const STATE: usize = 1;

pub(super) fn draw(view: &View<'_>, mut area: Rect, buffer: &mut Buffer) {
    let model = view.model;
    let (pools, place) = (model.pools(), model.pool_place());
    let has_focus = model.focus == Focus::Pools;
    let rule = take(&mut area, 1);
    let room = usize::from(area.height).saturating_sub(1);
    let first = first_shown(pools.len(), place, room);
    let title = range("pools", first, room, pools.len());
    for row in rule.rows() {
        view.rule(&title, has_focus, row, buffer);
    }
    let lines: Vec<TableRow> = pools.iter().map(|pool| line(view, pool)).collect();
    let chosen = (place, view.palette.chosen(has_focus));
    table::draw((&COLUMNS, &lines), chosen, view.palette, area, buffer);
}

fn line(view: &View<'_>, pool: &PoolStatus) -> TableRow {
    let in_state = |state: &str| {
        let workers = pool.workers.iter();
        workers.filter(|worker| worker.state == state).count() as u64
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let history = view.model.history(&pool.name);
    let failed = history.and_then(|history| history.failed_per_second());
    let counts = &pool.counts;
    TableRow {
        cells: vec![
            shown(&pool.name),
            pool.state.as_str().to_owned(),
            shown(&pool.kind),
            shown(&pool.queue),
            count(in_state("busy")),
            count(in_state("idle")),
            count(pool.workers_wanted as u64),
            count(pool.out as u64),
            depth(pool.backlog),
            oldest(pool.backlog),
            rate(pool.done_per_second),
            or_dash(failed.map(rate)),
            latency(counts.p50_ms / 1e3),
            latency(counts.p99_ms / 1e3),
            count(counts.retried),
            count(counts.dead),
        ],
        marked: (STATE, view.palette.pool(pool.state)),
    }
}
