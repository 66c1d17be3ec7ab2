//! Steps where the source of the job says which optimizers an iteration runs.

use super::machine::StepMachine;
use super::party::Party;
use super::passes::{InPass, OFTENER, Pair};
use super::turns::{Heard, Turns};
use crate::event::{StackId, ThreadId};

impl StepMachine {
    /// How a pass comes to two places that call backward, by their stacks, as the job's source has it.
    pub fn tell_passes(&mut self, places: [StackId; 2], how: InPass) {
        self.turns.passes.tell(places, how);
    }

    /// What a reader has told another machine of the same job.
    pub fn learn_from(&mut self, other: StepMachine) {
        self.turns.passes = other.turns.passes;
    }
}

impl Turns {
    /// Whether a pass comes to this place or to those of all the others that ran since it was the `last` beat, never to both.
    pub(super) fn is_apart(&self, label: u32, place: u32, last: u64) -> bool {
        let mut others = self.parties.iter().filter(|o| o.label != label && o.last > last).peekable();
        others.peek().is_some() && others.all(|o| self.passes.are_apart(o.recent[0], place))
    }

    /// A beat that belongs to the step of another, as the source says: of a party that only some passes run, beside one that each of them runs, as
    /// long as it does not run more often, as in a loop of its own; or the first of that one, where the other has begun the pass.
    pub(super) fn in_pass(
        &mut self,
        label: u32,
        sites: [u32; 2],
        thread: ThreadId,
        count: &mut u32,
    ) -> Option<Heard> {
        if self.passes.0.is_empty() {
            return None;
        }
        let Turns { parties, passes, beats, stretch, .. } = self;
        let always = |p: &Pair| {
            parties.iter().find(|o| o.is_at(p.places[0]) && o.label != label && o.thread == thread)
        };
        let sometimes =
            passes.0.iter_mut().filter(|p| p.how == InPass::FirstAlways && p.places[1] == sites[0]);
        for pair in sometimes.filter(|p| always(p).is_some()) {
            let Some(ahead) = pair.ahead else { continue };
            let is_part = ahead > -OFTENER;
            pair.ahead = is_part.then_some(ahead - 1);
            if is_part {
                parties.iter_mut().filter(|p| p.label == label).for_each(|p| p.recent = sites);
                return Some(Heard { label, count: *count, ends: false });
            }
            // Those that were taken for parts were steps.
            *count = count.saturating_add(OFTENER.unsigned_abs());
        }
        let is_new =
            *stretch <= OFTENER.unsigned_abs() && parties.iter().any(|p| p.label == label && p.last == 0);
        let mut begun_by = None;
        for pair in passes.0.iter_mut().filter(|p| p.how == InPass::FirstAlways && p.places[0] == sites[0]) {
            let has_begun = |o: &&Party| o.is_at(pair.places[1]) && o.sites == o.recent && o.thread == thread;
            let before = parties.iter().find(has_begun).filter(|o| o.last == *beats);
            match before.filter(|_| is_new && begun_by.is_none()) {
                Some(other) => {
                    begun_by = Some(other.label);
                    pair.ahead = Some(1 - stretch.cast_signed());
                }
                None => pair.ahead = Some(pair.ahead.unwrap_or(0).saturating_add(1)),
            }
        }
        let other = begun_by?;
        // They are one step.
        for p in parties.iter_mut() {
            if p.label == other {
                (p.first, p.last, p.turns) = (0, 0, 0);
            } else if p.label == label {
                (p.first, p.last, p.thread, p.recent, p.sites) = (*beats, *beats, thread, sites, sites);
            }
        }
        *count = count.saturating_sub(stretch.saturating_sub(1));
        (self.latest, self.newest, self.stretch) = (label, *beats, 1);
        Some(Heard { label, count: *count, ends: true })
    }
}
