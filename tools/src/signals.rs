//! Every signal reaches the job exactly once.
//!
//! The job lives in our process group, so that the terminal treats it as if we were not there. A signal that the
//! terminal makes (Ctrl-C, Ctrl-Z, a resize) therefore reaches it without us, and so does one that is sent to the whole
//! group (`kill %1`, `timeout`) or to every process of a SLURM step. One that is sent to our pid alone must be
//! passed on. The kernel tells the first kind (`si_code`); nothing tells the second from the third. So there is a
//! *witness*: a process in the group that blocks every signal and does nothing. A signal that is pending there as
//! well was not meant for us alone, and is not passed on.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// `argv[0]` that makes this program a witness.
const WITNESS: &str = "strandline-witness";

/// `argv[0]` that makes this program a waker; the job's process id follows.
const WAKER: &str = "strandline-waker";
/// Milliseconds between two looks of a waker.
const LOOK: u64 = 20;

/// A set of signals.
#[derive(Clone, Copy)]
pub(crate) struct Set(libc::sigset_t);

/// Where a signal came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The kernel made it: the terminal for its foreground group.
    Kernel,
    /// A process sent it.
    Process,
}

impl Set {
    /// All that are passed on, and `SIGCHLD`. Not: what cannot be caught, what a fault of our own raises, `SIGPIPE` (a
    /// write of our own raises it), and the two that the C library keeps for itself.
    pub(crate) fn forwarded() -> Set {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the set it is given; the numbers removed are valid signals.
        let mut set = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            set.assume_init()
        };
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
        for signal in faults.into_iter().chain([libc::SIGPIPE, libc::SIGKILL, libc::SIGSTOP, 32, 33]) {
            // SAFETY: `set` is initialised; a number that is refused leaves it unchanged.
            unsafe { libc::sigdelset(&mut set, signal) };
        }
        Set(set)
    }

    /// SIGTERM, SIGINT and SIGHUP: they ask a command to end.
    pub(crate) fn termination() -> Set {
        Set::of(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])
    }

    fn of(signals: &[i32]) -> Set {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set it is given; the numbers are valid signals.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            Set(set.assume_init())
        }
    }

    /// Waits for the next of them, at most so long.
    pub(crate) fn wait_for(&self, most: Duration) -> Option<i32> {
        let most = libc::timespec {
            tv_sec: most.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(most.subsec_nanos()),
        };
        // SAFETY: the set and the time are initialised; a null info is allowed.
        let signal = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &most) };
        (signal > 0).then_some(signal)
    }

    /// Blocks them in this thread (and those it starts); returns what was blocked before.
    pub(crate) fn block(&self) -> io::Result<Set> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both point at sets of our own; on success the second is initialised.
        unsafe {
            match libc::pthread_sigmask(libc::SIG_BLOCK, &self.0, before.as_mut_ptr()) {
                0 => Ok(Set(before.assume_init())),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Makes this the thread's mask. Async-signal-safe: used between fork and exec.
    pub(crate) fn restore(&self) -> io::Result<()> {
        // SAFETY: the set is initialised; a null old set is allowed.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Takes those that wait for us, and forgets them.
    pub(crate) fn discard(&self) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are initialised; a null info is allowed.
        while unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &at_once) } > 0 {}
    }

    /// Waits for the next one of them.
    pub(crate) fn wait(&self) -> (i32, Origin) {
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
            // SAFETY: the set is initialised; on success `info` is, and si_code is a field of every signal.
            let (signal, code) = unsafe {
                let signal = libc::sigwaitinfo(&self.0, info.as_mut_ptr());
                (signal, if signal > 0 { info.assume_init().si_code } else { 0 })
            };
            if signal > 0 {
                // Codes above zero are the kernel's own.
                return (signal, if code > 0 { Origin::Kernel } else { Origin::Process });
            }
        }
    }
}

/// The witness. Dies with us.
pub(crate) struct Witness {
    process: Option<Child>,
    /// What earlier witnesses saw that has not been asked for yet, as bits.
    carried: u64,
}

impl Witness {
    /// Starts it; call with the forwarded signals blocked, so that it is born with them blocked.
    pub(crate) fn start() -> Witness {
        Witness { process: spawn(WITNESS, None), carried: 0 }
    }

    /// Whether the group got this signal as well; each sighting is told once. A signal that we have seen has been
    /// delivered to everybody it was meant for once the sender's system call is over, or its next one, where it goes
    /// over the processes itself: it is given a moment to get there.
    pub(crate) fn saw(&mut self, signal: i32) -> bool {
        let bit = 1u64 << (signal - 1);
        wait_for_senders();
        for _ in 0..10 {
            if (self.carried | self.pending()) & bit != 0 {
                self.replace(bit);
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn pending(&self) -> u64 {
        self.process.as_ref().and_then(|p| pending(p.id())).unwrap_or(0)
    }

    /// A blocked signal stays pending for ever, so a witness that has told is replaced. The new one is there before the
    /// old one is asked for the last time: what comes meanwhile is seen by one of them.
    fn replace(&mut self, told: u64) {
        let fresh = spawn(WITNESS, None);
        self.carried = (self.carried | self.pending()) & !told;
        self.stop();
        self.process = fresh;
    }

    /// Ends it. Signals are passed on from then on, until one makes a new one.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Stops us as the job is stopped, so that the shell that waits for us sees a stopped job, until we are continued, as `fg` does with the
/// group, or the job is no longer stopped: whoever continues or ends that alone does not know of us.
pub(crate) fn stop_with(job: u32) {
    let waker = spawn(WAKER, Some(job.to_string()));
    // SAFETY: getpid and kill have no memory to get wrong; we stop here until somebody continues us.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    let Some(mut waker) = waker else { return };
    let _ = waker.kill();
    if waker.wait().is_ok_and(|ended| ended.success()) {
        // The job has had its own.
        Set::of(&[libc::SIGCONT]).discard();
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(name: &str, argument: Option<String>) -> Option<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(argument).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let parent = std::process::id();
    // SAFETY: prctl and getppid are async-signal-safe and touch no memory of ours.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            // The parent may have died before the line above: then nobody needs this.
            if libc::getppid() as u32 == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        });
    }
    command.spawn().ok()
}

/// Returns when a signal that is being sent to a group has reached all of it, however late the sender's processor is: the
/// kernel keeps its list of processes as it is while it goes over a group, and this changes it, to what it was.
fn wait_for_senders() {
    // SAFETY: both take numbers alone; being in our group already we stay in it, and a leader of a session is refused.
    unsafe { libc::setpgid(0, libc::getpgrp()) };
}

/// Signals that wait for the process, as bits.
fn pending(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("ShdPnd:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// What SIGXFSZ did before [`ignore_sigxfsz`].
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// From now on a write beyond the file size limit (`ulimit -f`) returns an error and does not end the process.
pub(crate) fn ignore_sigxfsz() {
    // SAFETY: SIG_IGN is a valid disposition for SIGXFSZ.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before != libc::SIG_ERR {
        BEFORE.store(before, Relaxed);
    }
}

/// Undoes that, in what becomes a job. Async-signal-safe: used between fork and exec.
pub(crate) fn restore_sigxfsz() {
    // SAFETY: a disposition that this very signal has had; a handler of ours there is none.
    unsafe { libc::signal(libc::SIGXFSZ, BEFORE.load(Relaxed)) };
}

/// What `main` calls first. In a process that was started as a witness or a waker it does that work and never returns.
pub(crate) fn run_as_helper_if_asked() {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let job = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    if name == WITNESS {
        rename(c"sl-witness", || {
            // SAFETY: pause has no preconditions.
            unsafe { libc::pause() };
        });
    }
    if let Some(job) = job.filter(|_| name == WAKER) {
        rename(c"sl-waker", || wake(job));
    }
}

/// Under this name, for ever.
fn rename(name: &CStr, each: impl Fn()) -> ! {
    loop {
        // SAFETY: the name is a C string of at most 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        each();
    }
}

/// Continues our parent and ends, where it is stopped and the job is not.
fn wake(job: u32) {
    let parent = std::os::unix::process::parent_id();
    if !is_stopped(job) && is_stopped(parent) {
        // SAFETY: kill takes numbers alone; a parent that ends takes us along before its number is another's.
        unsafe { libc::kill(parent as libc::pid_t, libc::SIGCONT) };
        std::process::exit(0);
    }
    std::thread::sleep(Duration::from_millis(LOOK));
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may have brackets.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}
