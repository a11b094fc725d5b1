//! The worker's command line: what it does whatever the messages say.

/// What was asked for.
pub(super) struct Options {
    /// `--mode=STEPS`: for messages that say nothing themselves.
    pub(super) mode: String,
    /// `--v2=N`: speaks version 2 and takes so many messages at once.
    pub(super) concurrency: Option<usize>,
    /// `--start=exit:CODE` or `--start=idle`.
    pub(super) start: Start,
    /// `--deaf-to-stdin`: reads the pipe's name and nothing more.
    pub(super) deaf_to_stdin: bool,
    /// `--deaf-to-pipe`: connects and never reads.
    pub(super) deaf_to_pipe: bool,
    /// `--longest=BYTES`: dies over a longer frame, of which it has read the length only.
    pub(super) frame_bytes_max: usize,
    /// `--stubborn`: ignores SIGTERM, control lines and the end of its pipe.
    pub(super) stubborn: bool,
}

/// How it starts.
pub(super) enum Start {
    Connect,
    /// Exits at once.
    Exit(i32),
    /// Never connects.
    Idle,
}

impl Options {
    pub(super) fn parse(args: &[String]) -> Self {
        let mut options = Self {
            mode: String::new(),
            concurrency: None,
            start: Start::Connect,
            deaf_to_stdin: false,
            deaf_to_pipe: false,
            frame_bytes_max: usize::MAX,
            stubborn: false,
        };
        for arg in args {
            let (name, value) = arg.split_once('=').unwrap_or((arg, ""));
            match name {
                "--mode" => options.mode = value.into(),
                "--v2" => options.concurrency = Some(value.parse().unwrap()),
                "--start" => options.start = start(value),
                "--deaf-to-stdin" => options.deaf_to_stdin = true,
                "--deaf-to-pipe" => options.deaf_to_pipe = true,
                "--longest" => options.frame_bytes_max = value.parse().unwrap(),
                "--stubborn" => options.stubborn = true,
                _ => panic!("an option of the modes-worker: `{arg}`"),
            }
        }
        options
    }
}

fn start(value: &str) -> Start {
    match value.split_once(':') {
        Some(("exit", code)) => Start::Exit(code.parse().unwrap()),
        None if value == "idle" => Start::Idle,
        _ => panic!("a way to start: `{value}`"),
    }
}
