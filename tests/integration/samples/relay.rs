//! A mail relay of the tests' own. It takes every mail, but for what a recipient's name asks of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// A mail that it has taken.
#[derive(Debug, Clone)]
pub(super) struct Mail {
    pub(super) to: String,
    /// Headers and text.
    pub(super) text: String,
}

impl Mail {
    /// The value of that header.
    pub(super) fn header(&self, name: &str) -> &str {
        let start = format!("{name}: ");
        let line = self.text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.text))
    }
}

#[derive(Debug, Default)]
struct Memory {
    mails: Vec<Mail>,
    /// How often each recipient was named.
    named: BTreeMap<String, u32>,
}

/// The relay; dropped, it is away.
pub(super) struct Relay {
    address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
    runtime: Option<Runtime>,
}

impl Relay {
    pub(super) fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let memory: Arc<Mutex<Memory>> = Arc::default();
        let shared = memory.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Conversation::of(stream, shared.clone()).hold());
            }
        });
        Self {
            address,
            memory,
            runtime: Some(runtime),
        }
    }

    pub(super) fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// What it has taken for that recipient.
    pub(super) fn mails(&self, to: &str) -> Vec<Mail> {
        let memory = self.memory.lock().unwrap();
        let mails = memory.mails.iter().filter(|mail| mail.to == to);
        mails.cloned().collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// What goes on over one connection.
struct Conversation {
    lines: Lines<BufReader<OwnedReadHalf>>,
    out: OwnedWriteHalf,
    memory: Arc<Mutex<Memory>>,
    to: String,
}

impl Conversation {
    fn of(stream: TcpStream, memory: Arc<Mutex<Memory>>) -> Self {
        let (read, out) = stream.into_split();
        Self {
            lines: BufReader::new(read).lines(),
            out,
            memory,
            to: String::new(),
        }
    }

    /// Until the client goes, or is left without a word.
    async fn hold(mut self) {
        self.say("220 relay").await;
        while let Ok(Some(line)) = self.lines.next_line().await {
            let verb = line.get(..4).unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "RCPT" => self.recipient(&line).await,
                "DATA" => self.data().await,
                // It has taken the mail, whatever it says now.
                "QUIT" if self.to.starts_with("rude@") => self.say("421 no time for that").await,
                "QUIT" => self.say("221 bye").await,
                _ => self.say("250 well").await,
            }
        }
    }

    async fn recipient(&mut self, line: &str) {
        let address = line.split(['<', '>']).nth(1).unwrap_or_default();
        self.to = address.to_owned();
        let is_first = {
            let mut memory = self.memory.lock().unwrap();
            let named = memory.named.entry(self.to.clone()).or_default();
            *named += 1;
            *named == 1
        };
        match address.split('@').next() {
            Some("nobody") => self.say("550 no such mailbox").await,
            Some("full") if is_first => self.say("452 no room just now").await,
            _ => self.say("250 well").await,
        }
    }

    async fn data(&mut self) {
        self.say("354 go on").await;
        let mut text = String::new();
        while let Ok(Some(line)) = self.lines.next_line().await {
            if line == "." {
                break;
            }
            text += &format!("{line}\n");
        }
        let to = self.to.clone();
        let is_first = {
            let mut memory = self.memory.lock().unwrap();
            memory.mails.push(Mail { to, text });
            let own = memory.mails.iter().filter(|mail| mail.to == self.to);
            own.count() == 1
        };
        match self.to.split('@').next() {
            Some("spam") => self.say("554 not this").await,
            // It has the mail, and its word never comes.
            Some("silent") if is_first => std::future::pending().await,
            _ => self.say("250 taken").await,
        }
    }

    async fn say(&mut self, line: &str) {
        // Who is gone hears nothing.
        drop(self.out.write_all(format!("{line}\r\n").as_bytes()).await);
    }
}
