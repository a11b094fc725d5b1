//! Pages that are followed: the daemon's processor time with and without them.

use std::io::Read;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use miette::{ensure, miette};
use serde::Serialize;

use crate::common::show::number;
use crate::fill::Filled;
use crate::http;
use crate::pages::paths;
use crate::site::Site;

/// Number of places for event streams, of which a browser takes one for each open page.
const PLACES: usize = 32;

/// Time after which the first look of each page is over.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// Pages that are open in browsers: mostly those that are on screens all day.
const OPEN: &[&str] = &[
    "Now",
    "Pool",
    "Now",
    "Dead letters, groups",
    "Schedules",
    "Runs",
    "Run",
    "Events",
];

/// Processor time of the daemon.
#[derive(Debug, Serialize)]
pub(crate) struct Streams {
    pub(crate) followed: usize,
    workers: usize,
    /// Shares of a core.
    without: f64,
    with: f64,
    /// Bytes that one page gets in a second.
    bytes_per_second: f64,
}

impl Streams {
    pub(crate) const HEADER: &'static [&'static str] = &[
        "followed",
        "workers",
        "of a core, without",
        "with",
        "bytes/s each",
    ];

    /// Returns the share of a core that the pages take.
    pub(crate) fn share(&self) -> f64 {
        self.with - self.without
    }

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.followed.to_string(),
            self.workers.to_string(),
            format!("{:.1} %", self.without * 100.0),
            format!("{:.1} %", self.with * 100.0),
            number(self.bytes_per_second),
        ]
    }
}

pub(crate) fn measure(site: &Site<'_>, filled: &Filled, time: Duration) -> miette::Result<Streams> {
    let without = share(site, time)?;
    let mut followers = Vec::new();
    for number in 0..PLACES {
        let name = OPEN[number % OPEN.len()];
        let paths = paths(filled, number as u64);
        let path = paths.into_iter().find(|(page, _)| *page == name);
        let (_, path) = path.ok_or_else(|| miette!("there is no page {name}"))?;
        let stream = http::follow(&site.socket, &path)?;
        let reader = stream.try_clone().map_err(|error| miette!("{error}"))?;
        followers.push((stream, thread::spawn(move || read(reader))));
    }
    thread::park_timeout(SETTLED_AFTER);
    let with = share(site, time)?;
    let mut bytes = 0;
    for (stream, reader) in followers {
        // The daemon may have ended it.
        drop(stream.shutdown(Shutdown::Both));
        let read = reader
            .join()
            .map_err(|_| miette!("a reader has panicked"))?;
        ensure!(read > 0, "a page was not followed");
        bytes += read;
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    Ok(Streams {
        followed: PLACES,
        workers: site.workers,
        without,
        with,
        bytes_per_second: bytes as f64 / PLACES as f64 / (time + SETTLED_AFTER).as_secs_f64(),
    })
}

/// Returns the share of a core that the daemon takes in that time.
fn share(site: &Site<'_>, time: Duration) -> miette::Result<f64> {
    let before = site.daemon.cpu_seconds()?;
    thread::park_timeout(time);
    Ok((site.daemon.cpu_seconds()? - before) / time.as_secs_f64())
}

/// Reads a stream to its end, and returns the number of bytes.
fn read(mut stream: impl Read) -> usize {
    let (mut all, mut some) = (0, [0; 65_536]);
    while let Ok(count @ 1..) = stream.read(&mut some) {
        all += count;
    }
    all
}
