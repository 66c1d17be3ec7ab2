//! What this process was started with, and what becomes of it: a job gets it as it came, whatever Rust's runtime or we have changed since.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Which of the standard streams were closed, as bits. The runtime opens `/dev/null` there before `main`.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// What SIGPIPE did. The runtime ignores it.
static SIGPIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// What SIGXFSZ did before [`ignore_sigxfsz`].
static SIGXFSZ: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// The loader calls it before Rust's runtime begins.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    // The leak sanitizer begins at the first malloc, and until then its sigaction is a null pointer. Rust's runtime calls that one first.
    // SAFETY: what was allocated is freed, once.
    unsafe { libc::free(std::hint::black_box(libc::malloc(1))) };
    for stream in 0..3 {
        // SAFETY: F_GETFD takes a number alone.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << stream, Relaxed);
        }
    }
    // SAFETY: all zeros are a valid sigaction, which is ours to write; nothing is changed.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut now) == 0 {
            SIGPIPE.store(now.sa_sigaction, Relaxed);
        }
    }
}

/// From now on a write beyond the file size limit (`ulimit -f`) returns an error and does not end the process.
pub(crate) fn ignore_sigxfsz() {
    // SAFETY: SIG_IGN is a valid disposition for SIGXFSZ.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before != libc::SIG_ERR {
        SIGXFSZ.store(before, Relaxed);
    }
}

/// Undoes that, in what becomes another program. Async-signal-safe: used between fork and exec.
pub(crate) fn restore_sigxfsz() {
    // SAFETY: a disposition that this very signal has had; a handler of ours there is none.
    unsafe { libc::signal(libc::SIGXFSZ, SIGXFSZ.load(Relaxed)) };
}

/// Gives what becomes a job the dispositions of signals that we were given. Async-signal-safe: used between fork and exec.
pub(crate) fn restore_signals() {
    restore_sigxfsz();
    // SAFETY: as above: a program begins with SIG_DFL or SIG_IGN.
    unsafe { libc::signal(libc::SIGPIPE, SIGPIPE.load(Relaxed)) };
}

/// Closes the standard streams that we were started without, in what becomes a job. Async-signal-safe: used between fork and exec.
pub(crate) fn close_streams() {
    let closed = CLOSED.load(Relaxed);
    for stream in (0..3).filter(|stream| closed & (1 << stream) != 0) {
        // SAFETY: what is there is the runtime's `/dev/null`; nothing of this process uses it until it is another program.
        unsafe { libc::close(stream) };
    }
}

/// Descriptors beyond the standard streams that whoever started us has left open: what is opened here closes on exec.
pub(crate) fn descriptors() -> Vec<RawFd> {
    let all = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // SAFETY: F_GETFD takes a number alone.
    let flags = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) };
    numbers.filter(|fd| *fd > 2 && flags(fd) & libc::FD_CLOEXEC == 0).collect()
}

/// Closes such descriptors: a lock or a pipe of others' is held open by no one but the job.
pub(crate) fn close(descriptors: &[RawFd]) {
    for fd in descriptors {
        // SAFETY: they came from outside, so nothing of ours owns one.
        unsafe { libc::close(*fd) };
    }
}

/// Puts `/dev/null` in the place of our standard input and output, so that whoever is at their other ends sees when the job closes its own.
pub(crate) fn leave_streams() {
    // SAFETY: a C string; what it opens is closed by nobody else. Nothing but the standard library uses the standard streams: it reads and
    // writes whatever is there.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if null < 0 {
            return;
        }
        for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
            libc::dup2(null, stream);
        }
        if null > libc::STDERR_FILENO {
            libc::close(null);
        }
    }
}
