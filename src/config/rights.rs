//! Who else may write or read the configuration. Whoever writes it decides what the daemon runs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::problem::Problem;
use super::redact::redact;

/// What would be right.
pub(super) const HELP: &str = "take what others may with `chmod o=`, and with `chmod g=` where the \
                               group is not the daemon's own";

/// What should be mended about the rights of these files, with what is in them.
pub(super) fn faults<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Problem> {
    let fault = |(name, text): (&str, &str)| {
        let fault = told(Path::new(name), holds_secrets(text))?;
        Some(Problem::of_file(
            name,
            format!("the configuration {fault}"),
            HELP,
        ))
    };
    files.filter_map(fault).collect()
}

/// What should be mended about the rights of a file that is a secret, in words that follow its name.
pub(super) fn fault_of_secret(file: &Path) -> Option<String> {
    told(file, true)
}

fn told(file: &Path, secrets: bool) -> Option<String> {
    let own_group = nix::unistd::Gid::effective().as_raw();
    let metadata = fs::metadata(file).ok()?;
    let mode = metadata.mode() & 0o777;
    let fault = fault(mode, metadata.gid() == own_group, secrets)?;
    Some(format!("{fault}: `{}` has mode {mode:04o}", file.display()))
}

fn fault(mode: u32, own_group: bool, secrets: bool) -> Option<&'static str> {
    // The daemon's own group may be for its user alone; it is no stranger in any case.
    let others = if own_group { 0o007 } else { 0o077 };
    match mode & others {
        bits if bits & 0o022 != 0 => {
            Some("may be written by others, who so decide what the daemon runs")
        }
        bits if bits & 0o044 != 0 && secrets => Some("holds secrets and may be read by others"),
        _ => None,
    }
}

/// Whether there is a secret in the text itself, rather than in a variable or a file that it names.
fn holds_secrets(text: &str) -> bool {
    text.lines().any(|line| {
        let key = line.split('=').next().unwrap_or_default().trim();
        let elsewhere = key.starts_with('#') || key.ends_with("_file");
        let line = without_variables(line);
        !elsewhere && redact(&line) != line
    })
}

fn without_variables(line: &str) -> String {
    let mut parts = line.split("${");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('}').map_or("", |(_, rest)| rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_the_text_is_a_secret() {
        let cases = [
            ("url = \"amqp://guest:hunter2@h/\"", true),
            ("url = \"amqp://guest:${PASSWORD}@h/\"", false),
            ("url = \"amqp://h/\"", false),
            ("url_file = \"/run/secrets/url\"", false),
            ("# url = \"amqp://guest:hunter2@h/\"", false),
            ("env = { API_TOKEN = \"abc\" }", true),
            ("env = { API_TOKEN = \"${TOKEN}\" }", false),
            ("password = \"abc\"", true),
            ("password_file = \"abc\"", false),
        ];
        for (line, expected) in cases {
            assert_eq!(holds_secrets(line), expected, "{line}");
        }
    }

    #[test]
    fn strangers_may_not_write_nor_read_secrets() {
        let cases = [
            (0o600, false, true, false),
            (0o640, true, true, false),
            (0o640, false, true, true),
            (0o640, false, false, false),
            (0o644, true, true, true),
            (0o644, false, false, false),
            (0o664, true, false, false),
            (0o664, false, false, true),
            (0o666, true, false, true),
        ];
        for (mode, own_group, secrets, faulty) in cases {
            let found = fault(mode, own_group, secrets);
            assert_eq!(found.is_some(), faulty, "{mode:o} {own_group} {secrets}");
        }
    }
}
