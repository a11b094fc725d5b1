//! Meaning of each key, as a table.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::cli::live::samples;
use ganger_pool::status::{ScalingStatus, WorkerStatus};

fn model(state: PoolState) -> Model {
    let workers = [(0, Some(70)), (1, None)].map(|(slot, pid)| WorkerStatus {
        slot,
        pid,
        in_flight: 2,
        message: pid.map(|_| "order 7".to_owned()),
        ..WorkerStatus::default()
    });
    let email = PoolStatus {
        name: "email".to_owned(),
        state,
        workers_wanted: 4,
        workers_configured: 20,
        workers: workers.into(),
        ..PoolStatus::default()
    };
    seen(vec![email])
}

fn seen(pools: Vec<PoolStatus>) -> Model {
    let mut model = Model::new("ganger.toml".to_owned(), Duration::from_secs(1));
    let status = samples::status(Duration::ZERO, pools);
    model.saw(status, Instant::now());
    model
}

fn means(model: &Model, code: KeyCode) -> Action {
    action(model, KeyEvent::new(code, KeyModifiers::NONE))
}

fn email(what: ActionKind) -> PoolAction {
    let pool = "email".to_owned();
    PoolAction { pool, what }
}

fn confirm(what: ActionKind) -> Action {
    Action::Prompt(confirmation(what))
}

fn confirmation(what: ActionKind) -> Prompt {
    Prompt::Confirm {
        pool_action: email(what),
        why: None,
    }
}

fn number(digits: &str, is_suggested: bool) -> Prompt {
    let (pool, digits) = ("email".to_owned(), digits.to_owned());
    Prompt::Number {
        pool,
        digits,
        is_suggested,
    }
}

#[test]
fn without_a_prompt() {
    use KeyCode::{BackTab, Char, Down, End, Enter, Esc, Home, PageDown, PageUp, Tab, Up};
    let table = [
        (Char('q'), Action::Leave),
        (Esc, Action::Leave),
        (Up, Action::Choose(Step::Up(1))),
        (Char('k'), Action::Choose(Step::Up(1))),
        (Down, Action::Choose(Step::Down(1))),
        (Char('j'), Action::Choose(Step::Down(1))),
        (PageUp, Action::Choose(Step::Up(10))),
        (PageDown, Action::Choose(Step::Down(10))),
        (Home, Action::Choose(Step::First)),
        (End, Action::Choose(Step::Last)),
        (Tab, Action::SwitchFocus),
        (BackTab, Action::SwitchFocus),
        (Char('o'), Action::SwitchOrder),
        (Char('?'), Action::SwitchHelp),
        (Char('p'), confirm(ActionKind::Pause)),
        (Char('d'), confirm(ActionKind::Drain)),
        (Char('r'), confirm(ActionKind::Restart)),
        (Char('s'), Action::Prompt(number("4", true))),
        (Char('+'), Action::Prompt(number("5", true))),
        (Char('-'), Action::Prompt(number("3", true))),
        (Char('y'), Action::Nothing),
        (Char('7'), Action::Nothing),
        (Enter, Action::Nothing),
    ];
    let model = model(PoolState::Running);
    for (key, expected) in table {
        assert_eq!(means(&model, key), expected, "{key:?}");
    }
}

#[test]
fn any_key_ends_the_help_and_does_nothing_else() {
    let mut model = model(PoolState::Running);
    model.shows_help = true;
    for key in [KeyCode::Char('q'), KeyCode::Char('d'), KeyCode::Esc] {
        assert_eq!(means(&model, key), Action::SwitchHelp, "{key:?}");
    }
}

#[test]
fn what_takes_nothing_in_is_resumed_without_a_question() {
    for state in [PoolState::Paused, PoolState::Draining, PoolState::Drained] {
        let resumed = means(&model(state), KeyCode::Char('p'));
        assert_eq!(resumed, Action::Do(email(ActionKind::Resume)), "{state:?}");
    }
}

#[test]
fn a_worker_is_killed_only_where_the_arrows_are_among_workers() {
    let mut model = model(PoolState::Running);
    let (killed, cancelled) = (KeyCode::Char('K'), KeyCode::Char('x'));
    for key in [killed, cancelled] {
        assert!(matches!(means(&model, key), Action::Say(_)), "{key:?}");
    }
    model.switch_focus();
    let kill = ActionKind::Kill {
        slot: 0,
        pid: Some(70),
        in_flight: 2,
    };
    assert_eq!(means(&model, killed), confirm(kill.clone()));
    assert_eq!(model.too_late_for(&email(kill)), None);
    let id = "order 7".to_owned();
    assert_eq!(means(&model, cancelled), confirm(ActionKind::Cancel { id }));
    model.step(Step::Last);
    assert!(
        matches!(means(&model, cancelled), Action::Say(_)),
        "it is idle"
    );
    let other = ActionKind::Kill {
        slot: 0,
        pid: Some(71),
        in_flight: 2,
    };
    let why = model.too_late_for(&email(other)).unwrap();
    assert!(why.contains("replaced meanwhile"), "{why}");
}

#[test]
fn without_a_pool_there_is_nothing_to_steer() {
    for model in [seen(Vec::new()), Model::new(String::new(), Duration::ZERO)] {
        for key in "pdrs+-Kx".chars() {
            let said = means(&model, KeyCode::Char(key));
            assert!(matches!(said, Action::Say(_)), "{key}: {said:?}");
        }
    }
}

#[test]
fn a_question_is_answered_by_yes_or_no() {
    use KeyCode::{Char, Enter, Esc};
    let mut model = model(PoolState::Running);
    model.prompt = Some(confirmation(ActionKind::Pause));
    let table = [
        (Char('y'), Action::Do(email(ActionKind::Pause))),
        (Char('Y'), Action::Do(email(ActionKind::Pause))),
        (Char('n'), Action::Cancel),
        (Char('q'), Action::Cancel),
        (Esc, Action::Cancel),
        (Enter, Action::Nothing),
        (Char('p'), Action::Nothing),
        (Char('j'), Action::Nothing),
    ];
    for (key, expected) in table {
        assert_eq!(means(&model, key), expected, "{key:?}");
    }
}

#[test]
fn a_number_is_typed_or_counted() {
    use KeyCode::{Backspace, Char, Down, Enter, Esc, Up};
    let mut model = model(PoolState::Running);
    model.prompt = Some(number("12", false));
    let table = [
        (Char('7'), Action::Edit(Edit::Digit('7'))),
        (Backspace, Action::Edit(Edit::Erase)),
        (Char('+'), Action::Edit(Edit::More)),
        (Up, Action::Edit(Edit::More)),
        (Char('-'), Action::Edit(Edit::Fewer)),
        (Down, Action::Edit(Edit::Fewer)),
        (Char('c'), Action::Do(email(ActionKind::Scale(None)))),
        (Enter, Action::Do(email(ActionKind::Scale(Some(12))))),
        (Esc, Action::Cancel),
        (Char('q'), Action::Cancel),
        (Char('y'), Action::Nothing),
    ];
    for (key, expected) in table {
        assert_eq!(means(&model, key), expected, "{key:?}");
    }
    let edits = [
        (Edit::Digit('3'), "123", false),
        (Edit::Erase, "12", false),
        (Edit::More, "13", true),
        (Edit::Erase, "1", false),
        (Edit::Fewer, "0", true),
        (Edit::Fewer, "0", true),
        (Edit::Erase, "", false),
    ];
    for (edit, digits, is_suggested) in edits {
        model.edit(edit);
        assert_eq!(model.prompt, Some(number(digits, is_suggested)), "{edit:?}");
    }
    assert!(matches!(means(&model, Enter), Action::Say(_)));
    for _ in 0..20 {
        model.edit(Edit::Digit('9'));
    }
    assert_eq!(model.prompt, Some(number("999999", false)));
}

/// `s` then `5` on a pool of two workers made 25.
#[test]
fn the_first_digit_replaces_what_is_suggested() {
    for start in [KeyCode::Char('s'), KeyCode::Char('+'), KeyCode::Char('-')] {
        let mut model = model(PoolState::Running);
        let Action::Prompt(prompt) = means(&model, start) else {
            panic!("{start:?} asks for a number");
        };
        model.prompt = Some(prompt);
        for (digit, shown) in [('1', "1"), ('5', "15")] {
            assert_eq!(
                means(&model, KeyCode::Char(digit)),
                Action::Edit(Edit::Digit(digit))
            );
            model.edit(Edit::Digit(digit));
            assert_eq!(model.prompt, Some(number(shown, false)), "{start:?}");
        }
        let scale = Action::Do(email(ActionKind::Scale(Some(15))));
        assert_eq!(means(&model, KeyCode::Enter), scale);
    }
}

#[test]
fn a_number_beyond_the_configured_ones_is_asked_about_once_more() {
    let range = ScalingStatus {
        min: 2,
        max: 8,
        ..ScalingStatus::default()
    };
    let table = [
        (None, ["1", "20"], ["0", "21"], "configured: 20"),
        (Some(range), ["2", "8"], ["1", "9"], "configured: 2 to 8"),
    ];
    for (autoscale, within, outside, reason) in table {
        let mut model = seen(vec![PoolStatus {
            name: "email".to_owned(),
            workers_configured: 20,
            autoscale,
            ..PoolStatus::default()
        }]);
        for digits in within {
            model.prompt = Some(number(digits, false));
            let entered = means(&model, KeyCode::Enter);
            assert!(matches!(entered, Action::Do(_)), "{digits}: {entered:?}");
        }
        for digits in outside {
            model.prompt = Some(number(digits, false));
            let pool_action = email(ActionKind::Scale(digits.parse().ok()));
            let why = Some(reason.to_owned());
            let prompt = Prompt::Confirm {
                pool_action: pool_action.clone(),
                why,
            };
            let entered = means(&model, KeyCode::Enter);
            assert_eq!(entered, Action::Prompt(prompt.clone()), "{digits}");
            model.prompt = Some(prompt);
            assert_eq!(means(&model, KeyCode::Enter), Action::Nothing);
            assert_eq!(means(&model, KeyCode::Char('y')), Action::Do(pool_action));
        }
    }
}

#[test]
fn control_c_leaves_always_and_a_released_key_means_nothing() {
    let mut model = model(PoolState::Running);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    released.kind = KeyEventKind::Release;
    for prompt in [
        None,
        Some(number("1", true)),
        Some(confirmation(ActionKind::Drain)),
    ] {
        model.prompt = prompt;
        assert_eq!(action(&model, control_c), Action::Leave);
        assert_eq!(action(&model, released), Action::Nothing);
    }
}
