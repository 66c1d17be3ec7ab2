//! How much of the job's time looking for holders may take: the first 200 ms, and 0.5 % of what the job has run for; a look that has begun
//! goes on to 400 ms. One that found all it was asked for is followed by another only once as much time as it took is left again.
//! Counted is what the processor does for it.

use crate::platform::config::Pace;

/// Nanoseconds that a short job spends at most.
const FIRST: u64 = 200_000_000;
/// One in so many of the job's nanoseconds beyond those.
const PART: u64 = 200;

/// Nanoseconds that may still be taken from a job that has run for `elapsed` and was paused for `paused`.
pub(super) fn left(elapsed: u64, paused: u64) -> u64 {
    (FIRST + elapsed / PART).saturating_sub(paused)
}

/// Nanoseconds until something may be taken again.
pub(super) fn until(elapsed: u64, paused: u64) -> u64 {
    paused.saturating_sub(FIRST).saturating_mul(PART).saturating_sub(elapsed)
}

impl Pace {
    /// Nanoseconds that the job runs before a look's next slice; it has taken `slice` for the last one and `all` for all of them. A look
    /// that has begun is brought to its end where that is near, since what it looks for may be gone later: the next one waits for as
    /// much longer.
    pub(super) fn rest(self, (slice, all): (u64, u64), elapsed: u64, paused: u64) -> u64 {
        match self {
            Pace::Budget if all >= 2 * FIRST => slice.max(until(elapsed, paused)),
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
        assert_eq!(left(0, 0), 200 * MS);
        assert_eq!(left(3_000 * MS, 150 * MS), 65 * MS);
        assert_eq!(left(3_000 * MS, 300 * MS), 0);
        assert_eq!(until(3_000 * MS, 215 * MS), 0);
        assert_eq!(until(3_000 * MS, 300 * MS), 17_000 * MS);
        let late = 3_000 * MS + until(3_000 * MS, 300 * MS);
        let rest = |all| Pace::Budget.rest((8 * MS, all), 3_000 * MS, 300 * MS);
        assert_eq!((rest(300 * MS), rest(400 * MS)), (8 * MS, 17_000 * MS));
        assert!(left(late, 300 * MS) == 0 && left(late + 200 * MS, 300 * MS) == MS);
    }
}
