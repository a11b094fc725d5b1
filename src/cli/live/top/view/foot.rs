//! The last line: the prompt, the result of a request, or the keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::super::model::{Focus, Prompt};
use super::super::pool_action::{ActionKind, PoolAction};
use super::canvas::View;
use super::palette::{cut, shown, width};

/// Keys, the most important first.
const KEYS: [(&str, &str); 12] = [
    ("q", "quit"),
    ("?", "help"),
    ("p", "pause"),
    ("s + -", "scale"),
    ("r", "restart"),
    ("d", "drain"),
    ("K", "kill"),
    ("x", "cancel"),
    ("e", "errors"),
    ("Tab", ""),
    ("↑ ↓", "choose"),
    ("o", "order"),
];

pub(super) fn draw(view: &View<'_>, area: Rect, buffer: &mut Buffer) {
    let palette = view.palette;
    let (text, style) = match (&view.model.prompt, view.model.notice(view.now)) {
        (Some(prompt), _) => (asked(prompt), palette.title()),
        (None, Some(notice)) if notice.is_error => (notice.text.clone(), palette.bad()),
        (None, Some(notice)) => (notice.text.clone(), palette.good()),
        (None, None) => (keys(view, usize::from(area.width)), palette.rule()),
    };
    let columns = usize::from(area.width);
    for row in area.rows() {
        let text = cut(&shown(&text), columns);
        buffer.set_stringn(row.x, row.y, text, columns, style);
    }
}

fn asked(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Confirm {
            pool_action,
            why: None,
        } => format!("{pool_action}? y/n"),
        Prompt::Confirm {
            pool_action,
            why: Some(why),
        } => format!("{pool_action}? {why}. y/n"),
        Prompt::Number { pool, digits, .. } => {
            let pool = pool.clone();
            let pool_action = PoolAction {
                pool,
                what: ActionKind::Scale(digits.parse().ok()),
            };
            match digits.as_str() {
                "" => format!(
                    "scale `{}` to … worker(s)? number, c: configured, Esc",
                    pool_action.pool
                ),
                _ => format!("{pool_action}? Enter, + -, number, c: configured, Esc"),
            }
        }
    }
}

/// Returns as many keys as fit; the one to leave in any case.
fn keys(view: &View<'_>, columns: usize) -> String {
    let other = match view.model.focus {
        Focus::Pools => "workers",
        Focus::Workers => "pools",
    };
    let mut line = String::new();
    for (key, what) in KEYS {
        let what = if what.is_empty() { other } else { what };
        let next = format!("{key} {what}  ");
        if width(&line) + width(next.trim_end()) > columns {
            break;
        }
        line += &next;
    }
    match line.trim_end() {
        "" => KEYS[0].0.to_owned(),
        line => line.to_owned(),
    }
}
