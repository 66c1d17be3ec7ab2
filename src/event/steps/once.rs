//! Loops that run each of their optimizers once, and leave out some of them in some iterations.
//!
//! Where the optimizers ran by turns, one by one, and then one of them runs alone, that is no loop within the loop: the
//! others were left out, as in PPO, where the actor stops early, or in a GAN whose generator waits. So the steps are
//! the beats of whichever runs alone, and those of the others are parts of them, as long as they come back for single
//! beats. Of two that both run alone, the one that came first begins a step, and the other ends it.
//!
//! That others come to run as often as before between two of its beats, more than once, shows a loop within the loop.

use super::party::{Manner, Party};
use super::turns::Turns;

/// Beats of others that were parts of the marker's steps, for each time that one takes its place and both ran alone,
/// below which it was chance that they ran by turns.
const PAIRS: u32 = 4;

impl Turns {
    /// A beat of the marker: the others were left out of this step, or were not.
    pub(super) fn with_or_without(&mut self, manner: Manner, count: u32) -> (u32, bool) {
        self.alone = self.alone.saturating_add(u32::from(manner == Manner::Again));
        if self.one_line && self.alone > self.swallowed.saturating_mul(2) {
            // That line picks one each time.
            return self.chance(count.saturating_add(1));
        }
        self.held = 0;
        (self.single(count, false), true)
    }

    /// Steps that have begun and that the marker will not end: it is left out of the last one, as of others before.
    pub(super) fn unfinished(&self) -> u32 {
        u32::from(self.marker != 0 && self.once && self.left_out && !self.leads && self.held > 0)
    }

    /// The same, once.
    pub(super) fn take_unfinished(&mut self) -> u32 {
        let unfinished = self.unfinished();
        self.held = 0;
        unfinished
    }

    /// Another runs twice, and the marker did not run: now it is that one which each iteration has.
    pub(super) fn swap(&mut self, p: &Party, count: u32) -> (u32, bool) {
        self.swaps = self.swaps.saturating_add(u32::from(self.alone > 0));
        if self.alone > 0 && self.swallowed < PAIRS.saturating_mul(self.swaps) {
            // Both run alone, and hardly ever by turns.
            return self.chance(count);
        }
        // The step before this one, unless it was counted when it began.
        let ended = if self.leads { 1 } else { 2 };
        self.swallowed = self.swallowed.saturating_sub(ended);
        (self.marker, self.held, self.alone, self.leads) = (p.label, 0, 1, !self.leads);
        self.left_out = true;
        (self.singly, self.extras) = (ended, 0);
        (count.saturating_add(ended), true)
    }

    /// That they ran by turns was chance: what was taken for parts of steps were steps.
    pub(super) fn chance(&mut self, count: u32) -> (u32, bool) {
        (self.marker, self.singly, self.extras) = (0, 1, 0);
        self.parties.iter_mut().for_each(|p| p.turns = 0);
        (count.saturating_add(self.swallowed), true)
    }

    /// Beats of the other one of two before the turns of `p`, of which the `first` round has so many: if it never ran
    /// twice in a row, they were parts of steps as well.
    pub(super) fn before(&self, p: &Party, first: u32) -> u32 {
        let Some(other) = self.party(p.prior) else { return 0 };
        let alone =
            self.parties.iter().all(|o| o.label == p.label || o.label == other.label || o.last < other.start);
        if !alone || other.turns == 0 || other.start >= p.start {
            return 0;
        }
        other.turns.saturating_add(1).saturating_sub(p.turns.saturating_add(u32::from(first > 0)))
    }

    /// A loop within the loop is new: the turns of a party, after as many beats each, begin where it does.
    pub(super) fn begin_anew(&mut self, label: u32, count: u32) {
        for p in self.parties.iter_mut().filter(|p| p.label == label) {
            let turns = p.alike.saturating_add(1);
            p.base = count.saturating_sub(p.gap.saturating_mul(turns - 1));
            (p.turns, p.credit, p.widest, p.uneven, p.wide, p.extras) = (turns, p.gap, p.gap, 0, turns, 0);
        }
    }
}
