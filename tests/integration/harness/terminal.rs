//! A terminal, and what was written to it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use nix::pty::openpty;

/// What was written to a terminal until nobody had it any more.
pub(crate) struct Screen(JoinHandle<Vec<u8>>);

/// A new terminal.
pub(crate) fn terminal() -> (OwnedFd, Screen) {
    let ends = openpty(None, None).unwrap();
    let mut master = File::from(ends.master);
    let read = move || {
        let mut text = Vec::new();
        // It ends with an error, once nobody has the other end.
        drop(master.read_to_end(&mut text));
        text
    };
    (ends.slave, Screen(std::thread::spawn(read)))
}

impl Screen {
    /// All that it shows.
    pub(crate) fn text(self) -> String {
        String::from_utf8(self.0.join().unwrap()).unwrap()
    }
}

/// What a terminal would obey: it clears the screen in two ways, forges a line, turns signs round.
pub(crate) const EVIL: &str = "evil \u{1b}[2J\u{9b}2J\r\nERROR forged \u{202e}";

/// Nothing of that has reached it; what made of it did.
pub(crate) fn assert_tame(text: &str) {
    assert!(text.contains("evil "), "{text:?}");
    for part in ["\u{1b}[2J", "\u{9b}", "\u{202e}"] {
        assert!(!text.contains(part), "{part:?} in {text:?}");
    }
}
