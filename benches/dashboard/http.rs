//! Requests to the daemon's socket, each on a connection of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use miette::{IntoDiagnostic, ensure, miette};

/// Time after which an answer is not waited for any longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// What a browser sends.
const HEADERS: &str = "host: localhost\r\naccept-encoding: gzip\r\nconnection: close";

/// Asks for a page. Returns the size of the body as it was sent, and of the plain document.
pub(crate) fn get(socket: &Path, path: &str) -> miette::Result<(usize, usize)> {
    let mut stream = ask(socket, path, "text/html")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).into_diagnostic()?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or_else(|| miette!("{path}: an answer without an end of its head"))?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let is_found = head.starts_with("http/1.1 200") || head.starts_with("http/1.1 303");
    ensure!(is_found, "{path}: {}", String::from_utf8_lossy(&answer));
    let body = match head.contains("transfer-encoding: chunked") {
        true => joined(&answer[end + 4..])?,
        false => answer[end + 4..].to_owned(),
    };
    if !head.contains("content-encoding: gzip") {
        return Ok((body.len(), body.len()));
    }
    let mut plain = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(&*body);
    unpacked.read_to_end(&mut plain).into_diagnostic()?;
    Ok((body.len(), plain.len()))
}

/// Follows a page. The stream is to be read to its end.
pub(crate) fn follow(socket: &Path, path: &str) -> miette::Result<UnixStream> {
    ask(socket, path, "text/event-stream")
}

fn ask(socket: &Path, path: &str, accept: &str) -> miette::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).into_diagnostic()?;
    stream
        .set_read_timeout(Some(ANSWER_WITHIN))
        .into_diagnostic()?;
    let request = format!("GET {path} HTTP/1.1\r\n{HEADERS}\r\naccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).into_diagnostic()?;
    Ok(stream)
}

/// Joins the chunks of a body.
fn joined(mut rest: &[u8]) -> miette::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n");
        let end = end.ok_or_else(|| miette!("a chunk without a length"))?;
        let length = std::str::from_utf8(&rest[..end]).into_diagnostic()?;
        let length = usize::from_str_radix(length.trim(), 16).into_diagnostic()?;
        if length == 0 {
            return Ok(body);
        }
        let chunk = rest.get(end + 2..end + 2 + length);
        body.extend_from_slice(chunk.ok_or_else(|| miette!("a chunk was cut"))?);
        rest = &rest[end + 4 + length..];
    }
}
