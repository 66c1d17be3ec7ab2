//! Private pools of a device: those of captured graphs, and `torch.cuda.MemPool`s. Only what is allocated in a pool can use its memory.

use crate::event::{Bytes, OpenSegment, PoolId, SiteId};
use rustc_hash::FxHashMap;

/// A private pool that has memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivatePool {
    /// PyTorch's name for it.
    pub id: PoolId,
    /// The step in which its first segment came; `None`: not known, as of what was there before what is replayed.
    pub first_step: Option<u32>,
    /// Bytes of its segments.
    pub bytes: Bytes,
    /// The largest block that was ever allocated in it, and the line.
    pub largest: (Bytes, SiteId),
}

/// Those that have memory now.
#[derive(Clone, Debug, Default)]
pub(super) struct PrivatePools {
    all: FxHashMap<PoolId, PrivatePool>,
    /// As they were when the last step ended.
    at_mark: Vec<PrivatePool>,
    /// Something has changed since.
    changed: bool,
    /// Records were lost: one that seems new may have been there.
    lost: bool,
}

impl PrivatePools {
    /// A segment comes from the driver, in `step`.
    pub(super) fn grows(&mut self, s: &OpenSegment, step: u32) {
        self.takes(s, (!self.lost).then_some(step));
    }

    /// A segment was there before what is replayed.
    pub(super) fn was_there(&mut self, s: &OpenSegment) {
        self.takes(s, None);
    }

    fn takes(&mut self, s: &OpenSegment, first_step: Option<u32>) {
        if s.pool.is_private() {
            let new = PrivatePool { id: s.pool, first_step, ..PrivatePool::default() };
            let pool = self.all.entry(s.pool).or_insert(new);
            pool.bytes.0 = pool.bytes.0.saturating_add(s.size.0);
            self.changed = true;
        }
    }

    /// Records were lost: which pools are still there is not known.
    pub(super) fn lost(&mut self) {
        *self = PrivatePools { lost: true, ..PrivatePools::default() };
    }

    /// A segment goes back to the driver.
    pub(super) fn shrinks(&mut self, s: &OpenSegment) {
        let Some(pool) = self.all.get_mut(&s.pool) else { return };
        self.changed = true;
        pool.bytes.0 = pool.bytes.0.saturating_sub(s.size.0);
        if pool.bytes.0 == 0 {
            self.all.remove(&s.pool);
        }
    }

    /// A line allocates in a pool.
    #[cold]
    pub(super) fn allocates(&mut self, pool: PoolId, rounded: u64, site: SiteId) {
        if let Some(pool) = self.all.get_mut(&pool).filter(|p| rounded > p.largest.0.0) {
            pool.largest = (Bytes(rounded), site);
            self.changed = true;
        }
    }

    /// Steps from `step` on were parts of one.
    pub(super) fn merge_steps_from(&mut self, step: u32) {
        for first in self.all.values_mut().filter_map(|p| p.first_step.as_mut()) {
            *first = step.min(*first);
        }
        self.changed = true;
    }

    /// A step ends.
    pub(super) fn end_step(&mut self) {
        if std::mem::take(&mut self.changed) {
            self.at_mark.clear();
            self.at_mark.extend(self.all.values());
        }
    }

    /// Those that had memory when the last step ended, in no order.
    pub(super) fn at_mark(&self) -> &[PrivatePool] {
        &self.at_mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_there_as_long_as_it_has_memory() {
        let mut pools = PrivatePools::default();
        let segment = |n, size| OpenSegment { pool: PoolId(n, 0), size: Bytes(size), ..Default::default() };
        let at_mark = |pools: &mut PrivatePools| {
            pools.end_step();
            pools.at_mark().to_vec()
        };
        pools.grows(&segment(0, 8), 1);
        pools.allocates(PoolId(3, 0), 9, SiteId(1));
        assert_eq!(at_mark(&mut pools), [], "the default pool is none, nor one without memory");
        pools.grows(&segment(3, 8), 5);
        pools.grows(&segment(3, 4), 6);
        pools.allocates(PoolId(3, 0), 6, SiteId(7));
        pools.allocates(PoolId(3, 0), 2, SiteId(8));
        let largest = (Bytes(6), SiteId(7));
        let now =
            |first| PrivatePool { id: PoolId(3, 0), first_step: Some(first), bytes: Bytes(12), largest };
        assert_eq!(at_mark(&mut pools), [now(5)]);
        pools.merge_steps_from(4);
        assert_eq!(at_mark(&mut pools), [now(4)]);
        pools.shrinks(&segment(3, 8));
        pools.shrinks(&segment(3, 4));
        assert_eq!(pools.at_mark(), [now(4)], "the step has not ended");
        assert_eq!(at_mark(&mut pools), []);
        pools.grows(&segment(4, 1), 6);
        pools.lost();
        pools.grows(&segment(5, 1), 7);
        let steps: Vec<_> = at_mark(&mut pools).iter().map(|p| p.first_step).collect();
        assert_eq!(steps, [None], "it may have been there");
    }
}
