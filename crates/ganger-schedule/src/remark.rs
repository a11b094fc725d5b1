//! Remarks on slots that a change of the clock moves, repeats or leaves out, for people who ask when a
//! schedule runs.

use std::fmt;

use jiff::civil::{DateTime, Time};
use jiff::{SignedDuration, Timestamp};

use crate::problem::Broken;
use crate::timing::{Rule, Timing};
use crate::wall::{Fold, Gap, Wall};
use crate::zone::{SECOND, Stretch, beyond};

/// Number of changes of a clock between two slots that are looked at.
const CHANGES_MAX: usize = 1000;

/// Civil times of one expression that a gap swallows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// The first of them.
    pub first: DateTime,
    /// Number of them.
    pub times: u64,
}

/// Passes of a civil time that exists twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The first.
    First,
    /// The second.
    Second,
}

/// Effect of a change of the clock on a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remark {
    /// The slot is at the end of a gap, in place of times that do not exist.
    Moved(Missing),
    /// Times before the slot do not exist, and are left out.
    LeftOut(Missing),
    /// The slot's civil time exists twice.
    Twice {
        /// The civil time.
        civil: Time,
        /// The slot's pass.
        pass: Pass,
        /// True if the other pass is a slot, too.
        runs_both: bool,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, time) = (self.first.date(), short(self.first.time()));
        match self.times {
            1 => write!(f, "{time} does not exist on {date}"),
            times => write!(f, "{time} and {} more do not exist on {date}", times - 1),
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved(missing) => {
                write!(f, "{missing}: runs once, when the clock has gone forward")
            }
            Self::LeftOut(missing) => write!(f, "before it, {missing}: left out"),
            Self::Twice {
                civil,
                pass,
                runs_both,
            } => {
                let civil = short(*civil);
                let pass = match pass {
                    Pass::First => "first",
                    Pass::Second => "second",
                };
                match runs_both {
                    true => write!(f, "{civil} comes twice: the {pass} of two runs"),
                    false => write!(f, "{civil} comes twice: runs at the {pass} only"),
                }
            }
        }
    }
}

fn short(time: Time) -> String {
    let format = if time.second() == 0 {
        "%H:%M"
    } else {
        "%H:%M:%S"
    };
    time.strftime(format).to_string()
}

impl Timing {
    /// Returns the remarks on a slot; `before` is the slot before it, or the instant from which on
    /// slots are asked for.
    ///
    /// # Errors
    /// If the changes of the clock can't be worked out.
    pub fn remarks(&self, before: Timestamp, slot: Timestamp) -> Result<Vec<Remark>, Broken> {
        let mut remarks = Vec::new();
        for rule in &self.rules {
            let cron = match rule {
                Rule::Cron(cron) => cron,
                Rule::At(at) if *at == slot => {
                    remarks.extend(self.twice(slot, false)?);
                    continue;
                }
                Rule::At(_) | Rule::Every(_) => continue,
            };
            let wall = self.wall(cron);
            let (gap, fold) = wall.rules();
            let own = wall.next(earlier(slot)?)? == Some(slot);
            let stretch = self.zone.stretch(slot)?;
            if own && let Some(missing) = wall.missing_before(&stretch) {
                let is_here = stretch.from.is_some_and(|(from, _)| from == slot);
                remarks.extend((is_here && gap == Gap::After).then_some(Remark::Moved(missing)));
            }
            if own {
                remarks.extend(self.twice(slot, fold == Fold::Both)?);
            }
            if gap == Gap::Skip {
                remarks.extend(self.left_out(wall, before, slot)?);
            }
        }
        remarks.dedup();
        Ok(remarks)
    }

    /// Returns the remark on a slot whose civil time exists twice.
    fn twice(&self, slot: Timestamp, runs_both: bool) -> Result<Option<Remark>, Broken> {
        let stretch = self.zone.stretch(slot)?;
        Ok(pass(&stretch, slot).map(|pass| Remark::Twice {
            civil: stretch.offset.to_datetime(slot).time(),
            pass,
            runs_both,
        }))
    }

    /// Returns the times that gaps after `before` and not after `slot` swallow, the latest gap first.
    fn left_out(
        &self,
        wall: Wall<'_>,
        before: Timestamp,
        slot: Timestamp,
    ) -> Result<Vec<Remark>, Broken> {
        let mut remarks = Vec::new();
        let mut at = slot;
        for _ in 0..CHANGES_MAX {
            let stretch = self.zone.stretch(at)?;
            let Some((from, _)) = stretch.from.filter(|(from, _)| *from > before) else {
                break;
            };
            remarks.extend(wall.missing_before(&stretch).map(Remark::LeftOut));
            at = earlier(from)?;
        }
        Ok(remarks)
    }
}

impl Wall<'_> {
    /// Returns the civil times of the expression in the gap before a stretch.
    fn missing_before(self, stretch: &Stretch) -> Option<Missing> {
        let (from, before) = stretch.from?;
        let (first, end) = (before.to_datetime(from), stretch.offset.to_datetime(from));
        let missing = Missing {
            first: self.cron.at_or_after(first)?,
            times: self.cron.count(first, end),
        };
        (missing.times > 0).then_some(missing)
    }
}

/// Returns the pass of a slot whose civil time exists twice.
fn pass(stretch: &Stretch, slot: Timestamp) -> Option<Pass> {
    let repeated = |before: i32, after: i32| SignedDuration::from_secs(i64::from(before - after));
    let offset = stretch.offset.seconds();
    let is_second = stretch.from.is_some_and(|(from, before)| {
        slot.duration_since(from) < repeated(before.seconds(), offset)
    });
    let is_first = stretch.until.is_some_and(|(until, after)| {
        until.duration_since(slot) <= repeated(offset, after.seconds())
    });
    match (is_first, is_second) {
        (true, _) => Some(Pass::First),
        (false, true) => Some(Pass::Second),
        (false, false) => None,
    }
}

fn earlier(at: Timestamp) -> Result<Timestamp, Broken> {
    at.checked_sub(SECOND).map_err(|_| beyond(at))
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;
    use crate::cron::Dialect;
    use crate::wall::Dst;
    use crate::zone::Zones;

    /// Slots on a day that have remarks, with those.
    fn remarked(cron: &str, zone: &str, dst: Dst, day: &str) -> Vec<String> {
        let zone = Zones::bundled().get(zone).unwrap();
        let rules = vec![Rule::parse(cron, Dialect::Standard, "name").unwrap()];
        let timing = Timing { rules, zone, dst };
        let day: Timestamp = format!("{day}T00:00:00Z").parse().unwrap();
        let mut before = day;
        let mut lines = Vec::new();
        for slot in timing.between(day, day + 24.hours(), 1000).unwrap() {
            for remark in timing.remarks(before, slot).unwrap() {
                lines.push(format!("{} {remark}", slot.strftime("%H:%M")));
            }
            before = slot;
        }
        lines
    }

    #[test]
    fn a_missing_time_is_moved_or_left_out() {
        let new_york = |cron| remarked(cron, "America/New_York", Dst::Standard, "2026-03-08");
        let end = ": runs once, when the clock has gone forward";
        let one = format!("07:00 02:30 does not exist on 2026-03-08{end}");
        assert_eq!(new_york("30 2 * * *"), [one]);
        let several = format!("07:00 02:15 and 1 more do not exist on 2026-03-08{end}");
        assert_eq!(new_york("15,45 2 * * *"), [several]);
        assert_eq!(
            new_york("*/30 * * * *"),
            ["07:00 before it, 02:00 and 1 more do not exist on 2026-03-08: left out"]
        );
        assert!(new_york("30 5 * * *").is_empty());
    }

    #[test]
    fn a_repeated_time_says_which_pass_runs() {
        let new_york = |cron, dst| remarked(cron, "America/New_York", dst, "2026-11-01");
        assert_eq!(
            new_york("30 1 * * *", Dst::Standard),
            ["05:30 01:30 comes twice: runs at the first only"]
        );
        let last = Dst::Explicit {
            gap: Gap::Skip,
            fold: Fold::Last,
        };
        assert_eq!(
            new_york("30 1 * * *", last),
            ["06:30 01:30 comes twice: runs at the second only"]
        );
        assert_eq!(
            new_york("*/30 * * * *", Dst::Standard),
            [
                "05:00 01:00 comes twice: the first of two runs",
                "05:30 01:30 comes twice: the first of two runs",
                "06:00 01:00 comes twice: the second of two runs",
                "06:30 01:30 comes twice: the second of two runs",
            ]
        );
    }

    #[test]
    fn a_single_time_says_which_pass_it_is() {
        let remarks = |slot: &str| {
            let at = slot.parse().unwrap();
            let timing = Timing {
                rules: vec![Rule::At(at)],
                zone: Zones::bundled().get("America/New_York").unwrap(),
                dst: Dst::Standard,
            };
            let remarks = timing.remarks(Timestamp::UNIX_EPOCH, at).unwrap();
            remarks.iter().map(Remark::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            remarks("2026-11-01T06:30Z"),
            ["01:30 comes twice: runs at the second only"]
        );
        assert!(remarks("2026-11-01T07:30Z").is_empty());
    }

    #[test]
    fn gaps_between_two_rare_slots_are_reported() {
        let left_out = remarked(
            "*/30 2 * * *",
            "America/New_York",
            Dst::Standard,
            "2026-03-09",
        );
        assert!(
            left_out.is_empty(),
            "the gap was before the first slot asked for"
        );
        // A day that a zone leaves out: Apia, 2011-12-30.
        assert_eq!(
            remarked("0 12 * * *", "Pacific/Apia", Dst::Standard, "2011-12-30"),
            [
                "10:00 12:00 does not exist on 2011-12-30: runs once, when the clock has gone forward"
            ]
        );
    }
}
