//! Recent activity of the selected pool, as graphs, and the reasons of failed attempts.

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{RenderDirection, Sparkline, Widget};

use super::super::super::figures::{count, latency, rate};
use super::super::history::{History, Sample};
use super::canvas::{View, take};
use super::palette::{Palette, cut, padded, shown};
use ganger_pool::status::PoolStatus;

/// Period, in seconds, whose failed attempts are also counted separately.
const LATELY: f64 = 60.0;
/// Width of a graph's title on its left.
const TITLE_COLUMNS: u16 = 32;
/// Minimum lines of a graph below its title, and maximum with it.
const GRAPH_LINES_MIN: u16 = 2;
const GRAPH_LINES_MAX: u16 = 13;

/// A reason of failed attempts.
struct Failed {
    reason: String,
    all: u64,
    lately: u64,
    dead: u64,
}

impl Failed {
    fn style(&self, palette: Palette) -> Style {
        match self.lately {
            0 => palette.warning(),
            _ => palette.bad(),
        }
    }
}

/// A value that changes from poll to poll.
struct Graph {
    title: String,
    /// Values, the newest first.
    values: Vec<Option<u64>>,
}

/// Draws the graphs with a line each.
pub(super) fn above(
    view: &View<'_>,
    pool: &PoolStatus,
    history: Option<&History>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let mut rows = area.rows();
    for (graph, row) in graphs(pool, history).into_iter().zip(rows.by_ref().take(2)) {
        let title = TITLE_COLUMNS.min(row.width);
        let text = cut(&graph.title, usize::from(title).saturating_sub(1));
        buffer.set_stringn(row.x, row.y, text, usize::from(title), view.palette.title());
        let bars = Rect {
            x: row.x + title,
            width: row.width - title,
            ..row
        };
        graph.bars(view, bars, buffer);
    }
    for row in rows {
        let failed = failures(pool, history);
        let told = failed.iter().map(|failed| {
            let (all, lately) = (count(failed.all), count(failed.lately));
            format!("{} {all} ({lately})", shown(&failed.reason))
        });
        let told = told.collect::<Vec<_>>().join(", ");
        let (text, style) = match failed.first() {
            None => ("no attempt has failed".to_owned(), view.palette.rule()),
            Some(most) => {
                let text = format!("failed attempts (last minute): {told}");
                (text, most.style(view.palette))
            }
        };
        let columns = usize::from(row.width);
        buffer.set_stringn(row.x, row.y, cut(&text, columns), columns, style);
    }
}

/// Draws the graphs one above the other, with a table of failures below.
pub(super) fn beside(
    view: &View<'_>,
    pool: &PoolStatus,
    history: Option<&History>,
    mut area: Rect,
    buffer: &mut Buffer,
) {
    let failed = failures(pool, history);
    // Its rule, its titles and its rows.
    let lines = u16::try_from(failed.len()).unwrap_or(u16::MAX);
    let table = lines.saturating_add(2).min(area.height / 2);
    let each = ((area.height - table) / 2).min(GRAPH_LINES_MAX);
    for graph in graphs(pool, history) {
        let mut place = take(&mut area, each);
        for row in take(&mut place, 1).rows() {
            view.rule(&graph.title, false, row, buffer);
        }
        if place.height >= GRAPH_LINES_MIN {
            graph.bars(view, place, buffer);
        }
    }
    let mut rows = area.rows();
    let title = match failed.is_empty() {
        true => "no attempt has failed",
        false => "failed attempts",
    };
    for row in rows.by_ref().take(1) {
        view.rule(title, false, row, buffer);
    }
    let head = ["REASON", "ALL", "LAST MINUTE", "DEAD"].map(str::to_owned);
    let head = (!failed.is_empty()).then_some((head, view.palette.title()));
    let told = failed.iter().map(|failed| {
        let Failed {
            reason,
            all,
            lately,
            dead,
        } = failed;
        let cells = [shown(reason), count(*all), count(*lately), count(*dead)];
        (cells, failed.style(view.palette))
    });
    for (([reason, all, lately, dead], style), row) in head.into_iter().chain(told).zip(rows) {
        let columns = usize::from(row.width);
        let reason = padded(&reason, 18, false);
        let figures = [(all, 8), (lately, 13), (dead, 8)];
        let figures = figures.map(|(figure, wide)| padded(&figure, wide, true));
        let text = cut(&format!("{reason}{}", figures.concat()), columns);
        buffer.set_stringn(row.x, row.y, text, columns, style);
    }
}

fn graphs(pool: &PoolStatus, history: Option<&History>) -> [Graph; 2] {
    let samples: Vec<&Sample> = history.into_iter().flat_map(History::newest).collect();
    let most = samples.iter().map(|sample| sample.done).fold(0.0, f64::max);
    let done = Graph {
        title: format!(
            "done/s {}, at most {}",
            rate(pool.done_per_second),
            rate(most)
        ),
        values: samples
            .iter()
            .map(|sample| whole(sample.done * 10.0))
            .collect(),
    };
    let latencies = samples.iter().filter_map(|sample| sample.latency);
    let longest = latencies.clone().fold(0.0, f64::max);
    let newest = latencies.clone().next();
    let latency = Graph {
        title: match newest {
            None => "latency".to_owned(),
            Some(newest) => format!("latency {}, at most {}", latency(newest), latency(longest)),
        },
        values: samples
            .iter()
            .map(|sample| sample.latency.and_then(|latency| whole(latency * 1e6)))
            .collect(),
    };
    [done, latency]
}

/// Rounds a figure to the height of its bar.
fn whole(figure: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is less than nothing is nothing, what is too much the most"
    )]
    figure.is_finite().then_some(figure.min(1e15) as u64)
}

impl Graph {
    fn bars(self, view: &View<'_>, area: Rect, buffer: &mut Buffer) {
        // A value that is small beside the largest is to be seen all the same.
        let most = self
            .values
            .iter()
            .flatten()
            .copied()
            .max()
            .unwrap_or_default();
        let eighths = u64::from(area.height).saturating_mul(8).max(1);
        let least = most.div_ceil(eighths);
        let seen = |value: u64| if value > 0 { value.max(least) } else { 0 };
        let values = self.values.into_iter().map(|value| value.map(seen));
        let bars = Sparkline::default()
            .data(values.take(usize::from(area.width)))
            .max(most.max(1))
            .direction(RenderDirection::RightToLeft)
            .absent_value_symbol(" ")
            .style(view.palette.bar());
        bars.render(area, buffer);
    }
}

/// Returns the reasons of failed attempts, the most frequent lately first.
fn failures(pool: &PoolStatus, history: Option<&History>) -> Vec<Failed> {
    let lately = history.and_then(|history| history.failed_within(LATELY));
    let lately = lately.map_or_else(BTreeMap::new, |(failed, _)| failed);
    let of = |counts: &BTreeMap<String, u64>, reason: &str| {
        counts.get(reason).copied().unwrap_or_default()
    };
    let failed = pool.details.failed.iter().filter(|(_, all)| **all > 0);
    let mut failed: Vec<Failed> = failed
        .map(|(reason, all)| Failed {
            reason: reason.clone(),
            all: *all,
            lately: of(&lately, reason),
            dead: of(&pool.details.dead, reason),
        })
        .collect();
    failed.sort_by_key(|failed| std::cmp::Reverse((failed.lately, failed.all)));
    failed
}
