//! Fuzzes the decoder of what workers send. What must hold is in `ganger_protocol::invariants`.
#![no_main]

use ganger_protocol::invariants;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    invariants::output_is_refused_or_understood(frame);
    invariants::task_is_refused_or_understood(frame);
});
