//! Time zones: where they come from, and the stretches of time in which a zone's offset is the same.

use std::fmt;
use std::path::{Path, PathBuf};

use ganger_core::suggest::nearest;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::problem::{Broken, Problem, quoted};

/// Folders in which systems keep the time zone database.
const FOLDERS: [&str; 3] = [
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/zoneinfo",
];

/// A second.
pub(crate) const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Origin of the time zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZoneSource {
    /// The system's database, in this folder.
    System(PathBuf),
    /// The database that is compiled in.
    Bundled,
}

impl fmt::Display for ZoneSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(folder) => write!(f, "{}", folder.display()),
            Self::Bundled => f.write_str("bundled"),
        }
    }
}

/// The time zone database.
#[derive(Debug, Clone)]
pub struct Zones {
    database: TimeZoneDatabase,
    source: ZoneSource,
}

impl Zones {
    /// Opens the system's database (in `$TZDIR`, if that is set), else the bundled one.
    pub fn load() -> Self {
        let chosen = std::env::var_os("TZDIR").map(PathBuf::from);
        let usual = FOLDERS.iter().map(PathBuf::from);
        let mut systems = chosen.into_iter().chain(usual);
        systems
            .find_map(|folder| Self::in_folder(&folder))
            .unwrap_or_else(Self::bundled)
    }

    fn in_folder(folder: &Path) -> Option<Self> {
        let database = TimeZoneDatabase::from_dir(folder).ok()?;
        let is_usable = !database.is_definitively_empty() && database.available().next().is_some();
        is_usable.then(|| Self {
            database,
            source: ZoneSource::System(folder.to_owned()),
        })
    }

    /// Opens the database that is compiled in.
    pub fn bundled() -> Self {
        Self {
            database: TimeZoneDatabase::bundled(),
            source: ZoneSource::Bundled,
        }
    }

    /// Returns where the zones come from.
    pub fn source(&self) -> &ZoneSource {
        &self.source
    }

    /// Returns the names of all zones.
    pub fn names(&self) -> Vec<String> {
        let names = self.database.available();
        let mut names: Vec<String> = names.map(|name| name.to_string()).collect();
        names.sort();
        names
    }

    /// Finds a zone by its name in the IANA database, such as `Europe/Berlin`.
    ///
    /// # Errors
    /// If there is none of this name. Similar names are suggested.
    pub fn get(&self, name: &str) -> Result<Zone, Problem> {
        let found = self.database.get(name).ok();
        found.map(Zone).ok_or_else(|| {
            let right = match self.similar(name) {
                Some(similar) => format!("did you mean `{similar}`?"),
                None => "write a name such as `Europe/Berlin` or `UTC`".to_owned(),
            };
            let wrong = format!("time zone {} is unknown ({})", quoted(name), self.source);
            Problem::new(wrong, right)
        })
    }

    /// Returns the name that was most likely meant. A city is often written without its continent.
    fn similar(&self, name: &str) -> Option<String> {
        let names = self.names();
        let city = |name: &String| name.rsplit('/').next().map(str::to_lowercase);
        let alone = || {
            let cities: Vec<String> = names.iter().filter_map(city).collect();
            let nearest = nearest(name, cities.iter().map(String::as_str))?.to_owned();
            names
                .iter()
                .find(|name| city(name).as_ref() == Some(&nearest))
        };
        let whole = nearest(name, names.iter().map(String::as_str));
        whole.map(str::to_owned).or_else(|| alone().cloned())
    }
}

/// A time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

/// A stretch of time in which the offset of a zone is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) offset: Offset,
    /// Its first instant, and the offset before it; `None` if there was no change before.
    pub(crate) from: Option<(Timestamp, Offset)>,
    /// The first instant after it, and the offset from then on; `None` if there is no change.
    pub(crate) until: Option<(Timestamp, Offset)>,
}

impl Zone {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Returns the civil time at an instant.
    pub fn civil(&self, at: Timestamp) -> DateTime {
        self.0.to_datetime(at)
    }

    /// Writes an instant by the clocks of the zone, in RFC 3339 with its offset.
    pub fn local(&self, at: Timestamp) -> String {
        let local = self.zoned(at);
        local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    /// Returns an instant on the clocks of the zone.
    pub fn zoned(&self, at: Timestamp) -> Zoned {
        at.to_zoned(self.0.clone())
    }

    /// Returns the instant of a civil time: the first of two, and the end of the gap for one that
    /// does not exist.
    ///
    /// # Errors
    /// If it is outside the years of the calendar.
    pub fn instant(&self, civil: DateTime) -> Result<Timestamp, Broken> {
        let beyond = || Broken(format!("{civil} is outside the calendar"));
        let at = |offset: Offset| offset.to_timestamp(civil).map_err(|_| beyond());
        match self.0.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => at(offset),
            AmbiguousOffset::Fold { before, .. } => at(before),
            AmbiguousOffset::Gap { before, .. } => {
                let from = self.stretch(at(before)?)?.from;
                Ok(from.ok_or_else(beyond)?.0)
            }
        }
    }

    /// Returns the stretch of time around an instant in whole seconds.
    pub(crate) fn stretch(&self, at: Timestamp) -> Result<Stretch, Broken> {
        let next = at.checked_add(SECOND).map_err(|_| beyond(at))?;
        let from = self
            .0
            .preceding(next)
            .next()
            .map(|change| change.timestamp());
        let until = self.0.following(at).next();
        if from.is_some_and(|from| from > at) || until.as_ref().is_some_and(|t| t.timestamp() <= at)
        {
            let name = self.name();
            return Err(Broken(format!(
                "time zone {name} changes out of order at {at}"
            )));
        }
        let before = |from: Timestamp| {
            let last = from.checked_sub(SECOND).map_err(|_| beyond(from))?;
            Ok((from, self.0.to_offset(last)))
        };
        Ok(Stretch {
            offset: self.0.to_offset(at),
            from: from.map(before).transpose()?,
            until: until.map(|change| (change.timestamp(), change.offset())),
        })
    }
}

/// Returns the instant a second before a slot: there is none between, as they are in whole seconds.
pub(crate) fn just_before(slot: Timestamp) -> Timestamp {
    slot.checked_sub(SECOND).unwrap_or(slot)
}

pub(crate) fn beyond(at: Timestamp) -> Broken {
    Broken(format!("{at} is at the end of the calendar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_come_from_the_system_or_are_bundled() {
        let bundled = Zones::bundled();
        assert_eq!(bundled.source().to_string(), "bundled");
        assert!(bundled.names().len() > 400);
        assert_eq!(
            bundled.get("Europe/Berlin").unwrap().name(),
            "Europe/Berlin"
        );
        let folder = Path::new("/no/such/folder");
        assert!(Zones::in_folder(folder).is_none());
        assert!(Zones::load().get("UTC").is_ok());
    }

    #[test]
    fn an_unknown_zone_is_refused_with_a_similar_name() {
        let zones = Zones::bundled();
        for (name, right) in [
            ("Europe/Berlim", "did you mean `Europe/Berlin`?"),
            ("berlin", "did you mean `Europe/Berlin`?"),
            ("Mars/Base", "write a name such as `Europe/Berlin` or `UTC`"),
            (
                "../../etc/passwd",
                "write a name such as `Europe/Berlin` or `UTC`",
            ),
            ("", "write a name such as `Europe/Berlin` or `UTC`"),
        ] {
            let problem = zones.get(name).unwrap_err();
            assert_eq!(problem.right, right, "{name}");
            assert!(problem.wrong.ends_with("is unknown (bundled)"), "{problem}");
        }
    }

    #[test]
    fn a_civil_time_has_one_instant() {
        let zone = Zones::bundled().get("America/New_York").unwrap();
        for (civil, instant) in [
            ("2026-03-08T02:30", "2026-03-08T07:00:00Z"),
            ("2026-03-08T03:00", "2026-03-08T07:00:00Z"),
            ("2026-11-01T01:30", "2026-11-01T05:30:00Z"),
            ("2026-07-01T12:00", "2026-07-01T16:00:00Z"),
        ] {
            let at = zone.instant(civil.parse().unwrap()).unwrap();
            assert_eq!(at.to_string(), instant, "{civil}");
        }
    }
}
