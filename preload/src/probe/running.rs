//! A question that is being answered, slice by slice.

use super::budget::Budget;
use super::work::{Progress, Work};
use super::world::{Prepared, World};
use crate::platform::config::Pace;
use crate::python::collector::Collector;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a slice came to.
#[derive(Clone, Copy, Default)]
pub(super) struct Slice {
    pub(super) stage: &'static str,
    /// Nanoseconds on the clock, and of the processor.
    pub(super) pause: u64,
    pub(super) spent: u64,
    /// Times that another thread was put before it, that it waited, and that a page had to be fetched from a disk.
    pub(super) others: i64,
    pub(super) waits: i64,
    pub(super) faults: i64,
}

/// The probe under way.
pub(super) struct Running {
    pub(super) work: Work,
    /// What was looked up off the job's threads, until the first slice has found the rest.
    pub(super) prepared: Option<Prepared>,
    pub(super) world: Option<World>,
    pub(super) began: u64,
    pub(super) slices: u32,
    /// Nanoseconds in slices.
    pub(super) pause: u64,
    /// The longest, and what it was about.
    pub(super) longest: Slice,
    /// Nanoseconds of the processor.
    pub(super) spent: u64,
    /// The same by what a slice began with.
    pub(super) stages: BTreeMap<&'static str, u64>,
    /// No slice before this moment.
    pub(super) rests: u64,
    pub(super) pace: Pace,
}

/// The probe, and its answer to each finding or why there is none.
pub(super) type Finished = (Running, Result<Vec<Value>, String>);

impl Running {
    /// What it has cost, answered or not.
    pub(super) fn cost(&self) -> Value {
        let l = &self.longest;
        json!({
            "slices": self.slices, "pause_ns": self.pause, "longest_ns": l.pause,
            "cpu_ns": self.spent, "objects": self.work.objects(), "stages": self.stages,
            "longest": {
                "stage": l.stage, "cpu_ns": l.spent, "preempted": l.others, "waited": l.waits, "page_faults": l.faults,
            },
        })
    }

    /// # Safety
    /// With the GIL held.
    pub(super) unsafe fn slice(&mut self, budget: &Budget) -> Result<Progress, String> {
        if let Some(p) = self.prepared.take() {
            let interpreter = (p.interpreter)();
            let Some(collector) = Collector::find(interpreter) else {
                return Err("where this Python's garbage collector keeps its objects is not known".into());
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
            if !matches!(progress, Progress::More) || self.work.wants_a_slice(budget) || budget.is_over() {
                return Ok(progress);
            }
        }
    }
}
