//! What the daemon tells a process that it starts: which pipe to open, and the lines after that.

use std::env;
use std::io::{self, BufRead, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::Error;

/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// Opens the pipe that stdin names.
pub(crate) fn connect() -> Result<UnixStream, Error> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(Error::Start(
            "this is a worker of ganger, which starts it and writes a pipe's name to its stdin: put it \
             into a [[pools]] section, or try it with ganger_worker::testing"
                .to_owned(),
        ));
    }
    let line = next_line(&mut stdin.lock());
    match line.as_deref() {
        Some("") | None => {
            let what = "stdin must begin with a line that names the pipe";
            Err(Error::Start(what.to_owned()))
        }
        Some(name) => Ok(UnixStream::connect(path_of(name))?),
    }
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
    let told = env::var("GANGER_PROTOCOL").ok();
    let told = told.and_then(|number| number.parse::<u32>().ok());
    if told.is_some_and(|number| number >= 2) {
        2
    } else {
        1
    }
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
