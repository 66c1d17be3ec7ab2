//! When steps ended, in bounded memory.

use crate::event::Nanos;

/// Moments that are kept; where there are more, every second one goes.
const MOMENTS: usize = 1024;

/// When steps ended: of each, or of every second, fourth … one.
#[derive(Clone, Debug)]
pub(super) struct StepClock {
    /// Step and when it ended, in their order.
    ends: Vec<(u32, Nanos)>,
    /// Steps from one that is kept to the next.
    stride: u32,
}

impl Default for StepClock {
    fn default() -> StepClock {
        StepClock { ends: Vec::new(), stride: 1 }
    }
}

impl StepClock {
    /// A step has ended.
    pub(super) fn end(&mut self, step: u32, time: Nanos) {
        if !step.is_multiple_of(self.stride) {
            return;
        }
        self.ends.push((step, time));
        if self.ends.len() == MOMENTS {
            self.stride = self.stride.saturating_mul(2);
            let stride = self.stride;
            self.ends.retain(|(step, _)| step.is_multiple_of(stride));
        }
    }

    /// Steps from this one on have not ended after all.
    pub(super) fn merge_steps_from(&mut self, step: u32) {
        self.ends.retain(|(n, _)| *n < step);
    }

    /// The step that was under way at a moment, from 1; where not every end is kept, by even steps in between. `None`: before what is known.
    pub(super) fn at(&self, time: Nanos) -> Option<u32> {
        let mut anywhere = usize::MAX;
        self.near(time, &mut anywhere)
    }

    /// The same, quicker where moments are asked for in their order: `next` is kept from one to the next, and may begin as anything.
    pub(super) fn near(&self, time: Nanos, next: &mut usize) -> Option<u32> {
        let is_before = |i: usize| self.ends.get(i).is_some_and(|(_, end)| *end < time);
        if *next > self.ends.len() || is_before(*next) || next.checked_sub(1).is_some_and(|i| !is_before(i)) {
            *next = self.ends.partition_point(|(_, end)| *end < time);
        }
        let next = *next;
        let before = match next.checked_sub(1) {
            Some(i) => *self.ends.get(i)?,
            // The first step of all begins with the recording.
            None => return (self.ends.first()?.0 == self.stride && self.stride == 1).then_some(1),
        };
        let Some(after) = self.ends.get(next) else { return Some(before.0.saturating_add(1)) };
        let (steps, took) = (after.0 - before.0, after.1.0.saturating_sub(before.1.0).max(1));
        let passed = time.0.saturating_sub(before.1.0) as f64 / took as f64 * f64::from(steps);
        Some(before.0 + 1 + (passed as u32).min(steps.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_of_a_moment_is_known_also_where_not_every_end_is_kept() {
        let mut clock = StepClock::default();
        assert_eq!(clock.at(Nanos(5)), None);
        (1..=10).for_each(|n| clock.end(n, Nanos(u64::from(n) * 100)));
        let at = |c: &StepClock, t| c.at(Nanos(t));
        assert_eq!((at(&clock, 50), at(&clock, 150), at(&clock, 950)), (Some(1), Some(2), Some(10)));
        assert_eq!(at(&clock, 2_000), Some(11));
        let mut next = 7;
        for t in [0, 50, 50, 100, 101, 950, 1_000, 1_001, 2_000, 300, 299, 0] {
            assert_eq!(clock.near(Nanos(t), &mut next), at(&clock, t), "{t}");
        }
        clock.merge_steps_from(8);
        assert_eq!(at(&clock, 950), Some(8));
        (8..=50_000).for_each(|n| clock.end(n, Nanos(u64::from(n) * 100)));
        assert!(clock.ends.len() < MOMENTS);
        for t in [1_234_567, 3_000_050, 4_900_001] {
            let (told, is) = (at(&clock, t).expect("known"), (t / 100 + 1) as u32);
            assert!(told.abs_diff(is) <= 1, "{told} {is}");
        }
    }
}
