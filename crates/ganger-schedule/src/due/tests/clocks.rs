//! Clocks that were wrong.

use super::*;

#[test]
fn a_clock_that_was_set_back_repeats_nothing() {
    let due = decide(&cron("0 * * * *"), "2026-06-01T12:00Z", "2026-06-01T10:30Z");
    assert_eq!(
        (told(&due).len(), due.wake),
        (0, Wake::At(at("2026-06-01T13:00Z")))
    );
    assert_eq!(due.cursor, cursor("2026-06-01T12:00Z"));
}
