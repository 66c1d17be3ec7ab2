//! Memory of captured graphs. A replay writes where the capture did, so what a capture took stays the graph's: it is
//! handed out again only within the same pool and on the same stream, and goes back to the driver when no graph uses the pool.

use super::types::Handle;
use std::collections::HashMap;

type Id = [u64; 2];

/// A block of a pool.
struct Block {
    size: u64,
    stream: Handle,
    free: bool,
    /// Another stream has used it: within a graph nobody can tell when that is over.
    shared: bool,
}

#[derive(Default)]
struct Pool {
    /// Captures that have begun to allocate to it, less those whose graph is gone.
    users: u32,
    blocks: HashMap<u64, Block>,
}

/// A pool that is allocated to.
struct Active {
    id: Id,
    /// The thread that said so.
    thread: u32,
    /// No capture is under way: that thread has allocated on a stream that is not captured. A region (`use_mem_pool`) may last
    /// as long as the job, and nothing may wait for its end.
    plain: bool,
    /// A captured stream that has allocated to it. While that is captured, other streams of the thread say nothing.
    captured: Option<Handle>,
}

/// All pools of a device.
#[derive(Default)]
pub(super) struct Graphs {
    active: Vec<Active>,
    pools: HashMap<Id, Pool>,
    /// Which pool a block is of.
    of: HashMap<u64, Id>,
    deferred: Vec<Freed>,
}

/// A block that was freed while a capture was under way, and is of no graph, or of one that is gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Freed {
    pub(super) addr: u64,
    /// The stream it was allocated on.
    pub(super) stream: Handle,
    /// Streams that used it besides.
    pub(super) users: Vec<Handle>,
    /// A graph's replays may still use it, on whatever stream.
    pub(super) replayed: bool,
}

impl Graphs {
    /// The pool that captured streams allocate to now: what this thread began last, else what any did.
    pub(super) fn active(&self, thread: u32) -> Option<Id> {
        let mine = self.active.iter().rfind(|a| a.thread == thread);
        mine.or(self.active.last()).map(|a| a.id)
    }

    /// Whether any pool is allocated to.
    pub(super) fn is_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether a capture may be under way.
    pub(super) fn capturing(&self) -> bool {
        self.active.iter().any(|a| !a.plain)
    }

    /// A thread has allocated on a stream that is not captured. That may be a side stream which a capture has not reached:
    /// what was seen to be captured is plain only where it no longer is.
    pub(super) fn is_plain(&mut self, thread: u32, is_captured: impl Fn(Handle) -> bool) {
        for a in self.active.iter_mut().filter(|a| a.thread == thread && !a.plain) {
            a.captured = a.captured.filter(|s| is_captured(*s));
            a.plain = a.captured.is_none();
        }
    }

    /// A captured stream has allocated to this pool: a capture is under way, whatever it looked like before.
    pub(super) fn is_captured(&mut self, id: Id, stream: Handle) {
        if let Some(a) = self.active.iter_mut().rfind(|a| a.id == id) {
            a.captured = Some(stream);
            a.plain = false;
        }
    }

    /// It begins, on this thread.
    pub(super) fn begin(&mut self, id: Id, thread: u32) {
        self.active.push(Active { id, thread, plain: false, captured: None });
        self.pools.entry(id).or_default().users += 1;
    }

    /// It ends.
    pub(super) fn end(&mut self, id: Id) {
        if let Some(at) = self.active.iter().rposition(|a| a.id == id) {
            self.active.remove(at);
        }
    }

    /// What was freed while a capture was under way, to be freed now that none is.
    pub(super) fn take_deferred(&mut self) -> Vec<Freed> {
        std::mem::take(&mut self.deferred)
    }

    /// A graph of this pool is gone. What can be freed: where it was the last, all that nobody holds.
    pub(super) fn release(&mut self, id: Id) -> Vec<u64> {
        let Some(pool) = self.pools.get_mut(&id) else { return Vec::new() };
        pool.users = pool.users.saturating_sub(1);
        if pool.users > 0 {
            return Vec::new();
        }
        let free: Vec<u64> = pool.blocks.iter().filter(|(_, b)| b.free).map(|(addr, _)| *addr).collect();
        for addr in &free {
            pool.blocks.remove(addr);
            self.of.remove(addr);
        }
        if pool.blocks.is_empty() {
            self.pools.remove(&id);
        }
        free
    }

    /// The pool that a block is of.
    pub(super) fn pool_of(&self, addr: u64) -> Option<Id> {
        if self.of.is_empty() { None } else { self.of.get(&addr).copied() }
    }

    /// Takes the smallest free block that holds `size` bytes and was used on this stream alone.
    pub(super) fn take(&mut self, id: Id, size: u64, stream: Handle) -> Option<u64> {
        let blocks = &mut self.pools.get_mut(&id)?.blocks;
        let fits = |b: &Block| b.free && !b.shared && b.stream == stream && b.size >= size;
        let best = blocks.iter().filter(|(_, b)| fits(b)).min_by_key(|(addr, b)| (b.size, **addr));
        let addr = *best?.0;
        blocks.get_mut(&addr)?.free = false;
        Some(addr)
    }

    /// Adds a block that is in use.
    pub(super) fn put(&mut self, id: Id, addr: u64, size: u64, stream: Handle) {
        let block = Block { size, stream, free: false, shared: false };
        self.pools.entry(id).or_default().blocks.insert(addr, block);
        self.of.insert(addr, id);
    }

    /// A block is no longer held. True where it is to be freed: its pool has no graph any more.
    pub(super) fn give_back(&mut self, addr: u64, shared: bool) -> bool {
        let Some(id) = self.of.get(&addr).copied() else { return false };
        let Some(pool) = self.pools.get_mut(&id) else { return false };
        if pool.users > 0 {
            if let Some(block) = pool.blocks.get_mut(&addr) {
                block.free = true;
                block.shared |= shared;
            }
            return false;
        }
        pool.blocks.remove(&addr);
        self.of.remove(&addr);
        if pool.blocks.is_empty() {
            self.pools.remove(&id);
        }
        true
    }

    /// To be freed when no capture is under way any more.
    pub(super) fn defer(&mut self, freed: Freed) {
        self.deferred.push(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = [1, 0];

    fn stream(n: usize) -> Handle {
        Handle(std::ptr::without_provenance_mut(n))
    }

    #[test]
    fn a_graph_keeps_its_memory_until_it_is_gone() {
        let mut g = Graphs::default();
        g.begin(ID, 7);
        g.is_plain(8, |_| false);
        assert!(g.capturing());
        g.put(ID, 0x1000, 1024, stream(1));
        g.put(ID, 0x2000, 4096, stream(1));
        assert!(!g.give_back(0x1000, false));
        assert_eq!(g.take(ID, 512, stream(2)), None, "another stream");
        assert_eq!(g.take(ID, 512, stream(1)), Some(0x1000));
        assert!(!g.give_back(0x1000, true));
        assert_eq!(g.take(ID, 512, stream(1)), None, "used on another stream");
        let freed = || Freed { addr: 0x9000, stream: stream(1), users: vec![stream(2)], replayed: false };
        g.defer(freed());
        g.end(ID);
        assert_eq!(g.take_deferred(), [freed()]);
        assert_eq!((g.active(7), g.pool_of(0x2000)), (None, Some(ID)));
        assert_eq!(g.release(ID), [0x1000]);
        assert!(g.give_back(0x2000, false), "the last block of a pool that nobody uses");
        assert_eq!(g.pool_of(0x2000), None);
    }

    #[test]
    fn two_graphs_share_a_pool() {
        let mut g = Graphs::default();
        for _ in 0..2 {
            g.begin(ID, 7);
            g.is_plain(7, |_| false);
            assert!(!g.capturing());
            g.end(ID);
        }
        g.put(ID, 0x1000, 512, stream(1));
        g.give_back(0x1000, false);
        assert!(g.release(ID).is_empty());
        assert_eq!(g.release(ID), [0x1000]);
    }

    #[test]
    fn a_side_stream_does_not_make_a_capture_plain() {
        let mut g = Graphs::default();
        g.begin(ID, 7);
        g.is_captured(ID, stream(1));
        g.is_plain(7, |s| s == stream(1));
        assert!(g.capturing(), "the captured stream still is");
        g.is_plain(7, |_| false);
        assert!(!g.capturing(), "a capture within a region that goes on");
        g.is_captured(ID, stream(1));
        assert!(g.capturing(), "a side stream came first");
        g.begin([2, 0], 8);
        assert_eq!([g.active(7), g.active(8), g.active(9)], [Some(ID), Some([2, 0]), Some([2, 0])]);
    }
}
