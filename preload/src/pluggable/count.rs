//! What the door has handed out on a device: the numbers behind `torch.cuda.memory_stats`.

/// Rounding of sizes, as PyTorch counts them and as the driver's pools hand memory out.
const ALIGN: u64 = 512;
/// PyTorch's border between its small and its large pool, in bytes.
const SMALL: u64 = 1 << 20;

/// What a block of so many bytes takes.
pub(super) fn rounded(size: u64) -> u64 {
    size.saturating_add(ALIGN - 1) & !(ALIGN - 1)
}

/// A number that goes up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    /// Now.
    pub(super) current: u64,
    /// The most, since it was reset.
    pub(super) peak: u64,
    /// Sum of what was added, since it was reset.
    pub(super) added: u64,
    /// Sum of what was taken away.
    pub(super) taken: u64,
}

impl Stat {
    fn add(&mut self, n: u64) {
        self.current = self.current.saturating_add(n);
        self.peak = self.peak.max(self.current);
        self.added = self.added.wrapping_add(n);
    }
    fn take(&mut self, n: u64) {
        self.current = self.current.saturating_sub(n);
        self.taken = self.taken.wrapping_add(n);
    }
}

/// Which numbers are begun anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// Peaks: from now on the present is the most.
    Peaks,
    /// Sums.
    Sums,
}

/// One device's numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Blocks, their rounded bytes, the bytes asked for; each as all, small, large.
    blocks: [[Stat; 3]; 3],
    /// Bytes that the pool holds of the device.
    pub(super) reserved: Stat,
    /// Allocations that succeeded only after memory had been given back.
    pub(super) retries: u64,
    /// Allocations that failed.
    pub(super) ooms: u64,
    /// Times that the pool grew, and shrank.
    pub(super) grown: [u64; 2],
}

/// Words of [`Counts::words`].
pub(super) const WORDS: usize = 44;

impl Counts {
    /// Rounded bytes that are handed out now.
    pub(super) fn allocated(&self) -> u64 {
        self.blocks[1][0].current
    }

    /// A block was handed out, or given back.
    pub(super) fn block(&mut self, size: u64, given: bool) {
        let pool = if size <= SMALL { 1 } else { 2 };
        for (stats, n) in self.blocks.iter_mut().zip([1, rounded(size), size]) {
            for (i, stat) in stats.iter_mut().enumerate() {
                match (i == 0 || i == pool, given) {
                    (true, true) => stat.add(n),
                    (true, false) => stat.take(n),
                    (false, _) => {}
                }
            }
        }
    }

    /// The pool holds `now` bytes. By how much it has grown (positive) or shrunk since it was last looked at.
    pub(super) fn holds(&mut self, now: u64) -> i64 {
        let before = self.reserved.current;
        if now > before {
            self.reserved.add(now - before);
            self.grown[0] += 1;
        } else if now < before {
            self.reserved.take(before - now);
            self.grown[1] += 1;
        }
        now.wrapping_sub(before) as i64
    }

    /// Begins some of the numbers anew.
    pub(super) fn reset(&mut self, what: Reset) {
        let all = self.blocks.iter_mut().flatten().chain([&mut self.reserved]);
        for stat in all {
            match what {
                Reset::Peaks => stat.peak = stat.current,
                Reset::Sums => (stat.added, stat.taken) = (0, 0),
            }
        }
        if what == Reset::Sums {
            (self.retries, self.ooms, self.grown) = (0, 0, [0; 2]);
        }
    }

    /// All of it as words: for blocks, rounded bytes and bytes asked for, of all, small and large: current, peak, added,
    /// taken; the same four of the reserved bytes; retries, out-of-memories, times grown, times shrunk.
    pub(super) fn words(&self) -> [u64; WORDS] {
        let stats = self.blocks.iter().flatten().chain([&self.reserved]);
        let last = [self.retries, self.ooms, self.grown[0], self.grown[1]];
        let mut words = [0; WORDS];
        let all = stats.flat_map(|s| [s.current, s.peak, s.added, s.taken]).chain(last);
        words.iter_mut().zip(all).for_each(|(word, n)| *word = n);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_what_was_handed_out() {
        let mut c = Counts::default();
        c.block(1000, true);
        c.block(3 << 20, true);
        c.block(1000, false);
        assert_eq!(c.allocated(), 3 << 20);
        let w = c.words();
        assert_eq!(&w[..4], [1, 2, 2, 1], "blocks");
        assert_eq!(&w[12..16], [3 << 20, (3 << 20) + 1024, (3 << 20) + 1024, 1024], "rounded bytes");
        assert_eq!(&w[28..32], [0, 1000, 1000, 1000], "bytes asked for, small");
        c.reset(Reset::Peaks);
        assert_eq!(c.words()[13], 3 << 20);
        assert_eq!((c.holds(32 << 20), c.holds(2 << 20)), (32 << 20, -(30 << 20)));
        assert_eq!(&c.words()[36..], [2 << 20, 32 << 20, 32 << 20, 30 << 20, 0, 0, 1, 1]);
    }

    #[test]
    fn sizes_are_rounded_as_pytorch_does() {
        assert_eq!([0, 1, 512, 513].map(rounded), [0, 512, 512, 1024]);
    }
}
