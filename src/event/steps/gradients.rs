//! Whether gradients were dropped: a sample of what backwards left behind, and who freed it when.
//!
//! A loop that skips a step sets the gradients to None all the same, or the next backward would add to them; one that
//! accumulates them keeps them. Both are seen in what becomes of blocks that were allocated within a backward and were
//! still there at its end.

use crate::event::Addr;

/// Blocks in the sample.
pub(super) const SAMPLE: usize = 32;

/// The sample, and how many blocks there are in all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gradients {
    /// Addresses of live blocks that a backward allocated, each at the place that it hashes to; 0: none. A later one
    /// takes the place of an earlier one.
    pub(super) sample: [u64; SAMPLE],
    /// How many of them there are.
    pub(super) kept: u32,
    /// How many were freed outside of backwards since the last one, and before an optimizer ran.
    pub(super) gone: u32,
    /// Live blocks of all kinds.
    pub(super) live: u32,
    /// The same when the last of the gone ones went.
    pub(super) left: u32,
    /// The same when the last step ended.
    pub(super) usual: u32,
}

impl Gradients {
    /// A block is allocated; within a backward?
    #[inline]
    pub(super) fn alloc(&mut self, addr: Addr, backward: bool) {
        self.live = self.live.wrapping_add(1);
        if backward && addr.0 != 0 {
            let place = &mut self.sample[place(addr)];
            self.kept += u32::from(*place == 0);
            *place = addr.0;
        }
    }

    /// A block is freed; within a backward?
    #[inline]
    pub(super) fn free(&mut self, addr: Addr, backward: bool) {
        self.live = self.live.saturating_sub(1);
        let place = &mut self.sample[place(addr)];
        if *place == addr.0 && addr.0 != 0 {
            *place = 0;
            self.kept = self.kept.saturating_sub(1);
            if !backward {
                self.gone = self.gone.saturating_add(1);
                self.left = self.live;
            }
        }
    }

    /// A backward has ended, or an optimizer has used them: what is freed from now on is another matter.
    pub(super) fn begin(&mut self) {
        self.gone = 0;
    }

    /// A step has ended.
    pub(super) fn step(&mut self) {
        self.usual = self.live;
    }

    /// Most of them were freed, and nobody had used them.
    pub(super) fn were_dropped(&self) -> bool {
        self.gone > self.kept
    }

    /// The model outlived them: the program dropped them, not its end.
    pub(super) fn alone(&self) -> bool {
        self.usual > 0 && self.left >= self.usual / 3
    }
}

/// Blocks lie 512 bytes apart; large ones often a power of two.
fn place(addr: Addr) -> usize {
    ((addr.0 >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize
}

const _: () = assert!(SAMPLE == 32);
