//! `cargo +nightly fuzz run recordings --fuzz-dir tests/fuzz tests/fuzz/corpus/recordings`.
#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::recordings(bytes));
