//! Runs as rows of a table, as dots, and as bars of their durations.

use ganger_queue::ledger::shown::OccurrenceJson;
use maud::{Markup, html};

use super::paths::{run_path, schedule_path};
use super::shown::{count, first, glyph, millis, state, text, time_of};

/// Number of runs on a page.
pub(super) const RUNS: usize = 50;

/// Longest beginning of an error in a row, in characters.
const ERROR_CHARS: usize = 160;

/// Size of the chart, in its own units.
const BAR_WIDTH: usize = 14;
const CHART_HEIGHT: u64 = 100;

/// Returns whether a state is that of a failure.
pub(super) fn is_failure(word: &str) -> bool {
    matches!(word, "failed" | "timed_out")
}

/// Shows runs in a table. Those of one schedule don't name it.
pub(super) fn table(runs: &[OccurrenceJson], is_of_one: bool, none: &str) -> Markup {
    html! {
        div.wide tabindex="0" {
            table.stack {
                thead { tr {
                    th scope="col" { "State" }
                    @if !is_of_one { th scope="col" { "Schedule or queue" } }
                    th scope="col" { "Slot or time" } th.number scope="col" { "Took" } th.number scope="col" { "Attempt" }
                    th scope="col" { "Error or progress" }
                } }
                tbody {
                    @for run in runs { (row(run, is_of_one)) }
                    @if runs.is_empty() { tr { td colspan="6" { span.none { (none) } } } }
                }
            }
        }
    }
}

fn row(run: &OccurrenceJson, is_of_one: bool) -> Markup {
    let at = run.slot.as_deref().unwrap_or(&run.queued_at);
    html! {
        tr {
            td { (state(&run.state)) @if let Some(reason) = run.reason.as_ref().filter(|reason| **reason != run.state) { br; span.of { (text(&reason.replace('_', " "))) } } }
            @if !is_of_one {
                td.name { @match &run.schedule {
                    Some(name) => a href=(schedule_path(name)) { (text(name)) },
                    None => { (text(&run.queue)) " " span.of { "queue" } },
                } }
            }
            th scope="row" {
                a href=(run_path(&run.id)) { (time_of(at)) }
                @if run.slot.is_none() { " " span.of { @if run.schedule.is_some() { "triggered" } @else { "taken" } } }
                @if run.missed > 0 { " " span.of { "and " (count(run.missed)) " more slots" } }
            }
            td.number data-label="Took" { (run.duration_ms.map_or_else(|| "–".to_owned(), millis)) }
            td.number data-label="Attempt" { (run.attempt) }
            td.text {
                @match (&run.error, &run.progress) {
                    (Some(error), _) if run.state != "completed" => span.error { (text(&first(error, ERROR_CHARS))) },
                    (_, Some(progress)) if run.ended_at.is_none() => (text(&first(progress, ERROR_CHARS))),
                    _ => {}
                }
                @if let Some(note) = &run.resolved { br; span.of { "Resolved: " (text(&first(note, ERROR_CHARS))) } }
            }
        }
    }
}

/// States in which runs end, each with its word in a summary of results.
const RESULTS: [(&str, &str); 5] = [
    ("completed", "succeeded"),
    ("failed", "failed"),
    ("timed_out", "timed out"),
    ("cancelled", "cancelled"),
    ("skipped", "skipped"),
];

/// Returns the word of a state in a summary of results.
fn result_of(state: &str) -> &'static str {
    let result = RESULTS.iter().find(|(own, _)| *own == state);
    result.map_or("open", |(_, word)| word)
}

/// Describes the states of runs, of which the newest is first: `17 succeeded, 3 failed, last failed`.
fn summary(states: &[&str]) -> String {
    let words = RESULTS.iter().map(|(_, word)| *word).chain(["open"]);
    let counts = words.filter_map(|word| {
        let number = states.iter().filter(|state| result_of(state) == word);
        let number = number.count();
        (number > 0).then(|| format!("{number} {word}"))
    });
    let last = states
        .first()
        .map(|state| format!("last {}", result_of(state)));
    counts.chain(last).collect::<Vec<_>>().join(", ")
}

/// Shows the states of runs, of which the newest is first, as dots, of which it is the last.
pub(super) fn dots(states: &[&str]) -> Markup {
    let oldest_first: Vec<&str> = states.iter().rev().copied().collect();
    html! {
        span.dots role="img" aria-label=(summary(states)) title=(summary(states)) {
            @for same in oldest_first.chunk_by(|one, other| result_of(one) == result_of(other)) {
                @let (glyph, tone) = match result_of(same[0]) { "open" => ("○", "calm"), _ => glyph(same[0]) };
                span.(tone) { (glyph.repeat(same.len())) }
            }
        }
    }
}

/// Shows the durations of runs as bars, the newest last. The table of the runs has the same figures.
pub(super) fn durations(runs: &[OccurrenceJson]) -> Markup {
    let ended: Vec<(&OccurrenceJson, u64)> = runs
        .iter()
        .rev()
        .filter_map(|run| Some((run, run.duration_ms?)))
        .collect();
    let mut sorted: Vec<u64> = ended.iter().map(|(_, took)| *took).collect();
    sorted.sort_unstable();
    let (Some(longest), true) = (sorted.last().copied(), ended.len() > 1) else {
        return html! {};
    };
    let (median, p95) = (quantile(&sorted, 50), quantile(&sorted, 95));
    let height = |took: u64| (took * CHART_HEIGHT / longest.max(1)).max(2);
    let width = ended.len() * BAR_WIDTH;
    let label = format!(
        "Durations of the last {} runs: half within {}, 95 of 100 within {}, the longest {}; the table below has them",
        ended.len(),
        millis(median),
        millis(p95),
        millis(longest)
    );
    html! {
        figure.chart {
            figcaption {
                "Took: p50 " (millis(median)) ", p95 " (millis(p95)) ", longest " (millis(longest)) "; failures are hatched."
            }
            svg.bars role="img" aria-label=(label) width=(width) height=(CHART_HEIGHT + 12)
                viewBox={ "0 -12 " (width) " " (CHART_HEIGHT + 12) } {
                defs {
                    pattern #hatch width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                        rect.bad width="2.5" height="4" {}
                    }
                }
                line.p95 x1="0" x2=(width) y1=(CHART_HEIGHT - height(p95)) y2=(CHART_HEIGHT - height(p95)) {}
                @for (at, (run, took)) in ended.iter().enumerate() {
                    @let is_bad = is_failure(&run.state);
                    a href=(run_path(&run.id)) aria-label={ (run.state.replace('_', " ")) ", " (millis(*took)) } {
                        rect.(if is_bad { "bad" } else { "good" }) x=(at * BAR_WIDTH + 1) y=(CHART_HEIGHT - height(*took))
                            width=(BAR_WIDTH - 2) height=(height(*took)) fill=[is_bad.then_some("url(#hatch)")] {
                            title { (run.state.replace('_', " ")) ", " (millis(*took)) ", " (run.queued_at) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a quantile of sorted figures, by the nearest rank.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_dots_and_words() {
        let states = ["running", "failed", "failed", "completed", "timed_out"];
        assert_eq!(
            summary(&states),
            "1 succeeded, 2 failed, 1 timed out, 1 open, last open"
        );
        let shown = dots(&states).into_string();
        let dots = "<span class=\"bad\">▲</span><span class=\"good\">●</span><span class=\"bad\">▲▲</span>\
                    <span class=\"calm\">○</span>";
        assert!(shown.contains(dots), "{shown}");
    }

    #[test]
    fn a_quantile_is_one_of_the_figures() {
        assert_eq!(quantile(&[], 95), 0);
        assert_eq!(quantile(&[7], 50), 7);
        assert_eq!(quantile(&[1, 2, 3, 4], 50), 2);
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(quantile(&hundred, 95), 95);
    }
}
