//! The page of a week of coming slots, by hours.

use std::collections::{BTreeMap, BTreeSet};

use axum::Extension;
use axum::http::Uri;
use ganger_queue::ledger::UPCOMING_MAX;
use ganger_queue::ledger::shown::UpcomingJson;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands};
use super::page::{Page, Section};
use super::paths::{UPCOMING, schedule_path};
use super::query::Fields;
use super::shown::{count, text, time, time_of};
use crate::answer::Problem;

/// Number of slots of a schedule that are counted. One that has more runs more than once an hour.
const EACH: usize = 200;
/// Number of days.
const DAYS: usize = 7;
/// Number of slots of an hour, and of collisions, that are listed.
const LISTED: usize = 50;
const COLLISIONS: usize = 20;
/// Number of schedules that are named of a collision.
const NAMED: usize = 6;

/// Coming slots of a week.
struct Week {
    zone: TimeZone,
    zone_name: String,
    days: Vec<Date>,
    now: Zoned,
    slots: Vec<(Zoned, UpcomingJson)>,
    /// Schedules that run more than once an hour, whose slots are not counted.
    frequent: Vec<String>,
    /// Time until which slots are known, if there were too many.
    known_until: Option<Zoned>,
}

/// Shows a week. Its query has a zone, and an hour such as `2027-01-31T08` whose slots are listed.
pub(super) async fn page(Extension(api): Extension<Api>, uri: Uri) -> Result<Page, Problem> {
    let asked = Fields::of(&uri);
    let zone_name = asked.get("zone").unwrap_or("UTC").to_owned();
    let zone = TimeZone::get(&zone_name).map_err(|_| {
        Problem::bad(format!(
            "there is no time zone `{}`: write one such as Europe/Berlin",
            zone_name.escape_debug()
        ))
    })?;
    let now = Timestamp::now().to_zoned(zone.clone());
    let days: Vec<Date> = (0..DAYS)
        .filter_map(|day| {
            now.date()
                .checked_add((i64::try_from(day).ok()?).days())
                .ok()
        })
        .collect();
    let end = days.last().and_then(|day| day.tomorrow().ok());
    let end = end.and_then(|day| day.to_zoned(zone.clone()).ok());
    let end = end.map_or_else(
        || now.timestamp() + SignedDuration::from_hours(24 * 7),
        |end| end.timestamp(),
    );
    let range = Fields::default()
        .with("to", &end.to_string())
        .with("each", &EACH.to_string())
        .with("limit", &UPCOMING_MAX.to_string());
    let found: Vec<UpcomingJson> = api.get(&range.at("/v1/upcoming")).await?;
    let is_cut = found.len() >= UPCOMING_MAX as usize;
    let frequent = frequent(&found);
    let found = found
        .into_iter()
        .filter(|slot| !frequent.contains(&slot.schedule));
    let slots = found.filter_map(|slot| {
        let at: Timestamp = slot.slot.slot.parse().ok()?;
        Some((at.to_zoned(zone.clone()), slot))
    });
    let slots: Vec<(Zoned, UpcomingJson)> = slots.filter(|(at, _)| at.timestamp() < end).collect();
    let known_until = slots.last().filter(|_| is_cut).map(|(at, _)| at.clone());
    let week = Week {
        zone,
        zone_name,
        days,
        now,
        slots,
        frequent: frequent.into_iter().collect(),
        known_until,
    };
    let page = Page::new(Section::Upcoming, "Upcoming").with("week", week.shown(&asked));
    let page = match asked.get("hour") {
        Some(hour) => page.with("hour", week.hour(hour)),
        None => page,
    };
    Ok(page.with("collisions", week.collisions()).still())
}

/// Returns the schedules that have more slots than are counted.
fn frequent(slots: &[UpcomingJson]) -> BTreeSet<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for slot in slots {
        *counts.entry(&slot.schedule).or_default() += 1;
    }
    let counts = counts.into_iter().filter(|(_, number)| *number >= EACH);
    counts.map(|(name, _)| name.to_owned()).collect()
}

/// Returns the hour of a time, as in the query of the page.
fn hour_of(at: &Zoned) -> String {
    at.strftime("%Y-%m-%dT%H").to_string()
}

/// Returns the shade of a count, from 0 to 5.
fn shade(number: usize, most: usize) -> usize {
    match number {
        0 => 0,
        number => 1 + number * 4 / most.max(1),
    }
    .min(5)
}

impl Week {
    fn shown(&self, asked: &Fields) -> Markup {
        let mut counts: BTreeMap<(Date, i8), usize> = BTreeMap::new();
        for (at, _) in &self.slots {
            *counts.entry((at.date(), at.hour())).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or_default();
        let schedules: BTreeSet<&str> =
            self.slots.iter().map(|(_, slot)| &*slot.schedule).collect();
        html! {
            p.lead {
                @if self.known_until.is_some() { "At least " }
                (count(self.slots.len() as u64)) " slots of " (schedules.len()) " active schedules within " (DAYS) " days; the fullest hour has "
                (count(most as u64)) "."
            }
            @if let Some(until) = &self.known_until {
                p { strong { "Counted until " (time(until.timestamp())) ": " } "there are too many slots to count those after it." }
            }
            @if !self.frequent.is_empty() {
                p.of {
                    (self.frequent.len()) (if self.frequent.len() == 1 { " schedule runs" } else { " schedules run" })
                    " more than once an hour, and " (if self.frequent.len() == 1 { "is" } else { "are" }) " not counted: "
                    @for (at, name) in self.frequent.iter().take(LISTED).enumerate() {
                        @if at > 0 { ", " }
                        a href=(schedule_path(name)) { (text(name)) }
                    }
                    @if self.frequent.len() > LISTED { " and " (self.frequent.len() - LISTED) " more" }
                    "."
                }
            }
            form.filters action=(UPCOMING) {
                label { "Time zone of the table " input name="zone" value=(self.zone_name) maxlength="60" placeholder="Europe/Berlin" autocomplete="off"; }
                button { "Show" }
            }
            div.wide tabindex="0" role="region" aria-label="Slots by hours" {
                table.heat {
                    caption { "Slots by day and hour, " (text(&self.zone_name)) }
                    thead { tr { th scope="col" { "Day" } @for hour in 0..24 { th scope="col" { (format!("{hour:02}")) } } th.number scope="col" { "Day" } } }
                    tbody { @for day in &self.days { (self.day(*day, &counts, most, asked)) } }
                }
            }
            (commands(&[command(&["schedule", "upcoming", "-n", "100", "--zone", &self.zone_name])]))
        }
    }

    fn day(
        &self,
        day: Date,
        counts: &BTreeMap<(Date, i8), usize>,
        most: usize,
        asked: &Fields,
    ) -> Markup {
        let of_day: usize = counts
            .iter()
            .filter(|((of, _), _)| *of == day)
            .map(|(_, number)| number)
            .sum();
        html! {
            tr {
                th scope="row" { (day.strftime("%a %d %b").to_string()) }
                @for hour in 0..24_i8 {
                    @let number = counts.get(&(day, hour)).copied().unwrap_or_default();
                    @let is_past = day == self.now.date() && hour < self.now.hour();
                    @let is_unknown = self.known_until.as_ref().is_some_and(|until| (day, hour) > (until.date(), until.hour()));
                    @match number {
                        _ if is_past => td.past {},
                        0 if is_unknown => td.unknown title="not counted" { "?" },
                        0 => td.empty { "·" },
                        number => td.{ "heat-" (shade(number, most)) } {
                            a href={ (asked.with("hour", &format!("{day}T{hour:02}")).at(UPCOMING)) "#hour" }
                                aria-label={ (number) " slots on " (day) " at " (hour) } { (number) }
                        },
                    }
                }
                td.number { (count(of_day as u64)) }
            }
        }
    }

    fn hour(&self, hour: &str) -> Markup {
        let slots: Vec<&UpcomingJson> = self
            .slots
            .iter()
            .filter(|(at, _)| hour_of(at) == hour)
            .map(|(_, slot)| slot)
            .collect();
        html! {
            h2 { (slots.len()) " slots from " (text(&hour.replace('T', ", "))) ":00 " span.of { (text(&self.zone_name)) } }
            @if slots.is_empty() { p.none { "There is none." } }
            ol.plain.columns {
                @for slot in slots.iter().take(LISTED) {
                    li {
                        (time_of(&slot.slot.slot)) " " a href=(schedule_path(&slot.schedule)) { (text(&slot.schedule)) }
                        @if !slot.slot.note.is_empty() { " " span.of { (text(&slot.slot.note)) } }
                    }
                }
            }
            @if slots.len() > LISTED { p { "… and " (slots.len() - LISTED) " more in this hour." } }
        }
    }

    /// Shows the minutes in which several schedules have slots, those of the most first.
    fn collisions(&self) -> Markup {
        let mut minutes: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
        for (at, slot) in &self.slots {
            let minute = at.timestamp().as_second().div_euclid(60);
            minutes.entry(minute).or_default().insert(&slot.schedule);
        }
        let mut sets: BTreeMap<&BTreeSet<&str>, Vec<i64>> = BTreeMap::new();
        for (minute, schedules) in minutes.iter().filter(|(_, schedules)| schedules.len() > 1) {
            sets.entry(schedules).or_default().push(*minute);
        }
        let mut sets: Vec<(&BTreeSet<&str>, Vec<i64>)> = sets.into_iter().collect();
        sets.sort_by_key(|(schedules, minutes)| {
            std::cmp::Reverse((schedules.len(), minutes.len()))
        });
        html! {
            h2 { "Collisions" }
            @if sets.is_empty() { p.none { "No two schedules have a slot in the same minute." } }
            @else {
                div.wide tabindex="0" { table {
                    thead { tr {
                        th scope="col" { "Schedules with slots in the same minute" } th.number scope="col" { "Schedules" }
                        th.number scope="col" { "Minutes" } th scope="col" { "First" }
                    } }
                    tbody { @for (schedules, minutes) in sets.iter().take(COLLISIONS) { tr {
                        th.name scope="row" {
                            @for (at, name) in schedules.iter().take(NAMED).enumerate() {
                                @if at > 0 { ", " }
                                a href=(schedule_path(name)) { (text(name)) }
                            }
                            @if schedules.len() > NAMED { " and " (schedules.len() - NAMED) " more" }
                        }
                        td.number { (schedules.len()) }
                        td.number { (count(minutes.len() as u64)) }
                        td { @if let Some(first) = minutes.first().and_then(|first| Timestamp::from_second(first * 60).ok()) {
                            a href={ (self.at(first)) "#hour" } { (time(first)) }
                        } }
                    } } }
                } }
                @if sets.len() > COLLISIONS { p.none { (sets.len() - COLLISIONS) " more sets of schedules collide." } }
            }
        }
    }

    fn at(&self, at: Timestamp) -> String {
        let asked = Fields::default()
            .with("zone", &self.zone_name)
            .with("hour", &hour_of(&at.to_zoned(self.zone.clone())));
        asked.at(UPCOMING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_hour_has_the_deepest_shade() {
        assert_eq!(shade(0, 0), 0);
        assert_eq!(shade(1, 100), 1);
        assert_eq!(shade(50, 100), 3);
        assert_eq!(shade(100, 100), 5);
        assert_eq!(shade(1, 1), 5);
    }
}
