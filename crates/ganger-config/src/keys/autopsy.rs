//! The keys of the program that inspects a worker before it is killed.

use std::time::Duration;

use super::command::Arguments;
use super::shared::MILLISECOND;
use crate::model::Autopsy;
use crate::reader::Reader;
use crate::value_types::{Wrong, duration};

pub(super) fn on_timeout(t: &mut Reader<'_>) -> Option<Autopsy> {
    let command = t.maybe(
        "on_timeout",
        Arguments,
        "Diagnostic program that runs before a worker is killed for `timeout` or `stall_timeout`, \
         with its arguments, in which `{pid}` is replaced by the worker's process ID, as in \
         `[\"py-spy\", \"dump\", \"--pid\", \"{pid}\"]`. It runs once, as the worker's user, in \
         its directory and with its environment; the last 8 KiB of its output are logged and kept \
         with a dead letter.",
    );
    let within = t.or(
        "on_timeout_within",
        duration(100 * MILLISECOND..=Duration::from_secs(60)),
        "5s",
        "Maximum run time of that program, by which the kill of the worker is delayed at most.",
    );
    let command = command?;
    if command.first().is_none_or(String::is_empty) {
        let wrong = Wrong::new("must name a program", "leave it out to disable it");
        t.wrong("on_timeout", &wrong);
    }
    Some(Autopsy { command, within })
}
