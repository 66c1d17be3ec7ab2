//! What is in use on a device: its segments, the blocks in them, and what is free between those.

use crate::event::{self, Nanos, PoolId, StackId, StreamHandle};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What block sizes are multiples of.
const GRAIN: u64 = 512;

/// A segment, or a contiguous mapped range of an expandable one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) size: u64,
    pub(super) stream: StreamHandle,
    pub(super) pool: PoolId,
    pub(super) expandable: bool,
    /// It serves small requests, where an allocation told.
    pub(super) small: Option<bool>,
    /// Never reported: blocks were handed out there.
    pub(super) made_up: bool,
}

/// The first address of a table after one of them.
pub(super) fn after<T>(table: &BTreeMap<u64, T>, addr: u64) -> Option<u64> {
    table.range((Bound::Excluded(addr), Bound::Unbounded)).next().map(|(&a, _)| a)
}

/// So much of a size as there are addresses for: a recording may come from anywhere, and what is kept here has an end.
pub(super) fn in_reach(addr: u64, size: u64) -> u64 {
    size.min(u64::MAX - addr)
}

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    /// Rounded; where that was not reported, the request rounded up.
    pub(super) size: u64,
    pub(super) requested: u64,
    pub(super) stream: StreamHandle,
    pub(super) pool: PoolId,
    pub(super) stack: StackId,
    pub(super) born: Nanos,
    pub(super) pending: bool,
    /// Left out of the snapshot: the filter says so.
    pub(super) hidden: bool,
}

impl Block {
    pub(super) fn new(b: &event::Block, born: Nanos) -> Block {
        let requested = b.size.0;
        let up = requested.max(1).checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX);
        // torch can hand a whole larger block out, so what it reported counts; below the request it cannot be.
        let size = if b.rounded.0 >= requested && b.rounded.0 > 0 { b.rounded.0 } else { up };
        Block {
            size: in_reach(b.addr.0, size),
            requested,
            stream: b.stream,
            pool: b.pool,
            stack: b.stack,
            born,
            pending: false,
            hidden: false,
        }
    }
}

/// Segments and blocks of a device, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) blocks: BTreeMap<u64, Block>,
}

impl Layout {
    /// Where the free memory begins that ends at `addr`, within the segment that reaches at least there.
    pub(super) fn free_before(&self, addr: u64) -> Option<u64> {
        let (&a, s) = self.segments.range(..addr).next_back()?;
        if a.saturating_add(s.size) < addr {
            return None;
        }
        let used = self.blocks.range(a..addr).next_back().map_or(a, |(&b, x)| b.saturating_add(x.size));
        (used < addr).then_some(used)
    }

    /// Whether free memory begins at `addr`, in a segment that has it.
    pub(super) fn free_from(&self, addr: u64) -> bool {
        let inside =
            self.segments.range(..=addr).next_back().is_some_and(|(&a, s)| addr < a.saturating_add(s.size));
        inside && !self.blocks.contains_key(&addr)
    }

    /// Whether there is free memory of the same segment before and after a block that was just freed.
    pub(super) fn free_around(&self, addr: u64, end: u64) -> (bool, bool) {
        let Some((&a, s)) = self.segments.range(..=addr).next_back() else { return (false, false) };
        let last = a.saturating_add(s.size);
        let before = addr > a && self.free_before(addr).is_some();
        (before, end < last && !self.blocks.contains_key(&end))
    }

    /// Where what is free from `addr` on ends.
    pub(super) fn free_until(&self, addr: u64) -> u64 {
        let segment =
            self.segments.range(..=addr).next_back().map_or(addr, |(&a, s)| a.saturating_add(s.size));
        after(&self.blocks, addr).map_or(segment, |b| b.min(segment))
    }
}
