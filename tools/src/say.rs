//! Our voice: whole lines on stderr, so that `tee`, progress bars and other writers never cut one.

use crate::terminal;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use strandline::event::{printable, printable_lines};
use strandline::report::ascii;

/// Says one line, `strandline: ` before it. A closed stderr is nobody's problem.
pub(crate) fn line(text: impl AsRef<str>) {
    let text = format!("strandline: {}\n", printable_lines(text.as_ref()));
    raw(&if terminal::is_ascii() { ascii(&text).into_owned() } else { text });
}

/// Says why something failed, after what there is not because of it; gives what there is.
pub(crate) fn failure<T>(it: io::Result<T>, without: impl Display) -> Option<T> {
    it.inspect_err(|e| line(format!("{without}: {e}"))).ok()
}

/// A path in words: whoever named the file may mean the terminal by it.
pub(crate) fn path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// A path as a person would type it: relative where it lies below the current directory.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let short = path.strip_prefix(&here).unwrap_or(path);
    let slash = if path.is_dir() { "/" } else { "" };
    format!("{}{slash}", self::path(short))
}

/// Writes text that is already laid out, in one write.
pub(crate) fn raw(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Writes text for people to stdout, in signs that their locale has.
pub(crate) fn text(text: &str) -> bool {
    if terminal::is_ascii() { out(&ascii(text)) } else { out(text) }
}

/// Writes text to stdout, where a command's result belongs. `false` once nobody reads any more (`| head`): that is no
/// error, but nothing more need be made.
pub(crate) fn out(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}

/// A line of progress that appears once work has taken longer than a second, and only on a terminal.
pub(crate) struct Progress {
    since: Instant,
    last: Option<Instant>,
    terminal: bool,
}

impl Progress {
    /// Work begins now.
    pub(crate) fn new() -> Progress {
        Progress { since: Instant::now(), last: None, terminal: std::io::stderr().is_terminal() }
    }

    /// Shows where the work is, at most four times a second.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let due = match self.last {
            Some(last) => last.elapsed() > Duration::from_millis(250),
            None => self.since.elapsed() > Duration::from_secs(1),
        };
        if self.terminal && due {
            self.last = Some(Instant::now());
            raw(&format!("\r\x1b[Kstrandline: {}", text()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            raw("\r\x1b[K");
        }
    }
}
