//! Whether the process records, and what hooks may know of its recording. What has to be made for that is the business of whoever
//! registers with [`on_first_call`].
//!
//! | state       | until                                   | then          |
//! |-------------|-----------------------------------------|---------------|
//! | Inert       | the first CUDA or c10 call              | Arming        |
//! | Inert       | `STRANDLINE_DISABLE=1`                  | PassThrough   |
//! | Arming      | file, region and thread are made        | Recording     |
//! | Arming      | one of them cannot be made (one line)   | PassThrough   |
//! | Recording   | the first failure (one line), a fork (the child), `strandline_stop`, or the end of the process | PassThrough |
//! | PassThrough | for ever                                |               |
//!
//! An inert process has no file, no thread and no mapping of ours. The child of a fork by a recording process keeps its
//! parent's memory but never its state: it may not write to the parent's rings, and stays silent for ever. A program started by `exec` begins anew.

use crate::platform::config::{Config, Steps};
use crate::platform::say::say;
use crate::recorder::devices;
use crossbeam_channel::Sender;
use serde_json::Value;
use std::fmt::Arguments;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::*};
use std::time::Duration;
use strandline_core::buffer::Region;
use strandline_core::format::region::flag;

const INERT: u8 = 0;
const ARMING: u8 = 1;
const RECORDING: u8 = 2;
const PASS_THROUGH: u8 = 3;

/// A page of its own. From when the process is armed, the kernel empties it in every child, also in one that runs no handlers of forks
/// (`_Fork`, `clone`), or runs ours after others.
#[repr(align(4096))]
struct Page(AtomicU8);

static PAGE: Page = Page(AtomicU8::new(INERT));
static STATE: &AtomicU8 = &PAGE.0;
/// The process, or the one that it is a child of, has begun to arm: where the state is inert, it was emptied.
static BEGUN: AtomicBool = AtomicBool::new(false);
static SESSION: OnceLock<Session> = OnceLock::new();
/// Makes everything ready, says what cannot be made, and calls [`record`] or [`pass_through`].
static BEGIN: OnceLock<fn()> = OnceLock::new();

/// What the writing thread is told.
pub(crate) enum Control {
    /// Facts about the process: a JSON object.
    Tell(Value),
    /// The process ends with this status, or the program ends the recording: write everything, answer on the channel.
    End(Sender<()>, Option<i32>),
}

/// What is fixed once the process is armed.
pub(crate) struct Session {
    /// What the environment asked for.
    pub(crate) config: Config,
    /// The rings.
    pub(crate) region: Region,
    /// To the writing thread.
    pub(crate) control: Sender<Control>,
    /// The recording.
    pub(crate) path: PathBuf,
    /// Number of the process in its job.
    pub(crate) rank: u32,
}

/// `begin` is called at the process's first CUDA call.
pub(crate) fn on_first_call(begin: fn()) {
    let _ = BEGIN.set(begin);
}

/// Whether hooks record.
#[inline(always)]
pub(crate) fn is_recording() -> bool {
    STATE.load(Acquire) == RECORDING
}

/// As if the process recorded.
#[cfg(test)]
pub(crate) fn pretend_to_record() {
    STATE.store(RECORDING, Release);
}

/// Nothing has been made yet.
pub(crate) fn is_inert() -> bool {
    STATE.load(Acquire) == INERT && !BEGUN.load(Acquire)
}

/// Everything is ready: hooks record from now on. `false`: they do already.
pub(crate) fn record(session: Session) -> bool {
    let is_first = SESSION.set(session).is_ok();
    if is_first {
        STATE.store(RECORDING, Release);
    }
    is_first
}

/// Hooks only forward from now on. `true`: they did not before.
pub(crate) fn pass_through() -> bool {
    STATE.swap(PASS_THROUGH, AcqRel) != PASS_THROUGH
}

/// The process has called CUDA. Makes everything ready, once; whether it records then. Another thread that comes while
/// this goes on does not wait: what it does now was before the recording began.
#[cold]
#[inline(never)]
pub(crate) fn arm() -> bool {
    // Mostly it is not inert any more, and looking takes no cache line from other threads. A constructor may call CUDA before ours has run.
    if STATE.load(Acquire) == INERT
        && let Some(begin) = BEGIN.get()
        && STATE.compare_exchange(INERT, ARMING, AcqRel, Acquire).is_ok()
    {
        if BEGUN.swap(true, AcqRel) {
            pass_through(); // in a child
        } else {
            empty_in_children();
            begin();
        }
    }
    is_recording()
}

/// Has the kernel empty the state in children. Kernels before 4.14 do not know it, and then handlers of forks are all there is.
#[cold]
fn empty_in_children() {
    let page = core::ptr::from_ref(&PAGE).cast_mut().cast();
    // SAFETY: a whole page that holds nothing but the state (the type is aligned to a page, and as large); nothing changes in this process.
    unsafe { libc::madvise(page, size_of::<Page>(), libc::MADV_WIPEONFORK) };
}

/// The first failure: one line, and nothing is recorded any more. Later failures are silent.
#[cold]
pub(crate) fn fail(why: Arguments<'_>) {
    if pass_through() {
        // What comes now is not in the rings either: no reader is to take them for the whole.
        region().into_iter().for_each(|r| r.set_flags(flag::WRITER_STOPPED));
        say!("{why}");
    }
}

/// The program has ended the recording.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// The program ends the recording, which does not begin again: its rings and its file are those of one recording.
pub(crate) fn set_stopped() {
    STOPPED.store(true, Release);
}

/// Whether the program has ended the recording.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Acquire)
}

/// What is fixed since the process was armed; `None` before.
pub(crate) fn session() -> Option<&'static Session> {
    SESSION.get()
}

/// Writes facts into the recording, soon. They are a JSON object; later ones win.
#[cold]
pub(crate) fn record_metadata(facts: Value) {
    if let Some(s) = SESSION.get() {
        // A full channel means that the drain is in trouble, which it will say itself.
        let _ = s.control.try_send(Control::Tell(facts));
    }
}

/// What the environment asked for; `None` while the process is not armed.
pub(crate) fn config() -> Option<&'static Config> {
    SESSION.get().map(|s| &s.config)
}

/// The rings; `None` while the process is not armed.
pub(crate) fn region() -> Option<&'static Region> {
    SESSION.get().map(|s| &s.region)
}

/// Nanoseconds from when the recording began to a moment of the monotonic clock.
pub(crate) fn since_began(now: u64) -> u64 {
    region().map_or(0, |r| now.saturating_sub(r.began().mono_ns))
}

/// The recording's path, for messages.
pub(crate) fn recording_path() -> String {
    SESSION.get().map(|s| s.path.display().to_string()).unwrap_or_default()
}

/// Whether hooks are to be put on torch's optimizers.
pub(crate) fn wants_steps() -> bool {
    config().is_some_and(|c| c.steps == Steps::Auto)
}

/// How much time a step is, where steps are that.
pub(crate) fn step_time() -> Option<Duration> {
    match config()?.steps {
        Steps::Every(time) => Some(time),
        _ => None,
    }
}

/// One line that says what is recorded, unless `run` speaks for us.
#[cold]
pub(crate) fn say_attached(torch: &str) {
    let Some(s) = SESSION.get() else { return };
    if s.config.quiet {
        return;
    }
    let device = devices::first().map(|d| format!("{d}, ")).unwrap_or_default();
    let path = s.path.display();
    say!(
        "rank {} attached, pid {}, PyTorch {torch}, {device}recording to {path}",
        s.rank,
        std::process::id()
    );
}

/// Lanes whose pages exist.
static READY_LANES: AtomicU32 = AtomicU32::new(u32::MAX);

/// How many lanes threads may claim: the first ones, whose pages exist. A store into any other could fail for want of memory.
pub(crate) fn ready_lanes() -> u32 {
    READY_LANES.load(Acquire)
}

/// The pages of the first so many lanes exist.
pub(crate) fn set_ready_lanes(lanes: u32) {
    READY_LANES.store(lanes, Release);
}
