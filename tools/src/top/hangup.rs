//! A terminal that is gone: its window was closed, or the connection to it.
//!
//! SIGHUP tells only those whose controlling terminal it was. Whoever else reads from it is told that there is nothing to
//! read, at once, again and again, and the library that reads keys takes this for patience: its inner loop ends neither on an
//! empty read nor on an error, whatever the time-out, and between any check and its read the terminal may go. So nobody
//! checks before it reads: a thread waits for the end of the terminal, and ends the process with it.

use crate::background::spawn;
use std::os::fd::RawFd;

/// Starts a thread that ends the process when the terminal on standard input is closed. Does nothing if no thread can be started.
pub(super) fn exit_on_hangup() {
    let end = || {
        wait(libc::STDIN_FILENO);
        // There is no screen to put back, and nobody to tell.
        std::process::exit(0);
    };
    let _ = spawn("sl-hangup", end);
}

/// Waits until nobody is at the other end of a terminal any more. What is typed there wakes nobody.
fn wait(terminal: RawFd) {
    let mut fd = libc::pollfd { fd: terminal, events: 0, revents: 0 };
    loop {
        // SAFETY: one entry, ours. What is asked for is nothing: the end (and an error) is told all the same.
        let ready = unsafe { libc::poll(&mut fd, 1, -1) };
        if ready > 0 || ready < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_comes_is_no_end_and_an_end_is_told() {
        let (mut here, there) = std::io::pipe().map(|(r, w)| (w, r)).expect("a pipe");
        std::io::Write::write_all(&mut here, b"q").expect("written");
        let waits = std::thread::spawn(move || wait(there.as_raw_fd()));
        assert!(!waits.is_finished());
        drop(here);
        waits.join().expect("told");
    }
}
