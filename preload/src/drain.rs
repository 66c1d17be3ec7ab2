//! The one thread of ours in the job: turns rings into pages, and writes what the rest of us has to tell.
//!
//! All signals are blocked in it, so no handler of the job ever runs here, and a write beyond a size limit is an error
//! and not a death. A panic is caught, explained in one line, and ends the recording, not the job.

use crate::probe::Probe;
use crate::say::Blocked;
use crate::{clock, control, cost, devices, session, stacks, tail, thread, watcher};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::Duration;
use strandline_core::buffer::Drain;
use strandline_core::format::region::Moment;
use strandline_core::writer::{Sink, Sweep, Writer};

/// What the drain is told.
pub(crate) enum Control {
    /// Facts about the process: a JSON object.
    Tell(Value),
    /// The process ends with this status: write everything, answer on the channel.
    End(Sender<()>, i32),
}

const STACK: usize = 512 << 10;
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(10);
/// Above this (in 1/1000 of a ring) sweeps come closer together.
const FULL: u32 = 250;
/// What recording costs is told after this time, then at intervals that double, up to [`COST_LAST`].
const COST_FIRST: u64 = 1_000_000_000;
const COST_LAST: u64 = 60_000_000_000;

/// Where the drain writes, and what else is its own.
pub(crate) struct Duty {
    /// Writes pages.
    pub(crate) writer: Writer<Output>,
    /// The rings' consumer.
    pub(crate) drain: Drain,
    /// What it is told.
    pub(crate) control: Receiver<Control>,
    /// The watcher to be started beside the job, if there is to be one.
    pub(crate) watcher: Option<watcher::Plan>,
    /// The tail's file, removed at a clean end.
    pub(crate) tail: Option<PathBuf>,
    /// Every page of the rings exists, touched or not.
    pub(crate) is_whole: bool,
    /// Looks for what a watcher asks.
    pub(crate) probe: Probe,
    /// The memory of the rings: where it begins, and its bytes.
    pub(crate) rings: (usize, usize),
}

/// Starts the thread. The caller has all signals blocked, and the thread inherits that.
///
/// # Errors
/// What the system says.
pub(crate) fn start(duty: Duty) -> io::Result<()> {
    let run = move || {
        let mut duty = duty;
        // A failed duty is not used again: unwinding leaves nothing that anybody sees.
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| duty.run()));
        if let Ok(Err(e)) = ended {
            failed(&e);
        }
    };
    std::thread::Builder::new().name("strandline".into()).stack_size(STACK).spawn(run).map(drop)
}

fn failed(e: &io::Error) {
    session::fail(format_args!("{}: recording stops here, the job goes on", explained(e)));
}

fn explained(e: &io::Error) -> String {
    let file = session::recording_path();
    match e.raw_os_error() {
        Some(libc::ENOSPC) => format!("disk full while writing {file}"),
        Some(libc::EDQUOT) => format!("disk quota exceeded while writing {file}"),
        Some(libc::EFBIG) => format!("file size limit reached while writing {file}"),
        _ => format!("cannot write {file}: {e}"),
    }
}

impl Duty {
    fn run(&mut self) -> io::Result<()> {
        thread::check_tid();
        let mut undefined_due = 1;
        if let Some(plan) = self.watcher.take() {
            plan.start();
        }
        let mut pause = LONGEST;
        let mut devices_told = 0;
        let mut cost_due = COST_FIRST;
        let step = session::step_time().map(|time| time.as_nanos() as u64);
        let mut steps = 0;
        loop {
            match self.control.recv_timeout(pause) {
                Ok(Control::Tell(facts)) => self.writer.meta(&facts)?,
                Ok(Control::End(done, status)) => {
                    // Whoever waits goes on in any case, and only then: what failed has been said.
                    self.end(status).unwrap_or_else(|e| failed(&e));
                    let _ = done.send(());
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if !session::is_recording() {
                return Ok(());
            }
            crate::torch::fraction::keep_up();
            let changes = devices::changes();
            if changes != devices_told {
                devices_told = changes;
                self.writer.meta(&json!({ "devices": devices::facts() }))?;
            }
            tail::make_ready(&self.drain.region());
            crate::steps::retry();
            stacks::retry();
            let undefined = stacks::intern::undefined();
            if undefined >= undefined_due {
                undefined_due = undefined.saturating_mul(2);
                self.writer.meta(&json!({ "stacks_undefined": undefined }))?;
            }
            self.drain.name_threads(thread::name_of);
            stacks::native::keep_up();
            stacks::intern::keep_up();
            self.probe.keep_up();
            let now = clock::moment();
            let elapsed = now.mono_ns.saturating_sub(self.drain.region().began().mono_ns);
            // A round that came late ends one step, however many it slept through.
            if let Some(n) = step.map(|time| elapsed / time).filter(|n| *n > steps) {
                steps = n;
                control::strandline_step(n);
            }
            if elapsed >= cost_due {
                cost_due = elapsed + elapsed.clamp(COST_FIRST, COST_LAST);
                self.writer.meta(&self.cost(now))?;
            }
            let sweep = self.writer.sweep(&mut self.drain, now)?;
            // A probe under way goes on when this thread comes by: what it looks for may soon be gone.
            pause = if self.probe.is_under_way() { SHORTEST } else { next_pause(pause, &sweep) };
        }
    }

    fn cost(&self, now: Moment) -> Value {
        let began = self.drain.region().began();
        let (base, len) = self.rings;
        // SAFETY: the mapping of the rings, which is never unmapped.
        let rings = if self.is_whole { len as u64 } else { unsafe { cost::resident(base as *mut u8, len) } };
        let elapsed = now.mono_ns.saturating_sub(began.mono_ns);
        cost::fact(
            elapsed,
            now.ticks.saturating_sub(began.ticks),
            rings + thread::resident() + stacks::tables::resident(),
        )
    }

    fn end(&mut self, status: i32) -> io::Result<()> {
        stacks::intern::keep_up();
        let now = clock::moment();
        let mut facts = self.cost(now);
        facts["ended"] = "exit".into();
        // What a parent gets to see of it.
        facts["exit_status"] = (status & 0xff).into();
        facts["devices"] = devices::facts();
        facts["stacks_undefined"] = stacks::intern::undefined().into();
        self.drain.name_threads(thread::name_of);
        if let Some(facts) = self.probe.last_words() {
            self.writer.meta(&facts)?;
        }
        self.writer.end(&mut self.drain, now, &facts)?;
        if let Some(tail) = &self.tail {
            tail::remove(tail);
        }
        self.probe.end();
        Ok(())
    }
}

fn next_pause(pause: Duration, sweep: &Sweep) -> Duration {
    if sweep.fullest > FULL {
        return SHORTEST;
    }
    (pause + Duration::from_millis(1)).min(LONGEST)
}

/// The recording's file. Checks before each write that the descriptor is still the file that was opened: a job that
/// closes descriptors it does not know and opens its own gets none of our bytes, and the file is opened again.
pub(crate) struct Output {
    /// Never closed: by then the number may be a file of the job's.
    file: ManuallyDrop<File>,
    is: (u64, u64),
    path: PathBuf,
}

impl Output {
    /// Takes the file, which lies at `path`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn new(file: File, path: PathBuf) -> io::Result<Output> {
        let file = moved(file);
        let meta = file.metadata()?;
        Ok(Output { is: (meta.dev(), meta.ino()), file: ManuallyDrop::new(file), path })
    }

    fn check(&mut self) -> io::Result<()> {
        if self.is_it(&self.file) { Ok(()) } else { self.open_again() }
    }

    fn is_it(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == self.is)
    }

    /// The job has closed our descriptor with all that it does not know, as daemons do: another one, of the same file.
    #[cold]
    fn open_again(&mut self) -> io::Result<()> {
        let closed = |e: io::Error| {
            io::Error::other(format!("the job closed its descriptor, and it cannot be opened again: {e}"))
        };
        let file = moved(OpenOptions::new().write(true).open(&self.path).map_err(closed)?);
        if !self.is_it(&file) {
            return Err(closed(io::Error::other("another file lies there")));
        }
        self.file = ManuallyDrop::new(file);
        Ok(())
    }
}

/// From this number on a job is unlikely to count on descriptors.
pub(crate) const HIGH: i32 = 700;

/// The file at a descriptor that a job is unlikely to count on.
pub(crate) fn moved(file: File) -> File {
    // SAFETY: duplicates an open descriptor; the new one belongs to the `File` made of it and to nobody else.
    unsafe {
        use std::os::fd::FromRawFd;
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) {
            fd if fd >= 0 => File::from_raw_fd(fd),
            _ => file, // the limit is lower: stay where we are
        }
    }
}

impl Sink for Output {
    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.file.write_all_at(bytes, place)
    }
}

/// Explains a panic of ours in one line: message, place, and the functions of ours that led there.
pub(crate) fn explain_panics() {
    std::panic::set_hook(Box::new(|info| {
        let _signals = Blocked::all();
        let text = info.payload();
        let message = text
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| text.downcast_ref::<String>().map(String::as_str));
        let mut path = Vec::new();
        backtrace::trace(|frame| {
            backtrace::resolve_frame(frame, |symbol| {
                let name = symbol.name().map(|n| format!("{n:#}")).unwrap_or_default();
                if name.starts_with("strandline") && !name.contains("explain_panics") && path.len() < 4 {
                    path.push(name);
                }
            });
            path.len() < 4
        });
        let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        session::fail(format_args!(
            "defect in strandline, please report it: {} at {place} ({}): recording stops here, the job goes on",
            message.unwrap_or("panic"),
            path.join(" < "),
        ));
    }));
}
