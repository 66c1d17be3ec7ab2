//! A value at every mark, in bounded memory.

/// The old blocks of a cohort at one mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// How many.
    pub blocks: u64,
    /// Their rounded sizes.
    pub bytes: u64,
}

/// Points at marks 1, 2, 3 … The last marks are kept one by one, older ones in buckets of equal width of which the
/// minimum is kept: growth is judged by minima, so that nothing is lost by it.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Mark of the first point; points before it were (0, 0).
    pub(super) first: u32,
    /// Minima of buckets of `width` marks each, the first one beginning at `first`.
    pub(super) floors: Vec<Point>,
    /// Marks per bucket (a power of two; 0 in an empty series).
    pub(super) width: u32,
    /// Marks in the last bucket.
    pub(super) filled: u32,
    /// The last points one by one, newest last.
    pub(super) recent: Vec<Point>,
}
