//! The watcher of a job that has `STRANDLINE_ALERT_*` but no `strandline run` around it: started here, by the writing thread.
//!
//! The job never notices it. A process in between is cloned with exit signal 0, starts the watcher and ends, so the watcher is
//! no child of the job's and `wait()` in the job sees neither of them. The watcher has its own session, no descriptor of the
//! job's, no handler, no mask and no preload. There is one to a folder and machine: it sees to that itself.

use crate::platform::config::Config;
use crate::platform::environment;
use crate::platform::say::say;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use strandline_core::format::env;

/// What the job was started with, copied while nothing else of it is known to run.
pub(crate) struct Plan {
    program: Option<PathBuf>,
    folder: PathBuf,
    variables: Vec<(OsString, OsString)>,
}

impl Plan {
    /// What is to be started for a recording; `None` where nobody asked, or somebody watches already.
    pub(crate) fn read(config: &Config, recording: &Path) -> Option<Plan> {
        let folder = recording.parent().filter(|_| config.alerts && !config.watched)?.to_path_buf();
        let mut variables = environment::variables();
        variables.retain(|(name, _)| name != "LD_PRELOAD");
        Some(Plan { program: config.bin.clone().or_else(find), folder, variables })
    }

    /// Starts it. What goes wrong costs a line, nothing else.
    pub(crate) fn start(self) {
        let Some(program) = &self.program else {
            say!("no alerts: the strandline command is not on PATH; set {} to its path", env::BIN);
            return;
        };
        if let Err(e) = self.launch(program) {
            say!("no alerts: cannot start {}: {e}", program.display());
        }
    }

    fn launch(&self, program: &Path) -> io::Result<()> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
        let program = text(program.as_os_str().as_bytes())?;
        let words =
            [b"strandline".as_slice(), b"watch", b"--background", b"--", self.folder.as_os_str().as_bytes()];
        let words: Vec<CString> = words.into_iter().map(text).collect::<io::Result<_>>()?;
        let joined = |(name, value): &(OsString, OsString)| {
            let mut entry = name.clone().into_vec();
            entry.push(b'=');
            entry.extend_from_slice(value.as_bytes());
            text(&entry)
        };
        let variables: Vec<CString> = self.variables.iter().map(joined).collect::<io::Result<_>>()?;
        let ended = |all: &[CString]| all.iter().map(|s| s.as_ptr()).chain([core::ptr::null()]).collect();
        let (arguments, variables): (Vec<*const c_char>, Vec<*const c_char>) =
            (ended(&words), ended(&variables));
        let mut stacks = [vec![0u128; STACK], vec![0u128; STACK]];
        let [own, next] = &mut stacks;
        let launch = Launch {
            program: program.as_ptr(),
            arguments: arguments.as_ptr(),
            variables: variables.as_ptr(),
            stack: next.as_mut_ptr_range().end.cast(),
            descriptors: descriptors(),
            error: AtomicI32::new(0),
        };
        // Exit signal 0: nothing is sent to the job, and only a wait that asks for clones finds it.
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        // SAFETY: this thread sleeps until the child has ended (CLONE_VFORK), so everything the child reaches through
        // `launch`, and the stack that it runs on, outlive it. The child calls async-signal-safe functions only.
        let pid = unsafe {
            let top = own.as_mut_ptr_range().end.cast();
            libc::clone(between, top, flags, (&raw const launch).cast_mut().cast())
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a null status is allowed; the number is our child's until it is waited for, which this does.
        unsafe { libc::waitpid(pid, core::ptr::null_mut(), libc::__WALL) };
        match launch.error.load(SeqCst) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// 16-byte words of each stack.
const STACK: usize = 4096;

/// What the two processes need, all of it made before they begin.
struct Launch {
    program: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
    /// Upper end of the second one's stack.
    stack: *mut c_void,
    /// Descriptors are below this.
    descriptors: c_int,
    /// What failed, as `errno`; they share our memory.
    error: AtomicI32,
}

impl Launch {
    /// Notes why the last call failed.
    fn failed(&self) {
        // SAFETY: the location is this thread's, which sleeps while its memory is borrowed.
        self.error.store(unsafe { *libc::__errno_location() }, SeqCst);
    }
}

/// The process in between: starts the watcher and ends, so that the watcher is not the job's.
extern "C" fn between(launch: *mut c_void) -> c_int {
    // SAFETY: `Plan::launch` passes a `Launch` that outlives this process; the stack is ours alone, and this process sleeps
    // until the watcher has its own memory (CLONE_VFORK).
    unsafe {
        let it = &*launch.cast::<Launch>();
        if libc::clone(watcher, it.stack, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, launch) < 0 {
            it.failed();
        }
    }
    0
}

/// The watcher, until it is its own program.
extern "C" fn watcher(launch: *mut c_void) -> c_int {
    // SAFETY: as in `between`. Handlers, mask and descriptors are this process's own (no CLONE_SIGHAND, no CLONE_FILES), so
    // nothing of this reaches the job; all functions are async-signal-safe, and every pointer is to memory of `Plan::launch`.
    unsafe {
        let it = &*launch.cast::<Launch>();
        libc::setsid();
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, core::ptr::null_mut());
        if libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) != 0 {
            (0..it.descriptors).for_each(|d| {
                libc::close(d);
            });
        }
        // The lowest free numbers: standard input, output and error.
        for _ in 0..3 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        }
        libc::execve(it.program, it.arguments, it.variables);
        it.failed();
    }
    127
}

/// The upper bound of descriptors' numbers, for kernels before 5.9, which close them one by one.
fn descriptors() -> c_int {
    const MOST: u64 = 1 << 16;
    // SAFETY: fills the structure it is given; all-zero is a valid one.
    let limit = unsafe {
        let mut limit: libc::rlimit = core::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur
    };
    limit.min(MOST) as c_int
}

/// The command, where it lies in the PATH.
fn find() -> Option<PathBuf> {
    let all = std::env::var_os("PATH")?;
    let program = |folder: PathBuf| folder.join(OsStr::new("strandline"));
    std::env::split_paths(&all).map(program).find(|p| p.is_file())
}
