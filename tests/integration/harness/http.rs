//! A client of the admin API that is not ganger's own: plain HTTP/1.1 over a socket or TCP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(30);

/// Where the API is.
#[derive(Debug, Clone)]
pub(crate) enum Api {
    /// At a port of this machine.
    Port(u16),
    /// Likewise, where it wants this token.
    Authorized { port: u16, token: String },
    /// At a unix socket.
    Socket(PathBuf),
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It is that problem document; what it says.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{self:?}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Api {
    fn connect(&self) -> Box<dyn Stream> {
        self.try_connect()
            .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    fn try_connect(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Port(port) | Self::Authorized { port, .. } => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_read_timeout(Some(WITHIN))?;
                Ok(Box::new(stream))
            }
            Self::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(WITHIN))?;
                Ok(Box::new(stream))
            }
        }
    }

    /// Likewise of a server that may not be up yet.
    pub(crate) fn try_get(&self, path: &str) -> Option<Answer> {
        drop(self.try_connect().ok()?);
        let answer = self.get(path);
        (answer.status == 200).then_some(answer)
    }

    /// The port, if it is at one.
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Port(port) | Self::Authorized { port, .. } => *port,
            Self::Socket(path) => panic!("{} is no port", path.display()),
        }
    }

    /// The token that it wants.
    pub(crate) fn token(&self) -> Option<&str> {
        match self {
            Self::Authorized { token, .. } => Some(token),
            Self::Port(_) | Self::Socket(_) => None,
        }
    }

    /// The header that brings the token, unless the request brings one of its own.
    fn authorization(&self, headers: &[&str]) -> String {
        let own = headers
            .iter()
            .any(|header| header.starts_with("Authorization:"));
        match self.token().filter(|_| !own) {
            Some(token) => format!("Authorization: Bearer {token}\r\n"),
            None => String::new(),
        }
    }

    /// Sends a request with these headers and reads the whole answer.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        let mut stream = self.connect();
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            request += "Host: localhost\r\n";
        }
        for header in headers {
            request += &format!("{header}\r\n");
        }
        request += &self.authorization(headers);
        if !body.is_empty() {
            let is_typed = |header: &&str| header.starts_with("Content-Type:");
            if !headers.iter().any(is_typed) {
                request += "Content-Type: application/json\r\n";
            }
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        // Who is refused at once may close before all is sent.
        drop(write!(stream, "{request}\r\n{body}"));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("no answer to {method} {path}: {answer:?}")),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &[], body)
    }

    /// Opens the stream of events.
    pub(crate) fn events(&self, after: Option<&str>) -> Events {
        let after = after.map(|id| format!("Last-Event-ID: {id}"));
        self.events_with(after.as_deref())
    }

    /// Likewise, with a header.
    pub(crate) fn events_with(&self, header: Option<&str>) -> Events {
        let mut stream = self.connect();
        let header = header.map_or_else(String::new, |header| format!("{header}\r\n"));
        write!(
            stream,
            "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{}{header}\r\n",
            self.authorization(&[])
        )
        .unwrap();
        Events(BufReader::new(stream))
    }
}

/// A stream of server-sent events.
pub(crate) struct Events(BufReader<Box<dyn Stream>>);

impl Events {
    /// Whether it is one, and no refusal.
    pub(crate) fn is_served(&mut self) -> bool {
        let mut status = String::new();
        self.0.read_line(&mut status).unwrap();
        status.contains(" 200 ")
    }

    /// Waits for the next event of that kind: its id and its data.
    pub(crate) fn next(&mut self, kind: &str) -> (String, Value) {
        loop {
            let (id, event) = self.any();
            if event["event"] == kind {
                return (id, event);
            }
        }
    }

    /// Waits for the end of the stream.
    pub(crate) fn ends(mut self) {
        self.0.read_to_end(&mut Vec::new()).unwrap();
    }

    /// Waits for the next event: its id and its data.
    pub(crate) fn any(&mut self) -> (String, Value) {
        let (mut id, mut event) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            let bytes = self.0.read_line(&mut line).unwrap();
            assert!(bytes > 0, "the stream ended");
            let line = line.trim_end();
            if let Some(number) = line.strip_prefix("id: ") {
                id = number.to_owned();
            } else if let Some(name) = line.strip_prefix("event: ") {
                event = name.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                assert_eq!((&data["id"], &data["event"]), (&json!(id), &json!(event)));
                return (id, data);
            }
        }
    }
}
