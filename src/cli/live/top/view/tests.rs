//! Appearance of the screen, and that no size and no status breaks it.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::Color;
use tokio::time::Instant;

use super::super::model::{Focus, Model, Step};
use super::{Palette, View, draw, palette};
use crate::cli::live::samples;
use crate::cli::live::top::asking::Request;
use crate::cli::live::top::{Done, pressed};
use ganger_pool::overview::{Status, UnreadQueueStatus};
use ganger_pool::status::{BacklogStatus, PoolState, PoolStatus, ScalingStatus, WorkerStatus};
use ganger_queue::dead_letter::Group;
use ganger_telemetry::metrics::spread::Spread;
use ganger_telemetry::metrics::{Counts, Details};

const PLAIN: Palette = Palette { colours: false };

/// A daemon that has been up for `uptime` seconds.
fn status(uptime: u32, pools: Vec<PoolStatus>) -> Status {
    samples::status(Duration::from_secs(uptime.into()), pools)
}

fn worker(slot: usize) -> WorkerStatus {
    let busy = slot % 3 != 1;
    WorkerStatus {
        slot,
        pid: u32::try_from(20_000 + slot).ok(),
        state: if busy { "busy" } else { "idle" }.to_owned(),
        in_flight: usize::from(busy),
        window: 8,
        #[expect(clippy::cast_precision_loss, reason = "it is small")]
        message_age: busy.then_some(0.4 + slot as f64),
        message: busy.then(|| format!("order {slot}")),
        answered: 1000 + slot as u64,
        progress: (slot == 2).then(|| "page 3 of 漢字 \u{1b}[2J".to_owned()),
        memory_bytes: Some((12 + slot as u64) << 20),
        cpu_seconds: None,
    }
}

/// A pool that has worked for `uptime` seconds, faster and slower by turns.
fn pool(name: &str, workers: usize, uptime: u32) -> PoolStatus {
    let seconds = u64::from(uptime);
    let done: u64 = (0..seconds).map(|second| 40 + second * 37 % 60).sum();
    let failed = |every: u64| seconds / every;
    let reasons = [
        ("crashed", failed(50)),
        ("rejected", 0),
        ("timed_out", failed(7)),
    ];
    #[expect(clippy::cast_precision_loss, reason = "they are small")]
    let spent = (0..seconds)
        .map(|second| (second * 13 % 40) as f64 * 0.03)
        .sum();
    PoolStatus {
        name: name.to_owned(),
        source: "main".to_owned(),
        kind: "kafka".to_owned(),
        queue: "orders".to_owned(),
        state: PoolState::Running,
        workers_wanted: workers,
        workers_configured: workers,
        source_connected: true,
        out: 7,
        counts: Counts {
            done,
            retried: failed(7),
            dead: failed(50),
            p50_ms: 12.4,
            p99_ms: 843.0,
            ..Counts::default()
        },
        details: Details {
            failed: reasons
                .map(|(reason, count)| (reason.to_owned(), count))
                .into(),
            dead: BTreeMap::from([("crashed".to_owned(), failed(50))]),
            task_duration: Spread {
                counts: vec![0, done],
                seconds: spent,
            },
            ..Details::default()
        },
        done_per_second: 71.3,
        backlog: Some(BacklogStatus {
            depth: 1227,
            at_least: false,
            oldest_age_seconds: Some(12.5),
        }),
        workers: (0..workers)
            .map(|slot| WorkerStatus {
                cpu_seconds: Some(f64::from(uptime) * if slot == 0 { 1.25 } else { 0.04 }),
                ..worker(slot)
            })
            .collect(),
        ..PoolStatus::default()
    }
}

/// Model after a minute and a half with these pools.
fn after(now: Instant, pools: impl Fn(u32) -> Vec<PoolStatus>) -> Model {
    let mut model = Model::new("ganger.toml".to_owned(), Duration::from_secs(1));
    for uptime in 7100..7190 {
        model.saw(status(uptime, pools(uptime)), now);
    }
    model
}

fn with_workers(now: Instant, workers: usize) -> Model {
    after(now, |uptime| {
        let mut paused = pool("reports", 1, 0);
        paused.state = PoolState::Paused;
        paused.backlog = None;
        (paused.done_per_second, paused.out) = (0.0, 0);
        paused.workers = vec![worker(1)];
        vec![pool("email", workers, uptime), paused]
    })
}

fn screen(model: &Model, now: Instant, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let palette = PLAIN;
    let view = View {
        model,
        palette,
        now,
    };
    let onto = |frame: &mut ratatui::Frame<'_>| draw(&view, frame.area(), frame.buffer_mut());
    terminal.draw(onto).unwrap();
    terminal.backend().buffer().clone()
}

/// Text of the screen, without the space at the lines' ends.
fn text(model: &Model, now: Instant, width: u16, height: u16) -> String {
    let buffer = screen(model, now, width, height);
    let lines = buffer.content.chunks(usize::from(width)).map(|cells| {
        let (mut line, mut covered) = (String::new(), 0);
        for cell in cells {
            // What is two columns wide has an empty cell behind it.
            if covered == 0 {
                line.push_str(cell.symbol());
                covered = palette::width(cell.symbol());
            }
            covered = covered.saturating_sub(1);
        }
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn press(model: &mut Model, keys: &[KeyCode]) -> Vec<Done> {
    let press = |key: &KeyCode| pressed(model, KeyEvent::new(*key, KeyModifiers::NONE));
    keys.iter().map(press).collect()
}

#[test]
fn a_small_screen_with_four_workers() {
    let now = Instant::now();
    insta::assert_snapshot!(text(&with_workers(now, 4), now, 80, 24));
}

#[test]
fn a_small_screen_with_four_hundred_workers() {
    let now = Instant::now();
    let mut model = with_workers(now, 400);
    press(&mut model, &[KeyCode::Tab, KeyCode::End, KeyCode::PageUp]);
    insta::assert_snapshot!(text(&model, now, 80, 24));
}

#[test]
fn a_large_screen_with_four_workers() {
    let now = Instant::now();
    insta::assert_snapshot!(text(&with_workers(now, 4), now, 200, 50));
}

#[test]
fn a_large_screen_with_four_hundred_workers() {
    let now = Instant::now();
    let mut model = with_workers(now, 400);
    press(
        &mut model,
        &[
            KeyCode::Tab,
            KeyCode::Char('o'),
            KeyCode::Down,
            KeyCode::Char('K'),
        ],
    );
    insta::assert_snapshot!(text(&model, now, 200, 50));
}

#[test]
fn a_source_that_is_down() {
    let now = Instant::now();
    let model = after(now, |uptime| {
        let mut down = pool("email", 2, uptime);
        down.state = PoolState::SourceDown;
        down.source_problem = Some(
            "broker.example:9092 can't be reached: Connection refused (os error 111); tried again \
             in 4 s; the last that answered was broker-2.example:9092"
                .to_owned(),
        );
        down.autoscale = Some(ScalingStatus {
            min: 1,
            max: 16,
            why: "its source is unavailable".to_owned(),
            queued: Some(17),
            ..ScalingStatus::default()
        });
        vec![down]
    });
    insta::assert_snapshot!(text(&model, now, 80, 24));
}

#[test]
fn the_keys_are_explained() {
    let now = Instant::now();
    let mut model = with_workers(now, 4);
    press(&mut model, &[KeyCode::Char('?')]);
    insta::assert_snapshot!(text(&model, now, 80, 24));
    press(&mut model, &[KeyCode::Esc]);
    assert!(text(&model, now, 80, 24).contains("workers: 4"));
}

#[test]
fn dead_letters_are_counted_by_error() {
    let now = Instant::now();
    let mut model = with_workers(now, 4);
    let asked = press(&mut model, &[KeyCode::Char('e')]);
    let source = model.pool().unwrap().source.clone();
    assert!(
        matches!(&asked[..], [Done::Asked(Request::Errors { pool, source: of })] if pool == "email" && *of == source)
    );
    let lines = |model: &Model| {
        let text = text(model, now, 80, 24);
        let lines = text
            .lines()
            .skip_while(|line| !line.contains("dead letters of email by error"));
        lines.skip(1).take(4).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&model)[0], "reading them");
    model.saw_errors("reports", Ok(Vec::new()));
    assert_eq!(lines(&model)[0], "reading them", "of another pool");
    model.saw_errors("email", Err("no answer".to_owned()));
    assert_eq!(lines(&model)[0], "no answer");
    model.saw_errors("email", Ok(Vec::new()));
    assert_eq!(lines(&model)[0], "no dead letters");
    let group = |count, error: &str| Group {
        pool: "email".to_owned(),
        reason: "rejected".to_owned(),
        error: error.to_owned(),
        count,
        last_failed_at: "2026-11-27T10:00:00Z".to_owned(),
        ..Group::default()
    };
    let evil = "no \u{1b}[2J address";
    model.saw_errors("email", Ok(vec![group(1200, evil), group(7, "bounced")]));
    insta::assert_snapshot!(lines(&model).join("\n"));
    press(&mut model, &[KeyCode::Char('e')]);
    assert!(model.errors.is_none() && text(&model, now, 80, 24).contains("workers: 4"));
}

#[test]
fn a_daemon_without_pools() {
    let now = Instant::now();
    let model = after(now, |_| Vec::new());
    insta::assert_snapshot!(text(&model, now, 80, 8));
}

#[test]
fn queues_that_no_pool_reads_are_named() {
    let now = Instant::now();
    let unread = |queue: &str| UnreadQueueStatus {
        source: "main".to_owned(),
        queue: queue.to_owned(),
        backlog: BacklogStatus {
            depth: 3,
            at_least: false,
            oldest_age_seconds: Some(63.0),
        },
    };
    let mut model = Model::new("ganger.toml".to_owned(), Duration::from_secs(1));
    let mut told = status(7200, Vec::new());
    told.unread_queues = vec![unread("emial"), unread("reprots")];
    model.saw(told, now);
    insta::assert_snapshot!(text(&model, now, 120, 3));
}

#[test]
fn a_daemon_that_has_never_answered() {
    let now = Instant::now();
    let mut model = Model::new("ganger.toml".to_owned(), Duration::from_secs(1));
    insta::assert_snapshot!("asked", text(&model, now, 80, 4));
    model.missed("no daemon answers at /run/ganger.sock".to_owned());
    insta::assert_snapshot!("not_there", text(&model, now, 80, 4));
}

#[test]
fn a_daemon_that_is_away_and_comes_back() {
    let now = Instant::now();
    let later = now + Duration::from_secs(83);
    let head = |model: &Model| {
        let text = text(model, later, 80, 24);
        text.lines().nth(1).unwrap().to_owned()
    };
    let mut model = with_workers(now, 4);
    assert_eq!(
        head(&model),
        "ganger.toml does not answer; this status is 1m 23s old"
    );
    model.missed("no daemon answers at ganger.sock".to_owned());
    assert_eq!(
        head(&model),
        "ganger.toml is disconnected, this status is 1m 23s old: no daemon answers at ga…"
    );
    model.saw(status(1, vec![pool("email", 4, 1)]), later);
    assert_eq!(head(&model), "ganger.toml: ready");
}

#[test]
fn what_is_asked_for_and_what_came_of_it() {
    let now = Instant::now();
    let foot = |model: &Model, now| {
        let text = text(model, now, 80, 24);
        text.lines().last().unwrap().to_owned()
    };
    let mut model = with_workers(now, 4);
    press(&mut model, &[KeyCode::Char('p')]);
    assert_eq!(
        foot(&model, now),
        "pause `email`: stop its intake, keep its workers? y/n"
    );
    press(&mut model, &[KeyCode::Esc, KeyCode::Char('+')]);
    assert_eq!(
        foot(&model, now),
        "scale `email` to 5 worker(s)? Enter, + -, number, c: configured, Esc"
    );
    // Four are configured.
    press(&mut model, &[KeyCode::Char('9'), KeyCode::Enter]);
    assert_eq!(
        foot(&model, now),
        "scale `email` to 9 worker(s)? configured: 4. y/n"
    );
    press(&mut model, &[KeyCode::Esc]);
    model.note("no\u{1b}[2J pool".to_owned(), true, now);
    assert_eq!(foot(&model, now), "no\\u{1b}[2J pool");
    let later = now + Duration::from_mins(1);
    let keys = foot(&model, later);
    assert!(
        keys.starts_with("q quit  ? help  p pause  s + - scale"),
        "{keys}"
    );
}

#[test]
fn how_to_leave_is_said_on_the_smallest_screen() {
    let now = Instant::now();
    let model = with_workers(now, 4);
    for (width, said) in [(1, "q"), (5, "q"), (6, "q quit"), (13, "q quit")] {
        assert_eq!(text(&model, now, width, 1).trim_end(), said, "{width}");
    }
}

#[test]
fn colours_are_there_only_where_they_are_wanted() {
    let now = Instant::now();
    let model = with_workers(now, 4);
    let colours = |colours| {
        let area = Rect::new(0, 0, 200, 50);
        let mut buffer = Buffer::empty(area);
        let view = View {
            model: &model,
            palette: Palette { colours },
            now,
        };
        draw(&view, area, &mut buffer);
        let coloured = |cell: &&ratatui::buffer::Cell| {
            [cell.fg, cell.bg]
                .iter()
                .any(|colour| *colour != Color::Reset)
        };
        buffer.content.iter().filter(coloured).count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 20);
}

#[test]
fn a_chosen_worker_stays_chosen_while_others_come_and_go() {
    let now = Instant::now();
    let mut model = with_workers(now, 10);
    press(&mut model, &[KeyCode::Tab]);
    model.step(Step::Down(6));
    assert_eq!(model.worker().unwrap().slot, 6);
    let mut fewer = pool("email", 10, 7200);
    fewer.workers.drain(..3);
    model.saw(status(7200, vec![pool("aaa", 1, 7200), fewer]), now);
    assert_eq!(model.pool().unwrap().name, "email");
    assert_eq!(model.worker().unwrap().slot, 6);
    model.saw(status(7201, vec![pool("email", 2, 7201)]), now);
    assert_eq!(model.worker().unwrap().slot, 1, "the last of those left");
    model.saw(status(7202, Vec::new()), now);
    assert!(model.pool().is_none() && model.worker().is_none());
}

/// Texts that are hard to show.
const TEXTS: [&str; 7] = [
    "",
    "a",
    "email",
    "漢字漢字漢字漢字漢字",
    "e\u{301}\u{301}",
    "\u{1b}[2J\n\t\u{202e}",
    "👩‍👩‍👧‍👦 and more",
];

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(TEXTS.as_slice()).prop_map(str::to_owned),
        ".{0,40}",
    ]
}

prop_compose! {
    fn any_worker()(
        slot: usize,
        pid: Option<u32>,
        state in any_text(),
        in_flight: usize,
        age in proptest::option::of(any::<f64>()),
        answered: u64,
        progress in proptest::option::of(any_text()),
    ) -> WorkerStatus {
        WorkerStatus { slot, pid, state, in_flight, window: in_flight, message_age: age, message: progress.clone(), answered, progress, memory_bytes: Some(answered), cpu_seconds: age }
    }
}

prop_compose! {
    fn any_pool()(
        (name, queue, problem) in (any_text(), any_text(), proptest::option::of(any_text())),
        state in proptest::sample::select(&[
            PoolState::Starting, PoolState::Running, PoolState::Degraded, PoolState::Open,
            PoolState::SourceDown, PoolState::Paused, PoolState::Draining, PoolState::Drained,
        ]),
        (wanted, scaled, out, unaccounted) in any::<(usize, Option<usize>, usize, i64)>(),
        (done, retried, rate, p99_ms) in any::<(u64, u64, f64, f64)>(),
        failed in proptest::collection::btree_map(any_text(), any::<u64>(), 0..9),
        spread in (proptest::collection::vec(any::<u64>(), 0..3), any::<f64>()),
        lag in proptest::collection::btree_map(any_text(), any::<u64>(), 0..3),
        workers in proptest::collection::vec(any_worker(), 0..20),
        at in 0_u32..1_000_000,
    ) -> PoolStatus {
        PoolStatus {
            source_problem: problem.clone(),
            breaker_error: problem,
            autoscale: scaled.map(|max| ScalingStatus { max, why: queue.clone(), queued: Some(done), ..ScalingStatus::default() }),
            counts: Counts { done, retried, p99_ms, ..Counts::default() },
            details: Details {
                dead: failed.clone(),
                failed,
                task_duration: Spread { counts: spread.0, seconds: spread.1 },
                ..Details::default()
            },
            age_seconds: f64::from(at) / 1000.0,
            workers_wanted: wanted,
            workers_configured: wanted,
            done_per_second: rate,
            name, queue, state, scaled, out, unaccounted, lag, workers,
            ..PoolStatus::default()
        }
    }
}

proptest! {
    #[test]
    fn no_size_and_no_status_breaks_the_screen(
        looks in proptest::collection::vec(proptest::collection::vec(any_pool(), 0..6), 1..5),
        keys in proptest::collection::vec(proptest::sample::select(
            &[' ', 'j', 'k', 'G', '\t', 'p', 's', '+', '-', '7', '\n', 'y', 'n', 'K', 'o', 'd', 'r', 'x', '?'],
        ), 0..12),
        (width, height) in prop_oneof![(0_u16..40, 0_u16..12), (0_u16..250, 0_u16..80)],
        away in proptest::option::of(any_text()),
    ) {
        let now = Instant::now();
        let mut model = Model::new("any".to_owned(), Duration::from_secs(1));
        for pools in looks {
            model.saw(status(5, pools), now);
            for key in &keys {
                let key = match key {
                    '\t' => KeyCode::Tab,
                    '\n' => KeyCode::Enter,
                    key => KeyCode::Char(*key),
                };
                press(&mut model, &[key]);
            }
            model.focus = if keys.len() % 2 == 0 { Focus::Pools } else { Focus::Workers };
        }
        if let Some(why) = away {
            model.missed(why);
        }
        let buffer = screen(&model, now, width, height);
        let acts = |cell: &ratatui::buffer::Cell| cell.symbol().contains(char::is_control);
        prop_assert!(!buffer.content.iter().any(acts));
    }
}
