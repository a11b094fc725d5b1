//! Meaning of a key: a pure function of the key and of the screen's contents.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Edit, Focus, Model, Prompt, Step};
use super::pool_action::{ActionKind, PoolAction};
use ganger_pool::status::{PoolState, PoolStatus};

/// Length of a page.
const PAGE: usize = 10;

/// Action for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// The key has no meaning here.
    Nothing,
    /// Leave the screen.
    Leave,
    /// Select another pool or worker.
    Choose(Step),
    /// Move the arrows' focus to the other list.
    SwitchFocus,
    /// Show or hide the help.
    SwitchHelp,
    /// Change the order of the workers.
    SwitchOrder,
    /// Count the dead letters of a pool by their errors.
    AskForErrors { pool: String, source: String },
    /// Hide these counts.
    HideErrors,
    /// Open this prompt.
    Prompt(Prompt),
    /// Edit the number in the prompt.
    Edit(Edit),
    /// Close the prompt.
    Cancel,
    /// Send this request to the daemon.
    Do(PoolAction),
    /// Only show this message.
    Say(&'static str),
}

/// Returns the action for this key.
pub(super) fn action(model: &Model, key: KeyEvent) -> Action {
    if key.kind == KeyEventKind::Release {
        return Action::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Action::Leave,
            _ => Action::Nothing,
        };
    }
    match &model.prompt {
        None if model.shows_help => Action::SwitchHelp,
        None if model.errors.is_some() => Action::HideErrors,
        None => chosen(model, key.code),
        Some(Prompt::Confirm { pool_action, .. }) => confirmed(pool_action, key.code),
        Some(Prompt::Number { pool, digits, .. }) => numbered(model, pool, digits, key.code),
    }
}

fn confirmed(pool_action: &PoolAction, key: KeyCode) -> Action {
    match key {
        KeyCode::Char('y' | 'Y') => Action::Do(pool_action.clone()),
        KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => Action::Cancel,
        _ => Action::Nothing,
    }
}

fn numbered(model: &Model, pool: &str, digits: &str, key: KeyCode) -> Action {
    let scale = |workers| {
        let (name, what) = (pool.to_owned(), ActionKind::Scale(workers));
        let pool_action = PoolAction { pool: name, what };
        match workers.and_then(|workers| beyond(model, pool, workers)) {
            None => Action::Do(pool_action),
            why => Action::Prompt(Prompt::Confirm { pool_action, why }),
        }
    };
    match key {
        KeyCode::Char(digit) if digit.is_ascii_digit() => Action::Edit(Edit::Digit(digit)),
        KeyCode::Backspace => Action::Edit(Edit::Erase),
        KeyCode::Char('+' | '=') | KeyCode::Up => Action::Edit(Edit::More),
        KeyCode::Char('-') | KeyCode::Down => Action::Edit(Edit::Fewer),
        KeyCode::Char('c') => scale(None),
        KeyCode::Enter => match digits.parse() {
            Ok(workers) => scale(Some(workers)),
            Err(_) => Action::Say("type a number of workers, or c for the configured number"),
        },
        KeyCode::Char('q' | 'n') | KeyCode::Esc => Action::Cancel,
        _ => Action::Nothing,
    }
}

/// Returns the reason to confirm this number of workers: it is beyond the configured range.
fn beyond(model: &Model, pool: &str, workers: usize) -> Option<String> {
    let pool = model.pools().iter().find(|other| other.name == pool)?;
    let (min, max) = match &pool.autoscale {
        Some(scaling) => (scaling.min, scaling.max),
        None => (pool.workers_configured.min(1), pool.workers_configured),
    };
    let configured = match &pool.autoscale {
        Some(_) => format!("{min} to {max}"),
        None => max.to_string(),
    };
    let is_beyond = !(min..=max).contains(&workers);
    is_beyond.then(|| format!("configured: {configured}"))
}

fn chosen(model: &Model, key: KeyCode) -> Action {
    match key {
        KeyCode::Char('q') | KeyCode::Esc => Action::Leave,
        KeyCode::Up | KeyCode::Char('k') => Action::Choose(Step::Up(1)),
        KeyCode::Down | KeyCode::Char('j') => Action::Choose(Step::Down(1)),
        KeyCode::PageUp => Action::Choose(Step::Up(PAGE)),
        KeyCode::PageDown => Action::Choose(Step::Down(PAGE)),
        KeyCode::Home | KeyCode::Char('g') => Action::Choose(Step::First),
        KeyCode::End | KeyCode::Char('G') => Action::Choose(Step::Last),
        KeyCode::Tab | KeyCode::BackTab => Action::SwitchFocus,
        KeyCode::Char('o') => Action::SwitchOrder,
        KeyCode::Char('?' | 'h') => Action::SwitchHelp,
        KeyCode::Char(order @ ('p' | 's' | '+' | '=' | '-' | 'r' | 'd' | 'K' | 'x' | 'e')) => {
            match model.pool() {
                Some(pool) => ordered(model, pool, order),
                None => Action::Say("there is no pool to apply this to"),
            }
        }
        _ => Action::Nothing,
    }
}

fn ordered(model: &Model, pool: &PoolStatus, order: char) -> Action {
    let pool_action = |what| PoolAction {
        pool: pool.name.clone(),
        what,
    };
    let confirm = |what| {
        Action::Prompt(Prompt::Confirm {
            pool_action: pool_action(what),
            why: None,
        })
    };
    let number = |workers: usize| {
        Action::Prompt(Prompt::Number {
            pool: pool.name.clone(),
            digits: workers.to_string(),
            is_suggested: true,
        })
    };
    let wanted = pool.workers_wanted;
    match order {
        'p' => match pool.state {
            PoolState::Paused | PoolState::Draining | PoolState::Drained => {
                Action::Do(pool_action(ActionKind::Resume))
            }
            PoolState::Starting
            | PoolState::Running
            | PoolState::Degraded
            | PoolState::Open
            | PoolState::SourceDown => confirm(ActionKind::Pause),
        },
        's' => number(wanted),
        '+' | '=' => number(wanted.saturating_add(1)),
        '-' => number(wanted.saturating_sub(1)),
        'r' => confirm(ActionKind::Restart),
        'd' => confirm(ActionKind::Drain),
        'e' => Action::AskForErrors {
            pool: pool.name.clone(),
            source: pool.source.clone(),
        },
        'K' | 'x' if model.focus == Focus::Pools => {
            Action::Say("select a worker first: Tab, then the arrows")
        }
        'K' => match model.worker() {
            Some(worker) => confirm(ActionKind::Kill {
                slot: worker.slot,
                pid: worker.pid,
                in_flight: worker.in_flight,
            }),
            None => Action::Say("the pool has no worker"),
        },
        'x' => match model.worker().and_then(|worker| worker.message.clone()) {
            Some(id) => confirm(ActionKind::Cancel { id }),
            None => Action::Say("the worker has no message in hand"),
        },
        _ => Action::Nothing,
    }
}

#[cfg(test)]
mod tests;
