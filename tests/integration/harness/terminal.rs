//! A terminal, and what was written to it.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use rustix::termios::tcsetwinsize;

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

/// A program on a terminal of its own, as a person in front of it has it: keys go in, and there is a
/// screen to be looked at. Dropped, the program is killed.
pub(crate) struct Seat {
    child: Child,
    keyboard: File,
    terminal: OwnedFd,
    before: Termios,
    shown: Arc<Mutex<vt100::Parser>>,
}

impl Seat {
    /// Starts the program under test there, with so many columns and lines, and further variables.
    pub(crate) fn take(
        dir: &Path,
        (columns, lines): (u16, u16),
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let size = Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let ends = openpty(Some(&size), None).unwrap();
        let keyboard = File::from(ends.master);
        let end = || ends.slave.try_clone().unwrap();
        let before = tcgetattr(&ends.slave).unwrap();
        // The terminal that this test was started from, if any, is none of its business.
        let child = Command::new("setsid")
            .args(["--ctty", super::PROGRAM])
            .args(args)
            .current_dir(dir)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let shown = Arc::new(Mutex::new(vt100::Parser::new(
            some(lines),
            some(columns),
            0,
        )));
        let (mut from, to) = (keyboard.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self {
            child,
            keyboard,
            before,
            terminal: ends.slave,
            shown,
        }
    }

    /// What is on the screen, a line each.
    pub(crate) fn text(&self) -> String {
        self.shown.lock().unwrap().screen().contents()
    }

    /// Waits until that is on the screen.
    pub(crate) fn shows(&self, part: &str) {
        let shown = super::look(|| self.text().contains(part).then_some(()));
        assert!(shown.is_some(), "{part:?} is not shown:\n{}", self.text());
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Gives the terminal another size; who has it is told.
    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        self.shown
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(some(lines), some(columns));
        let size = rustix::termios::Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.terminal, size).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for the program's end, after which the terminal is as it was.
    pub(crate) fn left(mut self) -> ExitStatus {
        let ended = super::look(|| self.child.try_wait().unwrap());
        let ended = ended.unwrap_or_else(|| panic!("it goes on and on:\n{}", self.text()));
        assert_eq!(tcgetattr(&self.terminal).unwrap(), self.before);
        let is_left = || {
            let shown = self.shown.lock().unwrap();
            let screen = shown.screen();
            (!screen.alternate_screen() && !screen.hide_cursor()).then_some(())
        };
        assert!(super::look(is_left).is_some(), "it shows:\n{}", self.text());
        ended
    }
}

fn some(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

impl Drop for Seat {
    fn drop(&mut self) {
        // One that has ended already is no news.
        drop(self.child.kill());
        drop(self.child.wait());
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
