//! How much of the job's time looking for holders may take: the first 200 ms, and 0.5 % of what the job has run for. A part of the former is
//! kept for the moment at which the interpreter begins to end. A slice is begun only where it fits into what is left: a look that has taken
//! all goes on as the job earns more. One that found all it was asked for is followed by another only once as much time as it took is left
//! again. Counted is what the processor does for it.

use crate::platform::config::Pace;

/// Nanoseconds that a short job spends at most, and how much of them is kept for its end.
const FIRST: u64 = 200_000_000;
const LAST: u64 = 40_000_000;
/// One in so many of the job's nanoseconds beyond those.
const PART: u64 = 200;

/// Nanoseconds that may still be taken from a job that has run for `elapsed` and was paused for `paused`.
pub(super) fn left(elapsed: u64, paused: u64, is_ending: bool) -> u64 {
    let kept = if is_ending { 0 } else { LAST };
    (FIRST - kept + elapsed / PART).saturating_sub(paused)
}

/// Nanoseconds until as many as `needs` may be taken again.
pub(super) fn until(elapsed: u64, paused: u64, needs: u64) -> u64 {
    (paused + needs).saturating_sub(FIRST - LAST).saturating_mul(PART).saturating_sub(elapsed)
}

impl Pace {
    /// Whether a slice that needs so much may be taken.
    pub(super) fn allows(self, needs: u64, elapsed: u64, paused: u64, is_ending: bool) -> bool {
        !matches!(self, Pace::Budget) || left(elapsed, paused, is_ending) >= needs
    }

    /// Nanoseconds that the job runs before a look's next slice, which needs so much; it has taken `slice` for the last one.
    pub(super) fn rest(self, slice: u64, needs: u64, elapsed: u64, paused: u64) -> u64 {
        match self {
            Pace::Budget => slice.max(until(elapsed, paused, needs)),
            _ => slice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: u64 = 1_000_000;

    #[test]
    fn a_short_job_has_its_first_part_and_a_long_one_half_a_percent() {
        assert_eq!((left(0, 0, false), left(0, 0, true)), (160 * MS, 200 * MS));
        assert_eq!(left(3_000 * MS, 150 * MS, false), 25 * MS);
        assert_eq!((left(3_000 * MS, 300 * MS, false), left(3_000 * MS, 300 * MS, true)), (0, 0));
        assert_eq!(until(3_000 * MS, 167 * MS, 8 * MS), 0);
        assert_eq!(until(3_000 * MS, 168 * MS, 8 * MS), 200 * MS);
    }

    #[test]
    fn no_slice_is_begun_that_does_not_fit_and_one_that_waits_is_taken_once_it_does() {
        for (needs, paused) in [(8 * MS, 165 * MS), (24 * MS, 165 * MS), (8 * MS, 300 * MS)] {
            let rest = Pace::Budget.rest(8 * MS, needs, 3_000 * MS, paused);
            let may = |elapsed| Pace::Budget.allows(needs, elapsed, paused, false);
            assert!(may(3_000 * MS + rest), "{needs} {paused}");
            assert!(rest == 8 * MS || !may(3_000 * MS + rest - MS), "{needs} {paused}");
        }
        let every = Pace::Every(std::time::Duration::ZERO);
        assert!(
            every.allows(24 * MS, 0, 900 * MS, false) && every.rest(8 * MS, 24 * MS, 0, 900 * MS) == 8 * MS
        );
    }
}
