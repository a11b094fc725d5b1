//! A page: its parts, each of which is replaced in the browser when it changes.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use maud::Markup;

use super::paths::{AUDIT, CONFIG, DAEMONS, DEAD, EVENTS, NOW, REPORTS, RUNS, SCHEDULES, UPCOMING};

/// Interval at which a page is looked at for changes, unless it has its own.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Place of a page in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Now,
    DeadLetters,
    Schedules,
    Occurrences,
    Upcoming,
    Reports,
    Events,
    Audit,
    Config,
    Daemons,
}

impl Section {
    /// All sections in their order, each with its path, its name and the key that leads to it after `g`.
    pub(super) const ALL: [(Self, &'static str, &'static str, char); 10] = [
        (Self::Now, NOW, "Now", 'n'),
        (Self::DeadLetters, DEAD, "Dead letters", 'd'),
        (Self::Schedules, SCHEDULES, "Schedules", 's'),
        (Self::Occurrences, RUNS, "Runs", 'o'),
        (Self::Upcoming, UPCOMING, "Upcoming", 'u'),
        (Self::Reports, REPORTS, "Reports", 'r'),
        (Self::Events, EVENTS, "Events", 'e'),
        (Self::Audit, AUDIT, "Audit", 'a'),
        (Self::Config, CONFIG, "Config", 'c'),
        (Self::Daemons, DAEMONS, "Daemons", 'm'),
    ];
}

/// A part of a page.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Its id in the document.
    pub(super) id: &'static str,
    pub(super) body: String,
    /// It is a list whose new rows wait until the reader asks for them.
    pub(super) is_held: bool,
}

/// A page.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) section: Section,
    pub(super) parts: Vec<Part>,
    /// Interval at which it is looked at for changes; none if it does not follow what it shows.
    pub(super) pace: Option<Duration>,
}

impl Page {
    pub(super) fn new(section: Section, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            section,
            parts: Vec::new(),
            pace: Some(LOOK_EVERY),
        }
    }

    /// Sets the interval at which it is looked at, of a page that is costly.
    pub(super) fn every(self, pace: Duration) -> Self {
        let pace = Some(pace);
        Self { pace, ..self }
    }

    /// Makes it a page that does not follow what it shows.
    pub(super) fn still(self) -> Self {
        Self { pace: None, ..self }
    }

    /// Adds a part.
    pub(super) fn with(self, id: &'static str, body: Markup) -> Self {
        self.part(id, body, false)
    }

    /// Adds a list whose new rows don't move what is being read.
    pub(super) fn with_list(self, id: &'static str, body: Markup) -> Self {
        self.part(id, body, true)
    }

    fn part(mut self, id: &'static str, body: Markup, is_held: bool) -> Self {
        let body = body.into_string();
        self.parts.push(Part { id, body, is_held });
        self
    }
}

/// Hands the page to the layers around, which send it whole or the parts that have changed.
impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}
