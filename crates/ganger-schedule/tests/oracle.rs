//! Asks `cronsim` of PyPI, which follows Debian's cron, about thousands of random expressions, zones and instants,
//! half of them near a change of the clock. Where the two may differ, and why, is said in `Question::difference`; and in
//! what is not asked: a range of one value with a step (`5-5/3` is 5; cronsim goes on to the last value of the field), a
//! step that is longer than its field (`*/90`, which is refused here), and ranges that wrap around, `15W`, `L-3`, `H`
//! and years, which cronsim does not have.

#![expect(clippy::unwrap_used, reason = "what can not be asked fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use fastrand::Rng;
use ganger_schedule::cron::Dialect;
use ganger_schedule::timing::{Rule, Timing};
use ganger_schedule::wall::Dst;
use ganger_schedule::zone::Zones;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Number of questions; a third of them are asked without `GANGER_TEST_LONG`.
const QUESTIONS: usize = 10_000;
/// Number of interpreters that answer.
const PARTS: usize = 2;
/// Number of slots that are compared.
const SLOTS: usize = 4;
const HOUR: i64 = 3600;

/// The interpreter that `tests/run` has prepared: one that has cronsim.
fn python() -> PathBuf {
    let prepared = std::env::var_os("GANGER_TEST_PYTHON").map(PathBuf::from);
    let in_target = || {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .with_file_name("venv")
            .join("bin/python3")
    };
    let python = prepared.unwrap_or_else(in_target);
    assert!(
        python.exists(),
        "no Python with cronsim at {}: run tests/run, which prepares it",
        python.display()
    );
    python
}

#[derive(Debug, Clone)]
struct Question {
    expression: String,
    zone: String,
    at: i64,
    is_backwards: bool,
}

fn one_of(rng: &mut Rng, all: &[&str]) -> String {
    (*rng.choice(all).unwrap()).to_owned()
}

/// Returns a field of numbers within bounds.
fn field(rng: &mut Rng, min: i64, max: i64) -> String {
    let mut number = || rng.i64(min..=max);
    let (one, other, step) = (number(), number(), 1 + number() % 15);
    let (low, high) = (one.min(other), one.max(other));
    let step = step.min(max - min);
    match rng.u8(..10) {
        0..=2 => "*".to_owned(),
        3 => format!("*/{step}"),
        4 => format!("{low}-{high}"),
        5 if low < high => format!("{low}-{high}/{step}"),
        6 if one < max => format!("{one}/{step}"),
        7 => format!("{one},{other}"),
        _ => one.to_string(),
    }
}

fn expression(rng: &mut Rng) -> String {
    let minute = field(rng, 0, 59);
    let hour = match rng.bool() {
        true => field(rng, 0, 23),
        // Where clocks are changed.
        false => field(rng, 0, 3),
    };
    let day = match rng.u8(..8) {
        0 => one_of(rng, &["L", "LW", "1,L", "31", "29-31", "*/30"]),
        1 | 2 => field(rng, 1, 31),
        _ => "*".to_owned(),
    };
    let month = match rng.u8(..6) {
        0 => field(rng, 1, 12),
        1 => one_of(rng, &["FEB", "MAR,OCT", "3-4", "mar-nov", "10-11"]),
        _ => "*".to_owned(),
    };
    let weekday = match rng.u8(..6) {
        0 => field(rng, 0, 6),
        1 => one_of(
            rng,
            &[
                "SUN", "7", "5-7", "mon-fri", "0#2", "7#1", "5L", "0L", "5#5", "1/2", "*/2", "*/3",
            ],
        ),
        _ => "*".to_owned(),
    };
    let fields = format!("{minute} {hour} {day} {month} {weekday}");
    match rng.u8(..8) {
        0 => format!("{} {fields}", field(rng, 0, 59)),
        _ => fields,
    }
}

/// Returns the changes of a zone from 1971 to 2037.
fn changes(zone: &str) -> Vec<i64> {
    let zone = TimeZone::get(zone).unwrap();
    let changes = zone.following("1971-01-01T00:00Z".parse().unwrap());
    let seconds = changes.map(|change| change.timestamp().as_second());
    seconds
        .take_while(|second| *second < 2_140_000_000)
        .collect()
}

fn questions(zones: &Zones, count: usize) -> Vec<Question> {
    let mut rng = Rng::with_seed(36);
    let names: Vec<(String, Vec<i64>)> = zones
        .names()
        .into_iter()
        .filter(|name| !name.contains("posix") && !name.contains("right") && name != "Factory")
        .map(|name| (name.clone(), changes(&name)))
        .collect();
    let mut ask = |_| {
        let (zone, changes) = rng.choice(&names).unwrap();
        let near = rng.choice(changes).filter(|_| rng.bool());
        let at = match near {
            Some(change) => change + rng.i64(-36 * HOUR..36 * HOUR),
            None => rng.i64(315_532_800..2_140_000_000),
        };
        Question {
            expression: expression(&mut rng),
            zone: zone.clone(),
            at,
            is_backwards: rng.u8(..4) == 0,
        }
    };
    (0..count).map(&mut ask).collect()
}

impl Question {
    /// Returns cronsim's slots; `None` if it refuses.
    fn parse(answer: &str) -> Option<Vec<i64>> {
        let numbers = answer.split_whitespace().map(str::parse);
        numbers.collect::<Result<_, _>>().ok()
    }

    /// Returns why cronsim answers otherwise, if it may: there is a change of the clock within the slots, and
    ///
    /// - *there are seconds*: cronsim then takes every expression for an interval, since Debian's cron has none. Here
    ///   minute and hour decide, so that `0 30 2 * * *` is `30 2 * * *`.
    /// - *the change is in or by half an hour, or at midnight, and the expression is an interval*: cronsim sets minutes
    ///   to 0 or the hour to midnight, which there may be a time that does not exist, and goes on from it: it leaves out
    ///   slots, or returns one that the expression does not mean.
    /// - *it goes backwards and a time is repeated*: cronsim takes the first pass for the second, or both for one, and
    ///   does not find again what it finds forwards.
    fn difference(&self, slots: &[i64]) -> Option<&'static str> {
        const MARGIN: i64 = 48 * HOUR;
        let zone = TimeZone::get(&self.zone).unwrap();
        let all = slots.iter().copied().chain([self.at]);
        let (first, last) = (all.clone().min()? - MARGIN, all.max()? + MARGIN);
        let after = Timestamp::from_second(first).unwrap();
        let near = zone
            .following(after)
            .take_while(|change| change.timestamp().as_second() < last);
        let has_seconds = self.expression.split_whitespace().count() == 6;
        let mut found = near.filter_map(|change| {
            let before = zone.to_offset(change.timestamp() - jiff::SignedDuration::from_secs(1));
            let by = change.offset().seconds() - before.seconds();
            let from = before.to_datetime(change.timestamp());
            let until = change.offset().to_datetime(change.timestamp());
            let is_odd =
                by % 3600 != 0 || from.minute() != 0 || from.hour() == 0 || until.hour() == 0;
            match () {
                () if has_seconds && by != 0 => Some("seconds"),
                () if is_odd && by > 0 => Some("odd gap"),
                () if self.is_backwards && by < 0 => Some("backwards"),
                () => None,
            }
        });
        found.next()
    }

    fn timing(&self, zones: &Zones) -> Option<Timing> {
        let rule = Rule::parse(&self.expression, Dialect::Standard, "").ok()?;
        Some(Timing {
            rules: vec![rule],
            zone: zones.get(&self.zone).unwrap(),
            dst: Dst::Standard,
        })
    }

    /// Returns our slots.
    fn slots(&self, zones: &Zones) -> Option<Vec<i64>> {
        let timing = self.timing(zones)?;
        let mut at = Timestamp::from_second(self.at).unwrap();
        let mut slots = Vec::new();
        while slots.len() < SLOTS {
            at = match self.is_backwards {
                true => timing.previous(at).unwrap()?,
                false => timing.next(at).unwrap()?,
            };
            slots.push(at.as_second());
        }
        Some(slots)
    }
}

/// Returns cronsim's answers.
fn answers(questions: &[Question]) -> Vec<Option<Vec<i64>>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cronsim_slots.py");
    let mut child = Command::new(python())
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: Vec<String> = questions
        .iter()
        .map(|question| {
            let count = i64::try_from(SLOTS).unwrap() * if question.is_backwards { -1 } else { 1 };
            let Question {
                expression,
                zone,
                at,
                ..
            } = question;
            format!("{expression}\t{zone}\t{at}\t{count}\n")
        })
        .collect();
    let writer = thread::spawn(move || {
        lines
            .iter()
            .for_each(|line| input.write_all(line.as_bytes()).unwrap());
    });
    let output = BufReader::new(child.stdout.take().unwrap());
    let answers = output
        .lines()
        .map(|line| Question::parse(&line.unwrap()))
        .collect();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success(), "cronsim failed");
    answers
}

#[test]
fn slots_are_those_of_cronsim() {
    let zones = Zones::load();
    let count = match std::env::var_os("GANGER_TEST_LONG") {
        Some(_) => QUESTIONS,
        None => QUESTIONS / 3,
    };
    let questions = questions(&zones, count);
    let parts: Vec<Vec<Question>> = questions
        .chunks(count.div_ceil(PARTS))
        .map(<[_]>::to_vec)
        .collect();
    let asked = parts
        .into_iter()
        .map(|part| thread::spawn(move || answers(&part)));
    let asked: Vec<_> = asked.collect();
    let ours: Vec<_> = questions
        .iter()
        .map(|question| question.slots(&zones))
        .collect();
    let answers = asked.into_iter().flat_map(|part| part.join().unwrap());
    let (mut wrong, mut known) = (Vec::new(), Vec::new());
    for ((question, ours), theirs) in questions.iter().zip(ours).zip(answers) {
        if ours == theirs {
            continue;
        }
        let all = [ours.clone(), theirs.clone()]
            .map(Option::unwrap_or_default)
            .concat();
        match question.difference(&all) {
            Some(reason) => known.push(reason),
            None => wrong.push(format!(
                "{question:?}\n  ours   {ours:?}\n  theirs {theirs:?}"
            )),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What may differ hides nothing else.
    assert!(known.len() * 200 < count, "{known:?}");
}
