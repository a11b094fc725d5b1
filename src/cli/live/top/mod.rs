//! `ganger top`: a running daemon on the whole terminal, and its pools steered by keys.
//!
//! ```text
//! keys, signals ─▶ input ─┐
//!                         ├─▶ the loop: model (what is known) ─▶ view (what is drawn)
//! the daemon ────▶ asking ┘
//! ```
//! The daemon may be away, slow or replaced by another: the screen says so and continues.

mod asking;
mod history;
mod input;
mod keys;
mod model;
mod pool_action;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use miette::{IntoDiagnostic, WrapErr, miette};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyEvent};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::remote::{self, Address};
use super::steer::paint;
use crate::cli::common::CommandResult;
use asking::{Request, RequestResult, StatusAnswer, look_on, send};
use ganger_admin::client::Remote;
use ganger_queue::client::json::duration;
use input::Input;
use keys::{Action, action};
use model::{Errors, Model};
use view::{Palette, View};

/// Interval at which the screen is redrawn without events: ages grow.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// Shortest and longest interval between polls of the daemon.
const INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);
/// Maximum number of requests that wait for their answers.
const REQUESTS_MAX: usize = 8;
/// Maximum number of polled statuses that wait to be shown.
const LOOKS_MAX: usize = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    address: Address,
    /// Interval at which the daemon is polled
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = asked_every)]
    interval: Duration,
}

fn asked_every(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        every if INTERVAL.contains(&every) => Ok(every),
        _ => Err("must be within 100ms and 1h".to_owned()),
    }
}

/// Shows the daemon until the user leaves.
pub(super) fn run(args: &TopArgs) -> CommandResult {
    let remote = args.address.remote()?;
    if !is_screen() {
        return Err(miette!(
            "`ganger top` needs a terminal to draw on and to read keys from; \
             `ganger status` prints the same once"
        ));
    }
    let model = Model::new(args.address.name(), args.interval);
    let runtime = remote::runtime()?;
    let screen = Screen::open()?;
    let left = runtime.block_on(shown(screen, &remote, model));
    // A name that is being looked up is not waited for.
    runtime.shutdown_background();
    left.map(|()| ExitCode::SUCCESS)
}

/// Returns whether stdin and stdout are a terminal on which the cursor can move.
fn is_screen() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// The terminal while we use it; restored on drop, and before a panic is reported.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> miette::Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                drop(ratatui::try_restore());
                Err(error)
                    .into_diagnostic()
                    .wrap_err("drawing on the terminal failed")
            }
        }
    }

    fn draw(&mut self, model: &Model, palette: Palette) -> miette::Result<()> {
        let drawn = self.0.draw(|frame| {
            let view = View {
                model,
                palette,
                now: Instant::now(),
            };
            view::draw(&view, frame.area(), frame.buffer_mut());
        });
        drawn.into_diagnostic().map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        drop(self.0.show_cursor());
        drop(ratatui::try_restore());
    }
}

/// Shows the daemon on the screen until the screen is left.
async fn shown(mut screen: Screen, remote: &Remote, mut model: Model) -> miette::Result<()> {
    let (tell, mut looks) = mpsc::channel(LOOKS_MAX);
    let every = model.interval;
    let mut inputs = input::listen()?;
    let shown = async {
        let palette = Palette {
            colours: paint::wants_colours(),
        };
        let mut requests = FuturesUnordered::new();
        let mut ticks = interval(DRAW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            screen.draw(&model, palette)?;
            let done = tokio::select! {
                input = inputs.recv() => match input {
                    Some(Input::Event(Event::Key(key))) => pressed(&mut model, key),
                    // What it shows now may have another size.
                    Some(Input::Event(_)) => Done::Nothing,
                    Some(Input::Leave) | None => Done::Left,
                    Some(Input::Broken(error)) => {
                        return Err(error).into_diagnostic().wrap_err("reading from the terminal failed");
                    }
                },
                Some(look) = looks.recv() => {
                    saw(&mut model, look);
                    Done::Nothing
                }
                Some(told) = requests.next(), if !requests.is_empty() => {
                    match told {
                        RequestResult::Done { text, is_error } => model.note(text, is_error, Instant::now()),
                        RequestResult::Errors { pool, groups } => model.saw_errors(&pool, groups),
                    }
                    Done::Nothing
                }
                _ = ticks.tick() => Done::Nothing,
            };
            match done {
                Done::Nothing => {}
                Done::Left => return Ok(()),
                Done::Asked(_) if requests.len() >= REQUESTS_MAX => {
                    let text = format!("{REQUESTS_MAX} requests have no answer yet");
                    model.note(text, true, Instant::now());
                }
                Done::Asked(request) => requests.push(send(remote, request)),
            }
        }
    };
    tokio::select! {
        left = shown => left,
        never = look_on(remote, every, tell) => match never {},
    }
}

fn saw(model: &mut Model, look: StatusAnswer) {
    match look {
        Ok(status) => model.saw(*status, Instant::now()),
        Err(why) => model.missed(why),
    }
}

/// Result of a key.
enum Done {
    Nothing,
    Left,
    Asked(Request),
}

fn pressed(model: &mut Model, key: KeyEvent) -> Done {
    let now = Instant::now();
    match action(model, key) {
        Action::Nothing => {}
        Action::Leave => return Done::Left,
        Action::Choose(step) => model.step(step),
        Action::SwitchFocus => model.switch_focus(),
        Action::SwitchOrder => model.switch_order(),
        Action::SwitchHelp => model.shows_help = !model.shows_help,
        Action::HideErrors => model.errors = None,
        Action::AskForErrors { pool, source } => {
            model.errors = Some(Errors {
                pool: pool.clone(),
                groups: None,
            });
            return Done::Asked(Request::Errors { pool, source });
        }
        Action::Prompt(prompt) => model.prompt = Some(prompt),
        Action::Edit(edit) => model.edit(edit),
        Action::Cancel => model.prompt = None,
        Action::Say(text) => model.note(text.to_owned(), true, now),
        Action::Do(pool_action) => {
            model.prompt = None;
            match model.too_late_for(&pool_action) {
                Some(why) => model.note(why, true, now),
                None => {
                    model.note(format!("asked to {pool_action}"), false, now);
                    return Done::Asked(Request::Do(pool_action));
                }
            }
        }
    }
    Done::Nothing
}
