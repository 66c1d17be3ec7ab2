//! Looks for questions, has them answered, and tells the answers.

use super::looks::Looks;
use super::pace;
use super::running::{Running, Slice};
use super::slices::{
    COUNT, COUNTED, FINISHED, LAST_ASKED, LOOKS, RUNNING, WANTED, charged, is_ending, lock, lock_looks, queue,
};
use super::work::Work;
use super::world::prepare;
use crate::platform::clock;
use crate::platform::config::Pace;
use crate::python::interpreter;
use crate::recorder::{self, Housekeeping, since_began};
use crate::tail;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use strandline_core::format::holders::{self, Ask};

/// Between two looks for a question.
const LOOK: u64 = 20_000_000;
/// The same where each look may be a question to a file server.
const FAR: u64 = 1_000_000_000;
/// So long a thread of Python's that takes a slice is waited for.
const PATIENCE: u64 = 120_000_000_000;
/// Answers that are kept in the fact.
const ANSWERS: usize = 32;

/// Looks for questions. Belongs to the writing thread.
pub(crate) struct Probe {
    place: Option<PathBuf>,
    /// Between two looks.
    look: u64,
    looked: u64,
    /// When the last search began, 0: there was none.
    last: u64,
    /// What the last search took of the processor, in nanoseconds, where it found all holders that it was asked for: another one will take
    /// about as much, and can wait.
    took: u64,
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
        Probe { place, look, looked: 0, last: 0, took: 0, pace, waits: None, answers: Vec::new() }
    }

    /// Looks for a question, and after the one that is being answered.
    #[cold]
    fn poll(&mut self) {
        let Some(place) = self.place.clone() else { return };
        let now = clock::moment().mono_ns;
        if WANTED.load(Acquire) {
            return self.go_on(now);
        }
        self.count(now);
        let ending = is_ending();
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
            Pace::Budget => pace::left(since_began(now), charged(), false) > self.took,
            Pace::Every(time) => self.last == 0 || now.saturating_sub(self.last) >= time.as_nanos() as u64,
        }
    }

    /// Has holders that were found counted again, and tells what was.
    fn count(&mut self, now: u64) {
        if COUNTED.swap(false, AcqRel)
            && let Some(facts) = self.counts()
        {
            recorder::record_metadata(facts);
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
                    stages: BTreeMap::new(),
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
            let found = |all: &[Value]| all.iter().all(|f| f["status"] == "found");
            self.took = if answer.as_deref().is_ok_and(found) { running.spent } else { 0 };
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
            let why = if late {
                "no Python thread could be interrupted for two minutes"
            } else {
                "the job ended before the search did"
            };
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
            Err(why) => work.unfinished(why),
        };
        if self.answers.len() == ANSWERS {
            self.answers.remove(0);
        }
        let at = since_began(clock::moment().mono_ns);
        let mut answer = json!({ "number": work.number(), "at_ns": at, "findings": findings, "cost": cost });
        if work.is_collector_off {
            answer["collector"] = "off".into();
        }
        self.answers.push(answer);
        recorder::record_metadata(json!({ "holders": self.answers }));
    }
}

impl Housekeeping for Probe {
    fn poll(&mut self, _: u64) -> Option<Value> {
        self.poll();
        None
    }

    fn is_busy(&self) -> bool {
        WANTED.load(Relaxed) || is_ending()
    }

    fn last_facts(&mut self) -> Option<Value> {
        COUNTED.swap(false, AcqRel).then(|| self.counts()).flatten()
    }

    fn end(&mut self) {
        self.place.iter().for_each(|p| crate::tail::remove(p));
    }
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
