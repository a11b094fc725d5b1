//! Keys and signals, each read on a thread of its own.

use std::io;
use std::ops::ControlFlow;
use std::process;
use std::thread;

use miette::{IntoDiagnostic, WrapErr};
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::mpsc;

use crate::cli::signals::Signals;

/// Maximum number of inputs that wait to be handled.
const INPUTS_MAX: usize = 64;

/// An input of the user.
#[derive(Debug)]
pub(super) enum Input {
    /// A key, or a new terminal size.
    Event(Event),
    /// Leave the screen.
    Leave,
    /// Keys can't be read.
    Broken(io::Error),
}

/// Starts to listen. A second signal ends the program at once: the terminal may not respond any
/// more.
pub(super) fn listen() -> miette::Result<mpsc::Receiver<Input>> {
    let (tell, inputs) = mpsc::channel(INPUTS_MAX);
    let signals = Signals::of(&[SIGHUP, SIGINT, SIGTERM])
        .into_diagnostic()
        .wrap_err("catching signals failed")?;
    let leave = tell.clone();
    let mut is_first = true;
    let obey = move |signal, _: &_| {
        let is_told = leave.try_send(Input::Leave).is_ok();
        if !is_told || !is_first {
            drop(ratatui::crossterm::terminal::disable_raw_mode());
            process::exit(128 + signal);
        }
        is_first = false;
        ControlFlow::Continue(())
    };
    let started = signals.handled_by("signals", obey);
    started.into_diagnostic()?;
    let read = move || {
        loop {
            let (input, is_last) = match event::read() {
                Ok(event) => (Input::Event(event), false),
                Err(error) => (Input::Broken(error), true),
            };
            if tell.blocking_send(input).is_err() || is_last {
                return;
            }
        }
    };
    let started = thread::Builder::new().name("keys".into()).spawn(read);
    started.into_diagnostic()?;
    Ok(inputs)
}
