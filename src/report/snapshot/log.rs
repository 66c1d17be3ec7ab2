//! Where the entries of a history are collected before they are written.

use super::entry::Entry;
use super::filter::Filter;
use super::layout::{Block, Segment};
use super::words::Word;
use crate::event::{Addr, Bytes, DeviceId, Nanos, Phase, StackId, StreamHandle};

/// Where entries go.
pub(super) struct Log<'a> {
    pub(super) out: &'a mut Vec<Entry>,
    pub(super) device: DeviceId,
    pub(super) time: Nanos,
    pub(super) filter: &'a Filter,
}

impl Log<'_> {
    pub(super) fn add(&mut self, action: Word, addr: u64, size: u64, stream: StreamHandle) -> &mut Entry {
        let at = self.out.len();
        self.out.push(Entry {
            action,
            device: self.device,
            addr: Addr(addr),
            size: Bytes(size),
            stream,
            time: self.time,
            ..Entry::default()
        });
        &mut self.out[at]
    }

    /// An entry about a block, unless the filter hides it. Where the event has no stack of its own it tells the allocation's, as
    /// torch does.
    pub(super) fn block(&mut self, action: Word, addr: u64, b: &Block, phase: Option<Phase>) {
        if !b.hidden {
            let e = self.add(action, addr, b.requested, b.stream);
            (e.pool, e.phase, e.stack) = (b.pool, phase, b.stack);
        }
    }

    /// The same for an event that was lost, and that later events imply.
    pub(super) fn block_made_up(&mut self, action: Word, addr: u64, b: &Block) {
        if !b.hidden {
            self.block(action, addr, b, None);
            self.out.last_mut().into_iter().for_each(|e| e.repaired = true);
        }
    }

    pub(super) fn segment(&mut self, action: Word, addr: u64, s: &Segment, stack: StackId, repaired: bool) {
        let e = self.add(action, addr, s.size, s.stream);
        (e.pool, e.stack, e.repaired) = (s.pool, stack, repaired);
    }
}
