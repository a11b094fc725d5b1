//! What the daemon tells a process that it starts: which pipe to open, and the lines after that.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::Error;

/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// The pipe's name, which stdin begins with, and the control lines that follow.
pub(crate) struct Start {
    name: String,
    pub(crate) control: BufReader<File>,
}

/// Reads the name. From here on stdin is empty for everybody else.
pub(crate) fn begin() -> Result<Start, Error> {
    if io::stdin().is_terminal() {
        return Err(Error::Start(
            "this is a worker of ganger, which starts it and writes a pipe's name to its stdin: put it \
             into a [[pools]] section, or try it with ganger_worker::testing"
                .to_owned(),
        ));
    }
    let mut control = BufReader::new(take_stdin()?);
    match next_line(&mut control).filter(|name| !name.is_empty()) {
        None => {
            let what = "stdin must begin with a line that names the pipe";
            Err(Error::Start(what.to_owned()))
        }
        Some(name) => Ok(Start { name, control }),
    }
}

impl Start {
    /// Opens the pipe.
    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(path_of(&self.name))
    }
}

/// Moves stdin to a descriptor that no child inherits, and puts /dev/null in its place: a child that
/// reads stdin would wait there for ever, and swallow the daemon's lines.
fn take_stdin() -> io::Result<File> {
    let moved = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(moved.into())
}

fn path_of(name: &str) -> PathBuf {
    let told = |variable| env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(path) = told("GANGER_PIPE") {
        return path.into();
    }
    let file = format!("CoreFxPipe_{name}");
    let below = told("TMPDIR").map(|directory| Path::new(&directory).join(&file));
    below
        .filter(|path| path.exists())
        .unwrap_or_else(|| Path::new("/tmp").join(file))
}

/// 2, unless the daemon is one that knows version 1 only.
pub(crate) fn spoken() -> u32 {
    match number("GANGER_PROTOCOL") {
        Some(2..) => 2,
        _ => 1,
    }
}

/// The longest frame of the daemon's, if it tells.
pub(crate) fn frame_bytes_max() -> Option<usize> {
    number("GANGER_FRAME_BYTES_MAX").filter(|bytes| *bytes > 0)
}

fn number(variable: &str) -> Option<usize> {
    env::var(variable).ok()?.parse().ok()
}

/// A line without its end; None at the end of what there is, or at a line that is too long.
pub(crate) fn next_line(from: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let read = from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    if read.is_err() || line.pop() != Some(b'\n') {
        return None;
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Some(String::from_utf8_lossy(&line).into_owned())
}
