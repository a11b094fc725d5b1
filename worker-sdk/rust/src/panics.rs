//! Panics of handlers, with their message and the way that led there.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::fmt::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::current;

thread_local! {
    /// What the hook has seen of the last panic in a handler on this thread.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on what panics in a handler is seen where it does; the hook that was there before has it
/// too.
pub(crate) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if current::handle().is_some() {
                let mut text = format!("panic: {}", message(info.payload()));
                if let Some(place) = info.location() {
                    write!(text, "\nat {place}").unwrap_or_default();
                }
                let way = Backtrace::force_capture().to_string();
                write!(text, "\n{}", own_frames(&way)).unwrap_or_default();
                LAST.set(Some(text));
            }
            before(info);
        }));
    });
}

/// Does some work; what is told of it if it panics.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let seen = LAST.take();
        seen.unwrap_or_else(|| format!("panic: {}", message(payload.as_ref())))
    })
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("something that is no text")
}

/// The part of a backtrace between what panics and what calls a handler.
fn own_frames(way: &str) -> String {
    let mut frames: Vec<String> = Vec::new();
    for line in way.lines() {
        // A frame is a line with its number and, where that is known, one with its place.
        match frames.last_mut() {
            Some(frame) if line.trim_start().starts_with("at ") => {
                *frame += "\n";
                *frame += line;
            }
            _ => frames.push(line.to_owned()),
        }
    }
    let panics = |frame: &String| {
        frame.contains("core::panicking::") || frame.contains("std::panicking::begin_panic")
    };
    let first = frames.iter().rposition(panics).map_or(0, |at| at + 1);
    let last = frames[first..]
        .iter()
        .position(|frame| frame.contains("ganger_worker::current::within"));
    let last = last.map_or(frames.len(), |count| first + count);
    frames[first..last].join("\n")
}
