//! The one thread of ours in the job: turns rings into pages, and writes what the rest of us has to tell.
//!
//! All signals are blocked in it, so no handler of the job ever runs here, and a write beyond a size limit is an error
//! and not a death. A panic is caught, explained in one line, and ends the recording, not the job.

use super::output::Output;
use super::watcher;
use crate::platform::clock;
use crate::platform::{mapping, reserve, say, tid};
use crate::recorder::{self, Control, Housekeeping};
use crate::recorder::{overhead, thread};
use crate::tail;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use serde_json::Value;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::Duration;
use strandline_core::buffer::Drain;
use strandline_core::format::region::Moment;
use strandline_core::writer::{Sweep, Writer};

const STACK: usize = 512 << 10;
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(10);
/// Above this (in 1/1000 of a ring) sweeps come closer together.
const FULL: u32 = 250;
/// What recording costs is told after this time, then at intervals that double, up to [`COST_LAST`].
const COST_FIRST: u64 = 1_000_000_000;
const COST_LAST: u64 = 60_000_000_000;

/// The writing thread's own.
pub(crate) struct DrainThread {
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
    /// The memory of the rings: where it begins, and its bytes.
    pub(crate) rings: (usize, usize),
    /// What it looks after.
    pub(crate) housekeeping: Vec<Box<dyn Housekeeping>>,
}

/// Starts the thread. The caller has all signals blocked, and the thread inherits that.
///
/// # Errors
/// What the system says.
pub(crate) fn start(thread: DrainThread) -> io::Result<()> {
    let run = move || {
        let mut thread = thread;
        // One that failed is not used again: unwinding leaves nothing that anybody sees.
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| thread.run()));
        if let Ok(Err(e)) = ended {
            failed(&e);
        }
    };
    std::thread::Builder::new().name("strandline".into()).stack_size(STACK).spawn(run).map(drop)
}

fn failed(e: &io::Error) {
    recorder::fail(format_args!("{}: recording stops here, the job goes on", explained(e)));
}

fn explained(e: &io::Error) -> String {
    let file = recorder::recording_path();
    match e.raw_os_error() {
        Some(libc::ENOSPC) => format!("disk full while writing {file}"),
        Some(libc::EDQUOT) => format!("disk quota exceeded while writing {file}"),
        Some(libc::ENOMEM) => "the process has no memory left".into(),
        Some(libc::EFBIG) => format!("file size limit reached while writing {file}"),
        _ => format!("cannot write {file}: {e}"),
    }
}

impl DrainThread {
    fn run(&mut self) -> io::Result<()> {
        tid::check();
        recorder::region().into_iter().for_each(|region| region.note_writer(tid::tid()));
        reserve::of_our_thread(|| {
            recorder::pass_through();
            say::fixed("strandline: the process has no memory left: recording stops here, the job goes on\n");
        });
        // A job's real-time priority is the job's.
        // SAFETY: of this thread alone; the structure is ours. Where it is refused, the priority stays as inherited.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &libc::sched_param { sched_priority: 0 }) };
        if let Some(plan) = self.watcher.take() {
            plan.start();
        }
        let mut pause = LONGEST;
        let mut cost_due = COST_FIRST;
        loop {
            match self.control.recv_timeout(pause) {
                Ok(Control::Tell(facts)) => self.writer.meta(&self.drain, &facts)?,
                Ok(Control::End(done, status)) => {
                    // Whoever waits goes on in any case, and only then: what failed has been said.
                    self.end(status).unwrap_or_else(|e| failed(&e));
                    let _ = done.send(());
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if !recorder::is_recording() {
                return Ok(());
            }
            if reserve::is_low() {
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
            tail::make_ready(&self.drain.region());
            self.drain.name_threads(tid::name_of);
            let elapsed = self.elapsed(clock::moment());
            for each in &mut self.housekeeping {
                if let Some(facts) = each.poll(elapsed) {
                    self.writer.meta(&self.drain, &facts)?;
                }
            }
            let now = clock::moment();
            let elapsed = self.elapsed(now);
            if elapsed >= cost_due {
                cost_due = elapsed + elapsed.clamp(COST_FIRST, COST_LAST);
                self.writer.meta(&self.drain, &self.cost(now))?;
            }
            let sweep = self.writer.sweep(&mut self.drain, now)?;
            // What is under way goes on when this thread comes by: what it looks for may soon be gone.
            let is_busy = self.housekeeping.iter().any(|h| h.is_busy());
            pause = if is_busy { SHORTEST } else { next_pause(pause, &sweep) };
        }
    }

    fn elapsed(&self, now: Moment) -> u64 {
        now.mono_ns.saturating_sub(self.drain.region().began().mono_ns)
    }

    fn cost(&self, now: Moment) -> Value {
        let (base, len) = self.rings;
        let rings = if self.is_whole {
            len as u64
        } else {
            // SAFETY: the mapping of the rings, which is never unmapped.
            unsafe { mapping::resident(base as *mut u8, len) }
        };
        let others: u64 = self.housekeeping.iter().map(|h| h.resident()).sum();
        let ticks = now.ticks.saturating_sub(self.drain.region().began().ticks);
        overhead::fact(self.elapsed(now), ticks, rings + thread::resident() + others)
    }

    fn end(&mut self, status: Option<i32>) -> io::Result<()> {
        let now = clock::moment();
        let mut facts = self.cost(now);
        facts["ended"] = if status.is_some() { "exit" } else { "stopped" }.into();
        if let Some(status) = status {
            // What a parent gets to see of it.
            facts["exit_status"] = (status & 0xff).into();
        }
        self.drain.name_threads(tid::name_of);
        let last = self.housekeeping.iter_mut().filter_map(|h| h.last_facts());
        for (name, fact) in last.filter_map(|l| l.as_object().cloned()).flatten() {
            facts[name] = fact;
        }
        self.writer.end(&mut self.drain, now, &facts)?;
        if let Some(tail) = &self.tail {
            tail::remove(tail);
        }
        self.housekeeping.iter_mut().for_each(|h| h.end());
        Ok(())
    }
}

fn next_pause(pause: Duration, sweep: &Sweep) -> Duration {
    if sweep.fullest > FULL {
        return SHORTEST;
    }
    (pause + Duration::from_millis(1)).min(LONGEST)
}
