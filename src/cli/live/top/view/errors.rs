//! Dead letters of a pool, counted by error.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::super::figures::count;
use super::super::model::Errors;
use super::canvas::{View, take};
use super::palette::{cut, shown};
use super::table::{self, Column, Kind, TableRow, column};
use ganger_queue::dead_letter::Group;

const COLUMNS: [Column; 4] = [
    column("COUNT", Kind::Figure, 0),
    column("REASON", Kind::Word, 2),
    column("LAST", Kind::Word, 3),
    column("ERROR", Kind::Text(8, usize::MAX), 1),
];

pub(super) fn draw(view: &View<'_>, errors: &Errors, mut area: Rect, buffer: &mut Buffer) {
    let title = shown(&format!("dead letters of {} by error", errors.pool));
    for row in take(&mut area, 1).rows() {
        view.rule(&title, true, row, buffer);
    }
    let said = match &errors.groups {
        None => "reading them".to_owned(),
        Some(Err(why)) => shown(why),
        Some(Ok(groups)) if groups.is_empty() => "no dead letters".to_owned(),
        Some(Ok(groups)) => {
            let lines: Vec<TableRow> = groups.iter().map(line).collect();
            let none_chosen = (0, Style::new());
            return table::draw((&COLUMNS, &lines), none_chosen, view.palette, area, buffer);
        }
    };
    let columns = usize::from(area.width);
    for row in take(&mut area, 1).rows() {
        buffer.set_stringn(row.x, row.y, cut(&said, columns), columns, Style::new());
    }
}

fn line(group: &Group) -> TableRow {
    TableRow {
        cells: vec![
            count(group.count),
            shown(&group.reason),
            shown(&group.last_failed_at),
            shown(&group.error),
        ],
        marked: (0, Style::new()),
    }
}
