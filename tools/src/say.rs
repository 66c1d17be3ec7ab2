//! Our voice: whole lines on stderr, so that `tee`, progress bars and other writers never cut one.

use crate::signals::Set;
use crate::terminal;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
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

/// Says on stderr that part of a recording is missing, if it is.
pub(crate) fn damage<D: Display>(path: &Path, damage: &[D]) {
    if let Some(first) = damage.first() {
        line(format!("part of {} is damaged or missing, and is not counted ({first})", shown(path)));
    }
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

/// How long a reader of a pipe that is full is waited for: one that reads only when this process has ended never will.
const READER: Duration = Duration::from_secs(60);

/// Writes text that is already laid out.
pub(crate) fn raw(text: &str) {
    let stderr = std::io::stderr().lock();
    // With `stty tostop` who writes from the background is stopped, and its whole group, but not where the signal is blocked: a job
    // that says nothing itself is not stopped for our lines.
    let before = Set::of(&[libc::SIGTTOU]).block();
    let _ = write_within(stderr.as_fd(), text.as_bytes(), READER);
    if let Ok(before) = before {
        let _ = before.restore();
    }
}

/// Writes all of it, whole lines at a time, as long as there is room again within that time.
fn write_within(file: BorrowedFd<'_>, mut bytes: &[u8], most: Duration) -> io::Result<()> {
    // A pipe that can be written to takes so much at once. Where no descriptor is left to ask with, it is written to as any other file.
    let kind = file.try_clone_to_owned().and_then(|f| File::from(f).metadata());
    let is_pipe = kind.is_ok_and(|m| m.file_type().is_fifo());
    let room = if is_pipe { libc::PIPE_BUF } else { bytes.len() };
    while !bytes.is_empty() {
        let mut one = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one structure of this function's; the descriptor is borrowed.
        match unsafe { libc::poll(&mut one, 1, most.as_millis().try_into().unwrap_or(libc::c_int::MAX)) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            n if n < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                return Err(io::Error::last_os_error());
            }
            n if n < 0 => continue,
            _ => {}
        }
        let some = bytes.get(..room).unwrap_or(bytes);
        let end = if some.len() == bytes.len() { None } else { some.iter().rposition(|b| *b == b'\n') };
        let some = end.and_then(|end| bytes.get(..=end)).unwrap_or(some);
        // SAFETY: the bytes are borrowed; the descriptor is open.
        let written = unsafe { libc::write(file.as_raw_fd(), some.as_ptr().cast(), some.len()) };
        match usize::try_from(written) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(_) if is_pipe && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => {}
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_pipe_that_nobody_reads_is_not_waited_for_without_end() {
        let (mut reader, writer) = io::pipe().unwrap();
        let text = "a line of a report\n".repeat(10_000);
        let at_most = Duration::from_millis(20);
        let refused = write_within(writer.as_fd(), text.as_bytes(), at_most);
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let all = std::thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).map(|_| all)
        });
        write_within(writer.as_fd(), text.as_bytes(), Duration::from_secs(60)).unwrap();
        drop(writer);
        let all = all.join().unwrap().unwrap();
        assert!(all.ends_with(&text) && all.lines().all(|l| l == "a line of a report"), "whole lines");
    }
}
