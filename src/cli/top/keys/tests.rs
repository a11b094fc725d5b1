//! What each key means, on a table.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::cli::samples;
use crate::pool::status::WorkerStatus;

fn model(state: PoolState) -> Model {
    let workers = [(0, Some(70)), (1, None)].map(|(slot, pid)| WorkerStatus {
        slot,
        pid,
        in_flight: 2,
        ..WorkerStatus::default()
    });
    let email = PoolStatus {
        name: "email".to_owned(),
        state,
        workers_wanted: 4,
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

fn email(what: What) -> Deed {
    let pool = "email".to_owned();
    Deed { pool, what }
}

fn confirm(what: What) -> Action {
    Action::Prompt(Prompt::Confirm(email(what)))
}

fn number(digits: &str) -> Prompt {
    let (pool, digits) = ("email".to_owned(), digits.to_owned());
    Prompt::Number { pool, digits }
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
        (Char('p'), confirm(What::Pause)),
        (Char('d'), confirm(What::Drain)),
        (Char('r'), confirm(What::Restart)),
        (Char('s'), Action::Prompt(number("4"))),
        (Char('+'), Action::Prompt(number("5"))),
        (Char('-'), Action::Prompt(number("3"))),
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
fn what_takes_nothing_in_is_resumed_without_a_question() {
    for state in [PoolState::Paused, PoolState::Draining, PoolState::Drained] {
        let resumed = means(&model(state), KeyCode::Char('p'));
        assert_eq!(resumed, Action::Do(email(What::Resume)), "{state:?}");
    }
}

#[test]
fn a_worker_is_killed_only_where_the_arrows_are_among_workers() {
    let mut model = model(PoolState::Running);
    let killed = KeyCode::Char('K');
    assert!(matches!(means(&model, killed), Action::Say(_)));
    model.switch_focus();
    let kill = What::Kill {
        slot: 0,
        pid: Some(70),
        in_flight: 2,
    };
    assert_eq!(means(&model, killed), confirm(kill));
    assert_eq!(model.too_late_for(&email(kill)), None);
    let other = What::Kill {
        slot: 0,
        pid: Some(71),
        in_flight: 2,
    };
    let why = model.too_late_for(&email(other)).unwrap();
    assert!(why.contains("another by now"), "{why}");
}

#[test]
fn without_a_pool_there_is_nothing_to_steer() {
    for model in [seen(Vec::new()), Model::new(String::new(), Duration::ZERO)] {
        for key in "pdrs+-K".chars() {
            let said = means(&model, KeyCode::Char(key));
            assert!(matches!(said, Action::Say(_)), "{key}: {said:?}");
        }
    }
}

#[test]
fn a_question_is_answered_by_yes_or_no() {
    use KeyCode::{Char, Enter, Esc};
    let mut model = model(PoolState::Running);
    model.prompt = Some(Prompt::Confirm(email(What::Pause)));
    let table = [
        (Char('y'), Action::Do(email(What::Pause))),
        (Char('Y'), Action::Do(email(What::Pause))),
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
    model.prompt = Some(number("12"));
    let table = [
        (Char('7'), Action::Edit(Edit::Digit('7'))),
        (Backspace, Action::Edit(Edit::Erase)),
        (Char('+'), Action::Edit(Edit::More)),
        (Up, Action::Edit(Edit::More)),
        (Char('-'), Action::Edit(Edit::Fewer)),
        (Down, Action::Edit(Edit::Fewer)),
        (Char('c'), Action::Do(email(What::Scale(None)))),
        (Enter, Action::Do(email(What::Scale(Some(12))))),
        (Esc, Action::Cancel),
        (Char('q'), Action::Cancel),
        (Char('y'), Action::Nothing),
    ];
    for (key, expected) in table {
        assert_eq!(means(&model, key), expected, "{key:?}");
    }
    let edits = [
        (Edit::Digit('3'), "123"),
        (Edit::Erase, "12"),
        (Edit::More, "13"),
        (Edit::Erase, "1"),
        (Edit::Fewer, "0"),
        (Edit::Fewer, "0"),
        (Edit::Erase, ""),
    ];
    for (edit, digits) in edits {
        model.edit(edit);
        assert_eq!(model.prompt, Some(number(digits)), "{edit:?}");
    }
    assert!(matches!(means(&model, Enter), Action::Say(_)));
    for _ in 0..20 {
        model.edit(Edit::Digit('9'));
    }
    assert_eq!(model.prompt, Some(number("999999")));
}

#[test]
fn control_c_leaves_always_and_a_released_key_means_nothing() {
    let mut model = model(PoolState::Running);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    released.kind = KeyEventKind::Release;
    for prompt in [
        None,
        Some(number("1")),
        Some(Prompt::Confirm(email(What::Drain))),
    ] {
        model.prompt = prompt;
        assert_eq!(action(&model, control_c), Action::Leave);
        assert_eq!(action(&model, released), Action::Nothing);
    }
}
