//! The project's goals, compared with the results. A goal is compared only where it is measured, and skipped
//! if it was not.

use crate::common::goal::Goal;
use crate::common::show::{milliseconds, percent};
use crate::flow::Flow;
use crate::inserts::Inserts;
use crate::latency::Latency;
use crate::load::Loaded;
use crate::peers::Peer;
use crate::report::Found;
use crate::scaling::Size;
use crate::server::Words;

/// Returns the goals for which there are results.
pub(crate) fn compare(found: &Found, words: &Words) -> Vec<Goal> {
    let mut goals: Vec<Goal> = found.throughput.iter().map(against_raw).collect();
    let ours = found.latency.iter().filter(|latency| latency.is_ours);
    goals.extend(ours.map(|latency| latency_within(latency, words.handler_within_ms)));
    goals.extend(flat(&found.scaling));
    let inserts = found.inserts.iter().filter(|inserts| inserts.is_judged());
    goals.extend(inserts.map(unhindered));
    goals.extend(found.load.iter().flat_map(load));
    goals.extend(found.peers.iter().filter_map(peer));
    goals
}

fn against_raw(flow: &Flow) -> Goal {
    let cell = flow.cell;
    let prefetch = cell
        .prefetch
        .map_or("auto".to_owned(), |prefetch| prefetch.to_string());
    let what = format!(
        "{} bytes, {} workers, prefetch {prefetch}, against the raw loop",
        cell.body_bytes, cell.workers
    );
    Goal::share(what, 0.6, flow.daemon_to_raw)
}

fn latency_within(latency: &Latency, most_ms: f64) -> Goal {
    let p99 = latency.p99_ms;
    let goal = format!("≤ {most_ms:.0} ms");
    let what = "idle queue to handler, p99";
    Goal::new(what, goal, milliseconds(p99), p99 <= most_ms)
}

/// Makes the goal for the cost at the largest size.
fn flat(sizes: &[Size]) -> Option<Goal> {
    let (first, last) = (sizes.first()?, sizes.last()?);
    let what = format!(
        "cost per message, {} to {} queues",
        first.queues, last.queues
    );
    let met = (0.8..=1.2).contains(&last.cost);
    Some(Goal::new(what, "flat within 20 %", percent(last.cost), met))
}

fn unhindered(inserts: &Inserts) -> Goal {
    let share = inserts.p99_to_alone;
    let what = format!("p99 of an insert beside {}, to alone", inserts.describe());
    Goal::new(what, "≤ 200 %", percent(share), share <= 2.0)
}

fn load(loaded: &Loaded) -> [Goal; 2] {
    let growth = loaded.growth();
    [
        Goal::share(loaded.describe(), 0.9, loaded.last_to_first),
        Goal::new(
            "its table and indexes at their largest, to the first third",
            "≤ 150 %",
            percent(growth),
            growth <= 1.5,
        ),
    ]
}

fn peer(peer: &Peer) -> Option<Goal> {
    let (times, least) = (peer.ganger_to_it?, peer.goal?);
    let what = format!("two workers of its language, against {}", peer.name);
    let goal = format!("≥ {least:.0} ×");
    Some(Goal::new(
        what,
        goal,
        format!("{times:.1} ×"),
        times >= least,
    ))
}
