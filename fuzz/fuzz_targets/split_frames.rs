//! Fuzzes the splitting of a stream into frames. What must hold is in
//! `ganger_protocol::invariants`.
#![no_main]

use ganger_protocol::invariants;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stream: &[u8]| {
    invariants::frames_split_alike(stream, 1);
    invariants::frames_split_alike(stream, 7);
});
