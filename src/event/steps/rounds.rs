//! Which of several optimizers ends a step: the one that steps least often, unless it is a straggler.

/// Optimizers that are told apart. Those beyond share the last slot.
pub(super) const SLOTS: usize = 16;
/// An optimizer that steps more than this many times less often than another one is ignored.
pub(super) const RARE: u32 = 8;
/// The name under which hooks inside a backward count, all of them together.
pub(super) const IN_BACKWARD: u64 = u64::MAX;

/// One optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slot {
    pub(super) id: u64,
    /// Runs of it so far.
    pub(super) runs: u32,
    /// Its last two intervals: how often the busiest other one ran between two runs of it.
    pub(super) intervals: [u32; 2],
    /// How often each other one ran since its last run.
    pub(super) since: [u32; SLOTS],
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rounds {
    pub(super) slots: Vec<Slot>,
    pub(super) marker: usize,
}

/// What a hook brought about.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Heard {
    /// The step ends at the next forward allocation.
    pub(super) ends_round: bool,
    /// An optimizer that was never seen before decides from now on: the rounds so far were parts of one.
    pub(super) new_marker: bool,
}

impl Slot {
    fn since(&self) -> u32 {
        self.since.iter().copied().max().unwrap_or(0)
    }
    fn eligible(&self) -> bool {
        self.intervals[1] <= RARE && self.since() <= RARE
    }
}

impl Rounds {
    /// Optimizer `id` ran on a thread whose `group` has the ones that ran since its last forward allocation.
    pub(super) fn hook(&mut self, id: u64, group: &mut u32) -> Heard {
        let (i, new) = self.slot(id);
        let bit = 1u32 << (i as u32 & 31);
        if *group & bit != 0 {
            return Heard::default();
        }
        *group |= bit;
        self.count(i);
        let new_marker = self.elect(i, new);
        Heard { ends_round: self.marker == i, new_marker }
    }

    fn slot(&mut self, id: u64) -> (usize, bool) {
        if let Some(i) = self.slots.iter().position(|s| s.id == id) {
            return (i, false);
        }
        if self.slots.len() == SLOTS {
            return (SLOTS - 1, false);
        }
        let mut s = Slot { id, ..Slot::default() };
        for (count, other) in s.since.iter_mut().zip(&self.slots) {
            *count = other.runs;
        }
        self.slots.push(s);
        (self.slots.len() - 1, true)
    }

    fn count(&mut self, i: usize) {
        for (j, s) in self.slots.iter_mut().enumerate() {
            if j == i {
                let interval = s.since();
                s.intervals = if s.runs == 0 { [interval; 2] } else { [s.intervals[1], interval] };
                s.runs = s.runs.saturating_add(1);
                s.since = [0; SLOTS];
            } else if let Some(n) = s.since.get_mut(i) {
                *n = n.saturating_add(1);
            }
        }
    }

    /// Chooses the marker after a run of `i`; says whether a newcomer was chosen.
    fn elect(&mut self, i: usize, new: bool) -> bool {
        let (Some(candidate), Some(marker)) = (self.slots.get(i), self.slots.get(self.marker)) else {
            return false;
        };
        if i == self.marker || !candidate.eligible() {
            return false;
        }
        // A newcomer ends the round that was under way; later only one that is clearly rarer takes over, so
        // that two optimizers of two threads do not change places at every jitter.
        let rarer =
            candidate.intervals[0].min(candidate.intervals[1]) > marker.intervals[0].max(marker.intervals[1]);
        if new || rarer || !marker.eligible() {
            self.marker = i;
            return new;
        }
        false
    }
}
