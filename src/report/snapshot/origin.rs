//! Which call made torch obtain a segment, as long as torch itself remembers it.
//!
//! torch keeps the stack of the allocation that made it call the driver on the segment's block
//! (`context_when_segment_allocated`), and what becomes of it follows from how blocks split and merge: a split leaves it with
//! the remainder, a merge keeps that of the lower block and forgets the other. Its snapshots tell the stack of each
//! segment's first block: that of a segment that was never split, as a rule. The same rules are followed here.

use std::collections::BTreeMap;

use super::layout::{Layout, after};
use crate::event::{PoolId, StackId, StreamHandle};

/// What makes a reservation of addresses for an expandable segment one of its kind: torch has one for each.
type Kind = (StreamHandle, PoolId, bool);

/// The stacks of a device's segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins {
    /// By the address of the block that keeps it.
    kept: BTreeMap<u64, StackId>,
    /// First addresses of reservations for expandable segments.
    bases: BTreeMap<u64, Kind>,
}

impl Origins {
    /// The stack that the segment (or mapped range) at this address tells.
    pub(super) fn of(&self, addr: u64) -> StackId {
        self.kept.get(&addr).copied().unwrap_or_default()
    }

    /// Whether a stack is kept on the block at this address.
    pub(super) fn has(&self, addr: u64) -> bool {
        self.kept.contains_key(&addr)
    }

    /// `driver` calls made this segment.
    pub(super) fn segment(&mut self, addr: u64, driver: StackId) {
        self.kept.insert(addr, driver);
    }

    /// A segment is gone.
    pub(super) fn freed(&mut self, addr: u64) -> StackId {
        self.kept.remove(&addr).unwrap_or_default()
    }

    /// A block is handed out at the front of what was free from `addr` to `end`.
    pub(super) fn handed_out(&mut self, addr: u64, size: u64, end: u64) {
        if addr.saturating_add(size) < end
            && let Some(s) = self.kept.remove(&addr)
        {
            self.kept.insert(addr + size, s);
        }
    }

    /// The block at `addr..end` is free again, and merges with what is free before and after it.
    pub(super) fn merged(&mut self, addr: u64, end: u64, free_before: bool, free_after: bool) {
        if free_before {
            self.kept.remove(&addr);
        }
        if free_after {
            self.kept.remove(&end);
        }
    }

    /// A mapped range `addr..end` joins what is free in `d` around it; returns where the block now begins. Called before the
    /// range is put into `d`.
    pub(super) fn mapped(&mut self, d: &Layout, addr: u64, end: u64) -> u64 {
        let start = d.free_before(addr).unwrap_or(addr);
        self.merged(addr, end, start < addr, d.free_from(end));
        start
    }

    /// What was mapped at `addr` for a block that now begins at `start` was mapped by this call.
    pub(super) fn map_called(&mut self, start: u64, addr: u64, kind: Kind, driver: StackId) {
        let base = self.bases.iter().find(|(_, k)| **k == kind).map(|(&b, _)| b);
        if base.is_none() {
            self.bases.insert(addr, kind);
        }
        if base.unwrap_or(addr) == start {
            self.kept.entry(start).or_insert(driver);
        }
    }

    /// The range `addr..end`, free and part of one mapped range of `d`, is being unmapped. Called before it is cut out of `d`.
    pub(super) fn unmapped(&mut self, d: &Layout, addr: u64, end: u64) -> StackId {
        let start = d.free_before(addr).unwrap_or(addr);
        if let Some(s) = self.kept.remove(&start) {
            self.kept.insert(addr, s);
        }
        let base = self.bases.range(..=addr).next_back().map_or(addr, |(&b, _)| b);
        let before = d.segments.range(..addr).next_back().map(|(&a, s)| (a, a + s.size));
        let mut keeper = addr;
        if addr > base && before.is_none_or(|(_, e)| e < addr || e <= base) {
            self.kept.remove(&addr);
            keeper = before.map_or(base, |(_, e)| e.max(base));
        }
        let whole = d.segments.range(..=addr).next_back().map(|(&a, s)| (a, a + s.size));
        if whole.is_some_and(|(_, e)| e == end) {
            self.kept.remove(&end);
        }
        let stack = self.of(keeper);
        let next_base = after(&self.bases, base).unwrap_or(u64::MAX);
        let rest =
            d.segments.range(base..next_base).any(|(&a, s)| (a, a + s.size) != (addr, end) && s.expandable);
        if !rest {
            // torch gives the reservation back.
            self.bases.remove(&base);
            self.kept.retain(|a, _| !(base..end).contains(a));
        }
        stack
    }
}
