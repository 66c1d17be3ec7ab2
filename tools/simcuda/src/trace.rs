//! `STRANDLINE_SIM_TRACE`: one line for every call, `name -> code  what happened`.

use crate::code::Code;
use std::cell::RefCell;
use std::fmt::Arguments;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static TRACING: AtomicBool = AtomicBool::new(false);
static FILE: OnceLock<File> = OnceLock::new();

thread_local! {
    static NOTE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Starts tracing to `path`, or to stderr for `-`.
pub fn start(path: &str) {
    if path != "-" {
        match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => drop(FILE.set(file)),
            Err(error) => eprintln!("strandline-sim: cannot trace to {path}: {error}; tracing to stderr"),
        }
    }
    TRACING.store(true, Ordering::Relaxed);
}

/// Whether calls are traced.
pub fn on() -> bool {
    TRACING.load(Ordering::Relaxed)
}

/// Says what the call in progress did; it ends up behind the call's name.
pub fn note(text: Arguments<'_>) {
    let _ = NOTE.try_with(|note| {
        let mut note = note.borrow_mut();
        note.clear();
        let _ = std::fmt::write(&mut *note, text);
    });
}

/// Ends a call: writes its line.
pub fn finish(name: &str, code: Code) {
    if !on() {
        return;
    }
    let note = NOTE.try_with(|note| std::mem::take(&mut *note.borrow_mut())).unwrap_or_default();
    let line = format!("{name} -> {}  {note}\n", code.0);
    // One write, so that lines of several threads do not mix; a trace that cannot be written is not worth a job.
    let _ = match FILE.get() {
        Some(mut file) => file.write_all(line.as_bytes()),
        None => std::io::stderr().write_all(line.as_bytes()),
    };
}

/// Adds detail to the trace of the call in progress; costs one load when tracing is off.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {
        if $crate::trace::on() {
            $crate::trace::note(format_args!($($text)*));
        }
    };
}
