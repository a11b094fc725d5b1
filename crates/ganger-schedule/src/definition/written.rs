//! Days, hours and instants as a person writes them.

use jiff::civil::{Date, Time, Weekday};
use jiff::fmt::temporal::{Pieces, TimeZoneAnnotationKind};
use jiff::{Timestamp, ToSpan};

use crate::calendar::{DateRange, Hours};
use crate::problem::{Problem, quoted};
use crate::zone::{Zone, Zones, just_before};

pub(super) fn weekdays(text: &str) -> Result<Vec<Weekday>, Problem> {
    let names = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    let number = |name: &str| {
        names
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name.trim()))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        let wrong = format!("invalid day of the week {}", quoted(text));
        return Err(Problem::new(
            wrong,
            "write SUN to SAT, or a range such as MON-FRI",
        ));
    };
    let last = if last < first { last + 7 } else { last };
    let days = (first..=last).map(|day| i8::try_from(day % 7));
    let days = days.filter_map(|day| Weekday::from_sunday_zero_offset(day.ok()?).ok());
    Ok(days.collect())
}

pub(super) fn hours(text: &str) -> Result<Hours, Problem> {
    let read = || {
        let (from, until) = text.split_once('-')?;
        let time = |text: &str| text.trim().parse::<Time>().ok().filter(is_whole);
        let until = match until.trim() {
            "24:00" | "24" => None,
            until => Some(time(until)?),
        };
        // Midnight as an end is that of the next day.
        let until = until.filter(|until| *until != Time::midnight());
        Some((time(from)?, until))
    };
    let (from, until) = read().ok_or_else(|| {
        let wrong = format!("invalid hours {}", quoted(text));
        Problem::new(wrong, "write `09:00-17:30`")
    })?;
    Hours::new(from, until)
}

fn is_whole(time: &Time) -> bool {
    time.subsec_nanosecond() == 0
}

pub(super) fn days(text: &str) -> Result<DateRange, Problem> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = day(first).zip(day(last)).ok_or_else(|| {
        let wrong = format!("invalid day {}", quoted(text));
        Problem::new(wrong, "write `2026-12-24` or `2026-12-24..2026-12-26`")
    })?;
    DateRange::new(first, last)
}

/// Reads a day without a time.
fn day(text: &str) -> Option<Date> {
    let pieces = Pieces::parse(text.trim()).ok()?;
    let is_alone = pieces.time().is_none() && pieces.time_zone_annotation().is_none();
    is_alone.then(|| pieces.date())
}

/// Reads an instant: by its offset, its zone, or `zone`. A day alone is its midnight, as an end its
/// last second.
///
/// # Errors
/// If it is no instant, or its zone is unknown.
pub fn instant(text: &str, zone: &Zone, zones: &Zones, is_end: bool) -> Result<Timestamp, Problem> {
    let wrong = || {
        let wrong = format!("invalid time {}", quoted(text));
        Problem::new(
            wrong,
            "write `2027-01-31T08:00:00`, with `Z`, `+01:00` or `[Europe/Berlin]` at its end",
        )
    };
    let pieces = Pieces::parse(text.trim()).map_err(|_| wrong())?;
    let time = pieces.time().unwrap_or(Time::midnight());
    if !is_whole(&time) {
        return Err(Problem::new(
            format!("{} has a part of a second", quoted(text)),
            "write whole seconds",
        ));
    }
    // As an end, a day ends before the next one begins, however long it is.
    let is_day = is_end && pieces.time().is_none();
    let civil = pieces.date().to_datetime(time);
    let civil = match is_day {
        true => civil.checked_add(1.day()).map_err(|_| wrong())?,
        false => civil,
    };
    let to_end = |at: Timestamp| if is_day { just_before(at) } else { at };
    let mut offset = pieces.to_numeric_offset();
    let mut named = None;
    match pieces
        .time_zone_annotation()
        .map(jiff::fmt::temporal::TimeZoneAnnotation::kind)
    {
        Some(TimeZoneAnnotationKind::Named(name)) => named = Some(zones.get(name.as_str())?),
        Some(TimeZoneAnnotationKind::Offset(zone)) => offset = offset.or(Some(*zone)),
        Some(_) | None => {}
    }
    let Some(offset) = offset else {
        let zone = named.as_ref().unwrap_or(zone);
        return zone.instant(civil).map(to_end).map_err(|_| wrong());
    };
    let at = offset.to_timestamp(civil).map_err(|_| wrong())?;
    if named.is_some_and(|zone| zone.civil(at) != civil) {
        let wrong = format!("{} has an offset that its zone has not then", quoted(text));
        return Err(Problem::new(wrong, "leave out the offset"));
    }
    Ok(to_end(at))
}
