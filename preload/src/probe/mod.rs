//! The holder probe: which attribute, container, global, closure or local keeps the blocks that a watcher has flagged.
//!
//! Detectors never run in the job, so the watcher asks: it lays a question beside the job's tail
//! (`strandline_core::format::holders`). The writing thread finds it and queues a pending call, or an optimizer's hook comes by;
//! each of those does one slice under the GIL. Between slices nothing is kept but addresses, names and counts: no reference to an
//! object is ever taken. Python's objects are read as they lie, nothing is created, and no code of the job runs: it sees pauses alone.
//!
//! What it may take of the job is `pace.rs`; too many objects are not looked at, and the answer says so. What was found is counted again
//! later (`looks.rs`), and a last question is answered as the interpreter begins to end (`ending.rs`).

mod answer;
mod attributes;
mod bound;
mod budget;
mod climb;
pub(crate) mod collector;
pub(crate) mod ending;
mod frames;
mod graph;
mod looks;
mod memory;
mod names;
mod naming;
mod near;
mod node;
mod objects;
pub(crate) mod pace;
mod pieces;
mod rebound;
mod tensors;
mod verify;
mod work;

use crate::platform::config::Pace;
use crate::platform::{clock, real};
use crate::python::interpreter;
use crate::python::version;
use crate::recorder::overhead;
use crate::recorder::{self, Housekeeping};
use crate::{stacks, tail};
use budget::{Budget, usage};
use collector::Collector;
use looks::Looks;
use serde_json::{Value, json};
use std::ffi::{c_int, c_void};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::{fs::File, io::Read};
use strandline_core::format::holders::{self, Ask};
use work::{Progress, Work};

/// The processor's time that all slices together may take.
const IN_ALL: u64 = 3_000_000_000;
/// Between two looks for a question.
const LOOK: u64 = 20_000_000;
/// The same where each look may be a question to a file server.
const FAR: u64 = 1_000_000_000;
/// A pending call that has not run for so long is not waited for: the optimizer's hook takes the slice.
const LATE: u64 = 100_000_000;
/// So long a thread of Python's that takes a slice is waited for.
const PATIENCE: u64 = 120_000_000_000;
/// Answers that are kept in the fact.
const ANSWERS: usize = 32;

/// What is known of the running Python and its torch.
#[derive(Clone)]
struct World {
    python: objects::Python,
    torch: tensors::Torch,
    frames: Option<frames::Frames>,
    collector: Collector,
    interpreter: u64,
}

/// What needs no GIL and may wait for others, as the loader's lock does: it is looked up before the first slice.
struct Prepared {
    python: objects::Python,
    torch: tensors::Torch,
    frames: Option<frames::Frames>,
    /// `PyInterpreterState_Get`.
    interpreter: extern "C" fn() -> u64,
}

/// What a slice came to.
#[derive(Clone, Copy, Default)]
struct Slice {
    stage: &'static str,
    /// Nanoseconds on the clock, and of the processor.
    pause: u64,
    spent: u64,
    /// Times that another thread was put before it, that it waited, and that a page had to be fetched from a disk.
    others: i64,
    waits: i64,
    faults: i64,
}

/// The probe under way.
struct Running {
    work: Work,
    /// What was looked up off the job's threads, until the first slice has found the rest.
    prepared: Option<Prepared>,
    world: Option<World>,
    began: u64,
    slices: u32,
    /// Nanoseconds in slices.
    pause: u64,
    /// The longest, and what it was about.
    longest: Slice,
    /// Nanoseconds of the processor.
    spent: u64,
    /// No slice before this moment.
    rests: u64,
    pace: Pace,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
/// There is a probe under way: what the hooks look at.
static WANTED: AtomicBool = AtomicBool::new(false);
/// A pending call is queued, since this moment; 0: none is.
static QUEUED: AtomicU64 = AtomicU64::new(0);
/// Holders that are counted again, and that a count is due.
static LOOKS: Mutex<Option<Looks>> = Mutex::new(None);
static COUNT: AtomicBool = AtomicBool::new(false);
/// What was counted is to be told.
static COUNTED: AtomicBool = AtomicBool::new(false);
/// The watcher has nothing more to ask.
static LAST_ASKED: AtomicBool = AtomicBool::new(false);
/// What counts for the budget: the processor's nanoseconds of all slices, and those that the end was put off. What others did on a busy
/// machine while a slice waited for its turn does not.
static CHARGED: AtomicU64 = AtomicU64::new(0);
/// The job was paused for so long, of which so much counts for the budget.
fn add_pause(nanos: u64, charged: u64) {
    overhead::add_pause(nanos);
    CHARGED.fetch_add(charged, Relaxed);
}

fn charged() -> u64 {
    CHARGED.load(Relaxed)
}

/// Nanoseconds from when the recording began to a moment.
fn since_began(now: u64) -> u64 {
    recorder::region().map_or(0, |r| now.saturating_sub(r.began().mono_ns))
}

/// Looks for questions. Belongs to the writing thread.
pub(crate) struct Probe {
    place: Option<PathBuf>,
    /// Between two looks.
    look: u64,
    looked: u64,
    /// When the last probe began, 0: there was none; and when there may be one.
    last: u64,
    pace: Pace,
    /// A question that has to wait.
    waits: Option<Ask>,
    answers: Vec<Value>,
}

impl Probe {
    /// For a job that finds questions there. Without a tail nobody follows it closely enough to ask, and where it is switched off nobody
    /// looks.
    pub(crate) fn new(place: Option<PathBuf>) -> Probe {
        let pace = recorder::config().and_then(|c| c.probe);
        let place = place.filter(|_| pace.is_some());
        let look =
            if place.as_deref().and_then(Path::parent).is_some_and(tail::is_remote) { FAR } else { LOOK };
        let pace = pace.unwrap_or(Pace::Budget);
        Probe { place, look, looked: 0, last: 0, pace, waits: None, answers: Vec::new() }
    }

    /// Looks for a question, and after the one that is being answered.
    #[cold]
    fn keep_up(&mut self) {
        let Some(place) = self.place.clone() else { return };
        let now = clock::moment().mono_ns;
        if WANTED.load(Acquire) {
            return self.go_on(now);
        }
        self.count(now);
        let ending = ending::is_waiting();
        if ending || now.saturating_sub(self.looked) >= self.look {
            self.looked = now;
            let ask = take(&place).and_then(|text| Ask::parse(&text));
            let is_last = ask.as_ref().is_some_and(|a| a.last);
            // One that waits is a part of what is asked later.
            self.waits = ask.filter(|a| !a.findings.is_empty()).or(self.waits.take());
            if (ending || self.may_begin(now))
                && let Some(ask) = self.waits.take()
            {
                self.last = now;
                self.begin(ask, now);
            }
            LAST_ASKED.fetch_or(is_last, AcqRel);
        }
    }

    fn may_begin(&self, now: u64) -> bool {
        match self.pace {
            Pace::Budget => pace::left(since_began(now), charged()) > 0,
            Pace::Every(time) => self.last == 0 || now.saturating_sub(self.last) >= time.as_nanos() as u64,
        }
    }

    /// Has holders that were found counted again, and tells what was.
    fn count(&mut self, now: u64) {
        if COUNTED.swap(false, AcqRel)
            && let Some(facts) = self.counts()
        {
            recorder::tell(facts);
        }
        let is_due = LOOKS.try_lock().is_ok_and(|l| l.as_ref().is_some_and(|l| now >= l.due));
        if is_due && !COUNT.swap(true, AcqRel) {
            queue(now);
        }
    }

    /// The answers with what was counted since, where that is anything.
    fn counts(&mut self) -> Option<Value> {
        let counts = LOOKS.try_lock().ok()?.as_ref()?.to_json();
        self.answers.last_mut()?["counts"] = counts;
        Some(json!({ "holders": self.answers }))
    }

    fn begin(&mut self, ask: Ask, now: u64) {
        let work = Work::new(ask);
        match prepare() {
            Ok(prepared) => {
                let prepared = Some(prepared);
                let running = Running {
                    work,
                    prepared,
                    world: None,
                    began: now,
                    slices: 0,
                    pause: 0,
                    longest: Slice::default(),
                    rests: 0,
                    spent: 0,
                    pace: self.pace,
                };
                *lock() = Some(running);
                WANTED.store(true, Release);
            }
            Err(why) => self.tell(&work, Err(&why), json!({})),
        }
    }

    /// Queues the next slice, takes the answer, or gives up.
    fn go_on(&mut self, now: u64) {
        let finished = FINISHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some((running, answer)) = finished {
            self.tell(&running.work, answer.as_deref().map_err(String::as_str), running.cost());
            if let Some(world) = running.world.filter(|_| answer.is_ok()) {
                let (found, mut looks) = (running.work.holders(), lock_looks());
                let new = Looks::new(world, found, looks.take(), now, since_began(now));
                *looks = Some(new).filter(Looks::is_worth);
            }
            return WANTED.store(false, Release);
        }
        // A slice may be at work: the writing thread waits for nobody.
        let Ok(mut guard) = RUNNING.try_lock() else { return };
        let Some((began, rests)) = guard.as_ref().map(|r| (r.began, r.rests)) else { return };
        let late = now.saturating_sub(began.max(rests)) > PATIENCE;
        if late || interpreter::is_finalizing() {
            let Some(running) = guard.take() else { return };
            drop(guard);
            WANTED.store(false, Release);
            let why =
                if late { "no thread of Python's came by for two minutes" } else { "the job ended first" };
            return self.tell(&running.work, Err(why), running.cost());
        }
        drop(guard);
        if now < rests {
            return;
        }
        queue(now);
    }

    fn tell(&mut self, work: &Work, answer: Result<&[Value], &str>, cost: Value) {
        let findings = match answer {
            Ok(all) => all.to_vec(),
            Err(why) => work.about().map(|about| answer::not_run(about, why)).collect(),
        };
        if self.answers.len() == ANSWERS {
            self.answers.remove(0);
        }
        let at = since_began(clock::moment().mono_ns);
        self.answers
            .push(json!({ "number": work.number(), "at_ns": at, "findings": findings, "cost": cost }));
        recorder::tell(json!({ "holders": self.answers }));
    }
}

impl Housekeeping for Probe {
    fn poll(&mut self, _: u64) -> Option<Value> {
        self.keep_up();
        None
    }

    fn is_busy(&self) -> bool {
        WANTED.load(Relaxed) || ending::is_waiting()
    }

    fn last_facts(&mut self) -> Option<Value> {
        COUNTED.swap(false, AcqRel).then(|| self.counts()).flatten()
    }

    fn end(&mut self) {
        self.place.iter().for_each(|p| crate::tail::remove(p));
    }
}

/// A probe that has ended, on its way to the writing thread.
static FINISHED: Mutex<Option<Finished>> = Mutex::new(None);
/// The probe, and its answer to each finding or why there is none.
type Finished = (Running, Result<Vec<Value>, String>);

fn lock_looks() -> std::sync::MutexGuard<'static, Option<Looks>> {
    LOOKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Queues a pending call, where none is.
fn queue(now: u64) {
    if QUEUED.compare_exchange(0, now.max(1), AcqRel, Relaxed).is_ok()
        && !interpreter::add_pending_call(pending)
    {
        QUEUED.store(0, Release);
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The question, if there is one: ours, no link, of a sane length. It is gone then.
fn take(place: &Path) -> Option<Vec<u8>> {
    let file =
        File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(place).ok()?;
    let is = file.metadata().ok()?;
    // SAFETY: geteuid cannot fail.
    let own = is.is_file() && is.uid() == unsafe { libc::geteuid() } && is.len() <= holders::LONGEST;
    crate::tail::remove(place);
    let mut text = Vec::new();
    (own && file.take(holders::LONGEST).read_to_end(&mut text).is_ok()).then_some(text)
}

/// Looks up what needs no GIL, off the job's threads.
fn prepare() -> Result<Prepared, String> {
    let Some(minor) = version::python_minor() else {
        return Err("there is no Python in this process".into());
    };
    if version::is_free_threaded() {
        return Err("this Python is a free-threaded build".into());
    }
    if !interpreter::prepare() || interpreter::is_finalizing() {
        return Err("the job was ending, or its Python is not at work".into());
    }
    if !memory::prepare() {
        return Err("the kernel does not let a process copy its own memory (process_vm_readv)".into());
    }
    let state = real::python(c"PyInterpreterState_Get");
    if state.is_null() {
        return Err("this Python does not export PyInterpreterState_Get".into());
    }
    // SAFETY: the function has had this type since 3.9.
    let interpreter = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(state) };
    let frames = frames::Frames::find(minor).filter(|_| stacks::are_proved());
    let (python, torch) = (objects::Python::look_up(minor)?, tensors::Torch::find()?);
    Ok(Prepared { python, torch, frames, interpreter })
}

/// Runs on the main thread, with the GIL, between two instructions of the script.
extern "C" fn pending(_: *mut c_void) -> c_int {
    QUEUED.store(0, Release);
    guarded_slice();
    if COUNT.load(Acquire) {
        look_again();
    }
    0
}

/// Counts what is in the holders that were found. With the GIL held.
#[cold]
fn look_again() {
    if !recorder::is_recording() {
        return;
    }
    // A panic has been explained, and the recording has ended, by the time it is caught.
    let _ = std::panic::catch_unwind(|| {
        let Ok(mut guard) = LOOKS.try_lock() else { return };
        let Some(looks) = guard.as_mut() else { return };
        let began = clock::moment().mono_ns;
        // SAFETY: the callers hold the GIL.
        unsafe { looks.look(began, since_began(began)) };
        let took = clock::moment().mono_ns.saturating_sub(began);
        add_pause(took, took);
        COUNTED.store(true, Release);
    });
    COUNT.store(false, Release);
}

/// An optimizer's hook has come by, with the GIL. A load where nothing is asked.
#[inline]
pub(crate) fn pass_by() {
    if WANTED.load(Relaxed) || COUNT.load(Relaxed) {
        late_slice();
    }
}

#[cold]
fn late_slice() {
    let queued = QUEUED.load(Acquire);
    if queued != 0 && clock::moment().mono_ns.saturating_sub(queued) > LATE {
        guarded_slice();
        if COUNT.load(Acquire) {
            look_again();
        }
    }
}

#[cold]
fn guarded_slice() {
    if recorder::is_recording() && WANTED.load(Acquire) {
        // A panic has been explained, and the recording has ended, by the time it is caught.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(slice));
    }
}

/// One slice. With the GIL held, which keeps two of them apart.
fn slice() {
    let Ok(mut guard) = RUNNING.try_lock() else { return };
    let Some(running) = guard.as_mut() else { return };
    let budget = Budget::new();
    let (stage, before) = (running.work.stage(), usage());
    // SAFETY: the callers hold the GIL.
    let progress = unsafe { running.slice(&budget) };
    let (pause, spent) = budget.used();
    running.spent += spent;
    add_pause(pause, spent);
    // The job gets as much before the next one, and more where the budget is used up.
    let now = clock::moment().mono_ns;
    running.rests = now + running.pace.rest((spent, running.spent), since_began(now), charged());
    running.pause += pause;
    running.slices += 1;
    if pause > running.longest.pause {
        let ([a, b, c], [others, waits, faults]) = (before, usage());
        running.longest =
            Slice { stage, pause, spent, others: others - a, waits: waits - b, faults: faults - c };
    }
    let answer = match progress {
        Ok(Progress::More) if running.spent < IN_ALL => return,
        Ok(Progress::More) => Err("it took too long".to_string()),
        Ok(Progress::Answered(answers)) => Ok(answers),
        Err(why) => Err(why),
    };
    if let Some(running) = guard.take() {
        *FINISHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((running, answer));
    }
}

impl Running {
    /// What it has cost, answered or not.
    fn cost(&self) -> Value {
        let l = &self.longest;
        json!({
            "slices": self.slices, "pause_ns": self.pause, "longest_ns": l.pause,
            "cpu_ns": self.spent, "objects": self.work.objects(),
            "longest": {
                "stage": l.stage, "cpu_ns": l.spent, "preempted": l.others, "waited": l.waits, "page_faults": l.faults,
            },
        })
    }

    /// # Safety
    /// With the GIL held.
    unsafe fn slice(&mut self, budget: &Budget) -> Result<Progress, String> {
        if let Some(p) = self.prepared.take() {
            let interpreter = (p.interpreter)();
            let Some(collector) = Collector::find(interpreter) else {
                return Err("where this Python's collector keeps its objects is not known".into());
            };
            self.world =
                Some(World { python: p.python, torch: p.torch, frames: p.frames, collector, interpreter });
        }
        let Some(world) = &self.world else { return Err("it was begun twice".into()) };
        if world.collector.is_at_work() {
            return Ok(Progress::More);
        }
        loop {
            // SAFETY: the GIL is held and the collector is not at work.
            let progress = unsafe { self.work.slice(world, budget) }?;
            let is_more = matches!(progress, Progress::More) && !self.work.wants_a_slice(budget);
            if !is_more || budget.is_over() {
                return Ok(progress);
            }
        }
    }
}
