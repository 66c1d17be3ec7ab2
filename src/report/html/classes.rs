//! What was held at the end of each step, by what it was used for. How a block ends tells its class: it is added to the points
//! that it lived through once it is gone.

use super::lane::Lane;
use crate::detect::Finding;
use crate::event::{Block, Body, Event, Item, Names, total};
use crate::replay::anatomy::{Class, Classifier, Death};
use crate::replay::{Held, PhaseKind, Replay};

/// What is remembered on the way.
#[derive(Debug)]
pub(super) struct Classes {
    job: Classifier,
    /// What was freed when the last step had ended.
    late: Vec<(Held, Option<Death>)>,
    /// What was freed since the last step's optimizer: by the step if it goes on, or by a job that ends.
    trailing: Vec<(Held, Death)>,
}

impl Classes {
    pub(super) fn new(last_step: u32) -> Classes {
        Classes { job: Classifier::new(last_step), late: Vec::new(), trailing: Vec::new() }
    }

    /// Takes the next item that is no event.
    pub(super) fn item(&mut self, item: &Item, names: &Names) {
        self.job.see(item, names);
    }

    /// The block that this event will end; to be asked before it is replayed.
    #[inline]
    pub(super) fn ending(&mut self, event: &Event, replay: &Replay) -> Option<(Held, Block)> {
        self.job.event(&event.body, event.time);
        let (Body::FreeRequested(b) | Body::Alloc(b)) = &event.body else { return None };
        let held = replay.block(b.device, b.addr)?;
        (!held.pending && !held.unverified).then_some((*held, *b))
    }

    /// That block has ended.
    pub(super) fn ended(
        &mut self,
        (held, by): (Held, Block),
        replay: &Replay,
        findings: &[Finding],
        lanes: &mut [Lane],
    ) {
        let (step, microbatch) = (replay.steps() + 1, replay.microbatches() + 1);
        let death = Death { phase: PhaseKind::of(by.phase, true), step, microbatch };
        if step >= self.job.last_step && replay.is_trailing() {
            self.trailing.push((held, death));
        } else {
            self.died(held, death, replay, findings, lanes);
        }
    }

    fn died(&mut self, held: Held, death: Death, replay: &Replay, findings: &[Finding], lanes: &mut [Lane]) {
        let Some(lane) = lanes.iter_mut().find(|l| l.device == held.block.device) else { return };
        // Most blocks live through no end of a step.
        if lane.points.last().is_none_or(|p| p.step < held.step) {
            return;
        }
        if death.step > self.job.last_step {
            self.late.push((held, Some(death)));
            return;
        }
        let class = self.class(&held, Some(death), replay, findings);
        add(lane, &held, class);
    }

    /// The job allocates again, so what it freed before was freed within a step.
    pub(super) fn allocates_again(&mut self, replay: &Replay, findings: &[Finding], lanes: &mut [Lane]) {
        for (held, death) in std::mem::take(&mut self.trailing) {
            self.died(held, death, replay, findings, lanes);
        }
    }

    /// The job has ended, so what it freed after its last optimizer step was freed after its last step.
    pub(super) fn job_ended(&mut self) {
        let late = |(held, death): (Held, Death)| (held, Some(Death { step: death.step + 1, ..death }));
        self.late.extend(self.trailing.drain(..).map(late));
    }

    /// Nothing more comes: what is still held, and what was freed when the job was over.
    pub(super) fn end(&mut self, replay: &Replay, findings: &[Finding], lanes: &mut [Lane]) {
        for lane in lanes {
            let device = lane.device;
            let late = self.late.iter().filter(|(h, _)| h.block.device == device).copied();
            let live = replay.blocks(device).filter(|h| !h.pending && !h.unverified).map(|h| (*h, None));
            let blocks = late.chain(live).map(|(held, death)| {
                let class = self.class(&held, death, replay, findings);
                (held, death, class)
            });
            self.job.settle(replay, blocks, |held, class| add(lane, held, class));
            for p in &mut lane.points {
                // What was there before the recording has no block.
                let sum = total(p.classes.iter().copied());
                let other = &mut p.classes[Class::Other.number()];
                *other = other.saturating_add(p.allocated.saturating_sub(sum));
            }
        }
    }

    fn class(&self, held: &Held, death: Option<Death>, replay: &Replay, findings: &[Finding]) -> Class {
        let is_old = held.is_old(self.job.last_step) && !self.job.died_soon(held, death);
        if let Some(class) = findings.iter().filter_map(|f| f.class(held, is_old)).min() {
            return class;
        }
        self.job.class(held, PhaseKind::of(held.block.phase, replay.trained()), death)
    }
}

/// Adds a block to all points since it was born.
fn add(lane: &mut Lane, held: &Held, class: Class) {
    let rounded = held.block.rounded.0;
    let own = class.share(&held.block);
    let first = lane.points.partition_point(|p| p.step < held.step);
    for p in &mut lane.points[first..] {
        let mut more = |c: Class, b: u64| p.classes[c.number()] = p.classes[c.number()].saturating_add(b);
        more(class, own);
        more(Class::Other, rounded - own);
    }
}
