//! The worker that does nothing: this same binary, started again. It speaks version 1 of the protocol and
//! decodes only the boundaries of frames. It reads large chunks and answers all complete frames in one write,
//! as a good compiled worker would.

use std::io::{self, BufRead, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ganger_core::names::{PIPE_DIR, PIPE_PREFIX};
use miette::{IntoDiagnostic, WrapErr};

use super::tally::Teller;

/// First argument that makes the binary run as the worker.
pub(crate) const ROLE: &str = "noop-worker";

/// Size of a read: more than a pipe's buffer holds.
const CHUNK_BYTES: usize = 256 * 1024;

/// `{"0": "", "1": 200}`, preceded by its length.
const DONE: [u8; 12] = *b"\x00\x00\x00\x08\x82\xa10\xa0\xa11\xcc\xc8";

/// Runs the worker if this process was started as one, and returns its result.
pub(crate) fn run_if_asked() -> Option<miette::Result<()>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == ROLE).then(|| run(arguments.next().as_deref().map(Path::new)))
}

/// Works until the pipe is closed. `tally` is the socket to which it reports received messages.
fn run(tally: Option<&Path>) -> miette::Result<()> {
    let teller = Teller::connect(tally)?;
    let mut name = String::new();
    io::stdin().lock().read_line(&mut name).into_diagnostic()?;
    let path = format!("{PIPE_DIR}/{PIPE_PREFIX}{}", name.trim_end());
    let pipe = UnixStream::connect(&path).into_diagnostic();
    serve(pipe.wrap_err(path)?, teller).into_diagnostic()
}

fn serve(mut pipe: UnixStream, mut teller: Teller) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = teller.read(&mut pipe, &mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        let whole = frames.take_in(&chunk[..count]);
        teller.count(whole);
        if whole > 0 {
            pipe.write_all(&DONE.repeat(whole))?;
        }
    }
}

/// Counts frames in a stream of bytes without keeping them.
#[derive(Debug, Default)]
struct Frames {
    length: [u8; 4],
    length_bytes: usize,
    left: usize,
}

impl Frames {
    /// Takes the next bytes of the stream. Returns the number of frames that end in them.
    fn take_in(&mut self, mut bytes: &[u8]) -> usize {
        let mut ended = 0;
        while let Some(first) = bytes.first() {
            if self.left == 0 {
                self.take_length_byte(*first);
                bytes = &bytes[1..];
                continue;
            }
            let part = self.left.min(bytes.len());
            self.left -= part;
            bytes = &bytes[part..];
            ended += usize::from(self.left == 0);
        }
        ended
    }

    fn take_length_byte(&mut self, byte: u8) {
        self.length[self.length_bytes] = byte;
        self.length_bytes = (self.length_bytes + 1) % self.length.len();
        if self.length_bytes == 0 {
            self.left = u32::from_be_bytes(self.length) as usize;
        }
    }
}
