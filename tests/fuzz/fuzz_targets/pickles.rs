//! `cargo +nightly fuzz run pickles --fuzz-dir tests/fuzz tests/fuzz/corpus/pickles`.
#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::pickles(bytes));
