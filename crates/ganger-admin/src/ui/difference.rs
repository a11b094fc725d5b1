//! Differences of two texts, line by line.

use maud::{Markup, html};

use super::shown::text;

/// Number of equal lines that are shown around a difference.
const AROUND: usize = 3;
/// Maximum number of pairs of lines that are compared; beyond it all lines that may differ are shown.
const PAIRS_MAX: usize = 4_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffLine<'a> {
    Same(&'a str),
    Gone(&'a str),
    New(&'a str),
}

/// Shows the lines in which two texts differ, with a few around them.
pub(super) fn difference(old: &str, new: &str) -> Markup {
    let lines = compared(old, new);
    let is_near = |at: usize| {
        let begin = at.saturating_sub(AROUND);
        let end = lines.len().min(at + AROUND + 1);
        lines[begin..end]
            .iter()
            .any(|line| !matches!(line, DiffLine::Same(_)))
    };
    let near: Vec<bool> = (0..lines.len()).map(is_near).collect();
    html! {
        pre.diff tabindex="0" {
            @for (at, line) in lines.iter().enumerate() {
                @if near[at] {
                    @match line {
                        DiffLine::Same(line) => { "  " (text(line)) "\n" },
                        DiffLine::Gone(line) => { del { "- " (text(line)) } "\n" },
                        DiffLine::New(line) => { ins { "+ " (text(line)) } "\n" },
                    }
                } @else if at == 0 || near[at - 1] {
                    span.of { "  …" } "\n"
                }
            }
        }
    }
}

/// Compares two texts by their longest common sequence of lines.
fn compared<'a>(old: &'a str, new: &'a str) -> Vec<DiffLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let begin = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[begin..], &new[begin..]);
    let ends = old_rest.iter().rev().zip(new_rest.iter().rev());
    let end = ends.take_while(|(a, b)| a == b).count();
    let (before, after) = (
        &old_rest[..old_rest.len() - end],
        &new_rest[..new_rest.len() - end],
    );
    let mut lines: Vec<DiffLine<'_>> = old[..begin]
        .iter()
        .map(|line| DiffLine::Same(line))
        .collect();
    match before.len().saturating_mul(after.len()) <= PAIRS_MAX {
        true => aligned(before, after, &mut lines),
        false => {
            lines.extend(before.iter().map(|line| DiffLine::Gone(line)));
            lines.extend(after.iter().map(|line| DiffLine::New(line)));
        }
    }
    let same = &old[old.len() - end..];
    lines.extend(same.iter().map(|line| DiffLine::Same(line)));
    lines
}

fn aligned<'a>(before: &[&'a str], after: &[&'a str], lines: &mut Vec<DiffLine<'a>>) {
    let width = after.len() + 1;
    // Length of the longest common sequence of the lines from there on.
    let mut common = vec![0_u32; (before.len() + 1) * width];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            common[i * width + j] = match before[i] == after[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < before.len() && j < after.len() {
        if before[i] == after[j] {
            lines.push(DiffLine::Same(before[i]));
            (i, j) = (i + 1, j + 1);
        } else if common[(i + 1) * width + j] >= common[i * width + j + 1] {
            lines.push(DiffLine::Gone(before[i]));
            i += 1;
        } else {
            lines.push(DiffLine::New(after[j]));
            j += 1;
        }
    }
    lines.extend(before[i..].iter().map(|line| DiffLine::Gone(line)));
    lines.extend(after[j..].iter().map(|line| DiffLine::New(line)));
}

#[cfg(test)]
mod tests {
    use super::DiffLine::{Gone, New, Same};
    use super::*;

    #[test]
    fn lines_that_differ_are_found() {
        assert_eq!(
            compared("a\nb\nc\nd", "a\nc\nx\nd"),
            [Same("a"), Gone("b"), Same("c"), New("x"), Same("d")]
        );
        assert_eq!(compared("a", "a"), [Same("a")]);
        assert_eq!(compared("a\na", "a"), [Same("a"), Gone("a")]);
    }

    #[test]
    fn equal_lines_far_from_a_difference_are_left_out() {
        let old: Vec<String> = (0..50).map(|line| line.to_string()).collect();
        let new = old.join("\n").replace("25", "<x>");
        let shown = difference(&old.join("\n"), &new).into_string();
        assert!(
            shown.contains("<del>- 25</del>\n<ins>+ &lt;x&gt;</ins>"),
            "{shown}"
        );
        assert!(!shown.contains("10"), "{shown}");
        assert_eq!(shown.matches('…').count(), 2);
    }

    #[test]
    fn many_lines_take_no_time() {
        let (old, new) = ("a\n".repeat(100_000), "b\n".repeat(100_000));
        assert_eq!(compared(&old, &new).len(), 200_001);
    }
}
