//! Whether a figure of the steps rises: the floors of some windows do, one after the other.

use crate::event::StepRow;

/// Rows in a window at least.
const ROWS: usize = 3;

/// A figure that rises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rise {
    /// The first steps of the first and of the last window.
    pub(super) steps: [u32; 2],
    /// The floors of those.
    pub(super) floors: [u64; 2],
}

impl Rise {
    /// The rise over `windows` of these rows, without the first ones, which build the job; `None` where one floor is not higher by `each` than the
    /// one before.
    pub(super) fn of(
        rows: &[StepRow],
        windows: usize,
        each: u64,
        value: impl Fn(&StepRow) -> u64,
    ) -> Option<Rise> {
        let width = rows.len().saturating_sub((rows.len() / 5).max(ROWS)) / windows.max(1);
        let tail = rows.get(rows.len() - windows * width..).filter(|_| width >= ROWS)?;
        let floors: Vec<u64> = tail.chunks(width).filter_map(|w| w.iter().map(&value).min()).collect();
        let rises = floors.windows(2).all(|w| matches!(w, [a, b] if *b >= a.saturating_add(each.max(1))));
        let steps = [tail.first()?.step, tail.get((windows - 1) * width)?.step];
        rises.then_some(Rise { steps, floors: [*floors.first()?, *floors.last()?] })
    }

    /// By how much.
    pub(super) fn total(&self) -> u64 {
        self.floors[1] - self.floors[0]
    }

    /// The same with each step.
    pub(super) fn per_step(&self) -> f64 {
        self.total() as f64 / f64::from(self.steps[1].saturating_sub(self.steps[0]).max(1))
    }
}
