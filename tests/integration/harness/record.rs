//! What the workers themselves have recorded: the truth that the daemon is measured against.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::Workspace;

super::trials![a_record_that_is_cut_short_hides_no_other];

/// What a worker recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// It has a message in hand.
    Began,
    /// It is about to answer 200 or 201.
    Done,
    /// A control line reached it.
    Told,
    /// Something that the message asked it for.
    Noted,
}

impl Event {
    /// Its name in the file.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Done => "done",
            Self::Told => "told",
            Self::Noted => "noted",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::Began, Self::Done, Self::Told, Self::Noted]
            .into_iter()
            .find(|event| event.as_str() == name)
    }
}

/// One line of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) event: Event,
    /// The message's body (its beginning, if it is long), the control line, or the note.
    pub(crate) text: String,
    pub(crate) pid: i32,
    /// Which attempt the worker was told that it is; none under version 1.
    pub(crate) attempt: Option<u32>,
    /// When, in microseconds; comparable among the workers of one machine.
    pub(crate) micros: u64,
}

/// All lines so far, in the order in which they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record(pub(crate) Vec<Entry>);

impl Record {
    pub(super) fn read(path: &Path) -> Self {
        let text = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // The last line may be half written.
        let whole = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        Self(whole.map(entry).collect())
    }

    /// The entries of that kind.
    pub(crate) fn all(&self, event: Event) -> Vec<&Entry> {
        self.0.iter().filter(|entry| entry.event == event).collect()
    }

    /// The entries of that kind for one text.
    pub(crate) fn of(&self, event: Event, text: &str) -> Vec<&Entry> {
        self.all(event)
            .into_iter()
            .filter(|entry| entry.text == text)
            .collect()
    }

    /// The texts of that kind, in order.
    pub(crate) fn texts(&self, event: Event) -> Vec<&str> {
        self.all(event)
            .into_iter()
            .map(|entry| entry.text.as_str())
            .collect()
    }

    /// How often each message was done.
    fn times_done(&self) -> BTreeMap<&str, usize> {
        let mut times = BTreeMap::new();
        for text in self.texts(Event::Done) {
            *times.entry(text).or_default() += 1;
        }
        times
    }

    /// Sees that each of these messages was done exactly once.
    pub(crate) fn assert_done_once<T: AsRef<str> + fmt::Debug>(&self, bodies: &[T]) {
        let done = self.times_done();
        for body in bodies {
            let times = done.get(body.as_ref()).copied().unwrap_or_default();
            assert_eq!(
                times, 1,
                "how often {body:?} was done; the record: {:#?}",
                self.0
            );
        }
    }

    /// Sees that each of these messages was done, and returns how many times too many.
    pub(crate) fn assert_none_lost<T: AsRef<str> + fmt::Debug>(&self, bodies: &[T]) -> usize {
        let done = self.times_done();
        let times = |body: &T| done.get(body.as_ref()).copied().unwrap_or_default();
        let lost: Vec<&T> = bodies.iter().filter(|body| times(body) == 0).collect();
        assert!(lost.is_empty(), "{} lost: {lost:?}", lost.len());
        bodies.iter().map(times).sum::<usize>() - bodies.len()
    }
}

/// How much is done, for a record that is too long to be read again and again.
pub(crate) struct Progress {
    path: PathBuf,
    read_bytes: u64,
    done: BTreeSet<String>,
}

impl Progress {
    pub(crate) fn of(site: &Workspace) -> Self {
        Self {
            path: site.path("record"),
            read_bytes: 0,
            done: BTreeSet::new(),
        }
    }

    /// How many different messages are done by now.
    pub(crate) fn done(&mut self) -> usize {
        if let Ok(mut file) = fs::File::open(&self.path) {
            file.seek(SeekFrom::Start(self.read_bytes)).unwrap();
            self.read_on(BufReader::new(file));
        }
        self.done.len()
    }

    fn read_on(&mut self, mut lines: impl BufRead) {
        let mut line = String::new();
        while let Ok(bytes @ 1..) = lines.read_line(&mut line) {
            let Some(whole) = line.strip_suffix('\n') else {
                return;
            };
            let entry = entry(whole);
            if entry.event == Event::Done {
                self.done.insert(entry.text);
            }
            self.read_bytes += u64::try_from(bytes).unwrap();
            line.clear();
        }
    }
}

/// What a line records. When a worker is killed while it writes, the kernel may stop at the end of a
/// page: what was to come after the record did not come, and the next one is on the same line.
fn entry(line: &str) -> Entry {
    let mut rests = line.char_indices().map(|(at, _)| &line[at..]);
    let entry = rests.find_map(whole_entry);
    entry.unwrap_or_else(|| panic!("a broken record: {line:?}"))
}

fn whole_entry(line: &str) -> Option<Entry> {
    let mut fields = line.split('\t');
    Some(Entry {
        event: Event::of(fields.next()?)?,
        text: fields.next()?.to_owned(),
        pid: fields.next()?.parse().ok()?,
        attempt: match fields.next()? {
            "-" => None,
            number => Some(number.parse().ok()?),
        },
        micros: fields.next()?.parse().ok()?,
    })
}

fn a_record_that_is_cut_short_hides_no_other() {
    let cut_short = "done\tit began and is done\t4711\t-\t1795339120841880";
    let next = "began\tmessage 6819\t10399\t-\t1795339120841882";
    for length in 0..=cut_short.len() {
        let line = format!("{}{next}", &cut_short[..length]);
        assert_eq!(entry(&line), entry(next), "{line:?}");
    }
}
