//! Columns that fit: the least important ones are dropped first where there is little room, and
//! texts are cut before figures are dropped.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::palette::{Palette, padded, width};

/// The space between two columns.
const GAP: usize = 2;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    /// Growth, shrinking and alignment.
    kind: Kind,
    /// Columns with the highest rank are dropped first.
    rank: u8,
}

pub(super) const fn column(title: &'static str, kind: Kind, rank: u8) -> Column {
    Column { title, kind, rank }
}

/// Growth, shrinking and alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Figures, right-aligned: complete or not shown.
    Figure,
    /// A word: complete or not shown.
    Word,
    /// A text that may be cut to the first width, and is never wider than the second.
    Text(usize, usize),
}

/// A row: its cells, and the style of one of them.
#[derive(Debug, Clone)]
pub(super) struct TableRow {
    pub(super) cells: Vec<String>,
    pub(super) marked: (usize, Style),
}

/// Returns the columns that are shown, by number, and their widths.
fn fitting(columns: &[Column], lines: &[TableRow], room: usize) -> Vec<(usize, usize)> {
    let natural = |number: usize| {
        let cells = lines.iter().map(|line| width(&line.cells[number]));
        let widest = cells.max().unwrap_or_default();
        let widest = widest.max(width(columns[number].title));
        match columns[number].kind {
            Kind::Figure | Kind::Word => widest,
            Kind::Text(_, most) => widest.min(most),
        }
    };
    let mut shown: Vec<(usize, usize)> = (0..columns.len())
        .map(|number| (number, natural(number)))
        .collect();
    loop {
        let taken = shown.iter().map(|(_, wide)| wide + GAP).sum::<usize>();
        let mut over = taken.saturating_sub(GAP + room);
        let mut cut = shown.clone();
        for (number, wide) in cut.iter_mut().rev() {
            if let Kind::Text(least, _) = columns[*number].kind {
                let less = over.min(wide.saturating_sub(least));
                *wide -= less;
                over -= less;
            }
        }
        if over == 0 {
            return cut;
        }
        let last = shown.iter().enumerate();
        let last = last.max_by_key(|(_, (number, _))| columns[*number].rank);
        match last {
            Some((place, _)) if shown.len() > 1 => drop(shown.remove(place)),
            _ => {
                return shown
                    .into_iter()
                    .map(|(number, _)| (number, room))
                    .collect();
            }
        }
    }
}

/// Returns the first of the lines that are shown, so that the selected one is among them.
pub(super) fn first_shown(lines: usize, chosen: usize, room: usize) -> usize {
    let centred = chosen.saturating_sub(room / 2);
    centred.min(lines.saturating_sub(room))
}

/// Draws the titles and the lines around the selected one.
pub(super) fn draw(
    (columns, lines): (&[Column], &[TableRow]),
    chosen: (usize, Style),
    palette: Palette,
    area: Rect,
    buffer: &mut Buffer,
) {
    let room = usize::from(area.width);
    let fitting = fitting(columns, lines, room);
    let mut rows = area.rows();
    if let Some(row) = rows.next() {
        let titles = |number: usize| columns[number].title;
        put(columns, &fitting, titles, row, buffer, &|_| palette.title());
    }
    let first = first_shown(
        lines.len(),
        chosen.0,
        usize::from(area.height).saturating_sub(1),
    );
    for ((place, line), row) in lines.iter().enumerate().skip(first).zip(rows) {
        let style = |number: usize| match line.marked {
            (marked, style) if marked == number => style,
            _ => Style::new(),
        };
        let cells = |number: usize| line.cells[number].as_str();
        put(columns, &fitting, cells, row, buffer, &style);
        if place == chosen.0 {
            buffer.set_style(row, chosen.1);
        }
    }
}

fn put<'a>(
    columns: &[Column],
    fitting: &[(usize, usize)],
    cell: impl Fn(usize) -> &'a str,
    row: Rect,
    buffer: &mut Buffer,
    style: &dyn Fn(usize) -> Style,
) {
    let mut x = usize::from(row.x);
    for (number, wide) in fitting {
        let right = columns[*number].kind == Kind::Figure;
        let text = padded(cell(*number), *wide, right);
        let Ok(at) = u16::try_from(x) else {
            return;
        };
        if at < row.right() {
            let room = usize::from(row.right() - at);
            buffer.set_stringn(at, row.y, text, room, style(*number));
        }
        x += wide + GAP;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column {
            title: "NAME",
            kind: Kind::Text(6, 20),
            rank: 0,
        },
        Column {
            title: "STATE",
            kind: Kind::Word,
            rank: 1,
        },
        Column {
            title: "LAG",
            kind: Kind::Figure,
            rank: 3,
        },
        Column {
            title: "DEAD",
            kind: Kind::Figure,
            rank: 2,
        },
    ];

    fn fits(room: usize) -> Vec<(usize, usize)> {
        let cells = ["a-long-name", "running", "12345", "1"];
        let line = TableRow {
            cells: cells.map(str::to_owned).into(),
            marked: (0, Style::new()),
        };
        fitting(&COLUMNS, &[line], room)
    }

    #[test]
    fn texts_are_cut_before_columns_go() {
        let table: [(usize, &[(usize, usize)]); 6] = [
            (80, &[(0, 11), (1, 7), (2, 5), (3, 4)]),
            (33, &[(0, 11), (1, 7), (2, 5), (3, 4)]),
            (30, &[(0, 8), (1, 7), (2, 5), (3, 4)]),
            (25, &[(0, 10), (1, 7), (3, 4)]),
            (15, &[(0, 6), (1, 7)]),
            (3, &[(0, 3)]),
        ];
        for (room, expected) in table {
            assert_eq!(fits(room), expected, "in {room}");
        }
    }

    #[test]
    fn the_chosen_one_is_always_shown() {
        for lines in 0..30 {
            for room in 1..12 {
                for chosen in 0..lines {
                    let first = first_shown(lines, chosen, room);
                    assert!((first..first + room).contains(&chosen));
                    assert!(first == 0 || first + room <= lines, "no room is wasted");
                }
            }
        }
    }
}
