//! Colours for the status, added after its text is escaped: problems are seen at once.

use std::io::IsTerminal;

use ganger_pool::overview::Status;
use ganger_pool::status::PoolState;

/// Lines before the first pool: the daemon's, and the header.
const HEAD_LINES: usize = 2;

const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const RED: &str = "\u{1b}[31m";
const END: &str = "\u{1b}[0m";

/// Returns the text of a status with the pools' states coloured, and the notes of pools in trouble.
pub(super) fn status(text: &str, status: &Status) -> String {
    let lines = text.lines().enumerate().map(|(number, line)| {
        let row = number.checked_sub(HEAD_LINES);
        if let Some(pool) = row.and_then(|row| status.pools.get(row)) {
            let state = pool.state.as_str();
            return match line.rfind(&format!("  {state}  ")) {
                Some(at) => coloured(line, at + 2, state.len(), colour(pool.state)),
                None => line.to_owned(),
            };
        }
        let trouble = status.pools.iter().find(|pool| {
            let note = line.strip_prefix(pool.name.as_str());
            colour(pool.state) == RED && note.is_some_and(|note| note.starts_with(": "))
        });
        match trouble.is_some() || line.starts_with("alerts: ") {
            true => coloured(line, 0, line.len(), RED),
            false => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn coloured(line: &str, at: usize, length: usize, colour: &str) -> String {
    let (before, rest) = line.split_at(at);
    let (word, after) = rest.split_at(length);
    format!("{before}{colour}{word}{END}{after}")
}

fn colour(state: PoolState) -> &'static str {
    match state {
        PoolState::Running => GREEN,
        PoolState::Starting | PoolState::Paused | PoolState::Draining | PoolState::Drained => {
            YELLOW
        }
        PoolState::Degraded | PoolState::Open | PoolState::SourceDown => RED,
    }
}

/// Returns whether stdout shows colours, and they are wanted.
pub(super) fn has_colours() -> bool {
    std::io::stdout().is_terminal() && wants_colours()
}

/// Returns whether colours are wanted where they can be shown, as <https://no-color.org> has it.
pub(crate) fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::print;
    use super::super::print::tests::many;
    use super::*;

    #[test]
    fn states_are_coloured_and_nothing_else_changes() {
        let many = many();
        let plain = print::status(&many, true);
        let painted = status(&plain, &many);
        for (state, colour) in [("running", GREEN), ("paused", YELLOW), ("source down", RED)] {
            let shown = format!("{colour}{state}{END}");
            assert!(painted.contains(&shown), "{state}: {painted}");
        }
        let note = format!("{RED}payments: nearly all attempts fail: the bank is closed{END}");
        assert!(painted.contains(&note), "{painted}");
        let mut bare = painted;
        for code in [GREEN, YELLOW, RED, END] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, plain);
    }
}
