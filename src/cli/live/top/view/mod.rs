//! The screen as drawn from the model: a pure function of the model, the time and the area, which may be of
//! any size.
//!
//! ```text
//! head     the daemon, and whether what is shown is new
//! pools    a table
//! detail   the chosen pool: notes, graphs, failures; its workers; or instead its dead letters by error; or
//!          all of that is the help
//! foot     what is asked for, what came of a request, or the keys
//! ```

mod canvas;
mod detail;
mod errors;
mod foot;
mod graphs;
mod head;
mod help;
mod palette;
mod pools;
mod table;
#[cfg(test)]
mod tests;
mod workers;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub(super) use canvas::View;
use canvas::{take, take_last, take_right};
pub(super) use palette::Palette;

/// Width from which graphs stand beside the workers.
const WIDE: u16 = 120;
/// Share of the screen's lines that the pools may take.
const POOLS_PART: u16 = 3;

/// Draws the screen.
pub(super) fn draw(view: &View<'_>, area: Rect, buffer: &mut Buffer) {
    let mut rest = area;
    let foot = take_last(&mut rest, 1);
    foot::draw(view, foot, buffer);
    head::draw(view, take(&mut rest, 2), buffer);
    if view.model.shows_help {
        return help::draw(view, rest, buffer);
    }
    if view.model.status().is_none() {
        return;
    }
    let pools = u16::try_from(view.model.pools().len()).unwrap_or(u16::MAX);
    let most = (area.height / POOLS_PART).max(4);
    let height = pools.max(1).saturating_add(2).min(most);
    pools::draw(view, take(&mut rest, height), buffer);
    let Some(pool) = view.model.pool() else {
        return;
    };
    if let Some(errors) = &view.model.errors {
        return errors::draw(view, errors, rest, buffer);
    }
    detail::draw(view, pool, &mut rest, buffer);
    let history = view.model.history(&pool.name);
    if area.width >= WIDE {
        let graphs = take_right(&mut rest, area.width * 2 / 5);
        workers::draw(view, rest, buffer);
        graphs::beside(view, pool, history, graphs, buffer);
    } else {
        let lines = match rest.height {
            0..8 => 0,
            8..11 => 1,
            _ => 3,
        };
        let graphs = take(&mut rest, lines);
        graphs::above(view, pool, history, graphs, buffer);
        workers::draw(view, rest, buffer);
    }
}
