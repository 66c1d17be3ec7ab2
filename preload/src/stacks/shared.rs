//! Stacks that any thread has seen, for the threads that have not: read without a lock, written under the registry's.
//!
//! A thread's own cache is empty at its first event, and the stack is then nearly always one that others have been in.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// 1 MiB of zeroes, of which only what is used becomes memory.
const ENTRIES: usize = 1 << 16;
const PROBES: usize = 4;

struct Entry {
    /// 0 where there is none.
    hash: AtomicU64,
    /// The stack's number, below the epoch that it is good for; 0 while the entry is being written.
    value: AtomicU64,
}
static TABLE: [Entry; ENTRIES] =
    [const { Entry { hash: AtomicU64::new(0), value: AtomicU64::new(0) } }; ENTRIES];

fn places(hash: u64) -> impl Iterator<Item = &'static Entry> {
    (0..PROBES).filter_map(move |k| TABLE.get(((hash >> 24) as usize).wrapping_add(k) & (ENTRIES - 1)))
}

/// The number of a stack that was defined in this epoch; 0 where it is not known.
#[inline]
pub(super) fn find(hash: u64, epoch: u32) -> u32 {
    for e in places(hash) {
        if e.hash.load(Acquire) != hash {
            continue;
        }
        let value = e.value.load(Acquire);
        // The same hash before and after: the number is this stack's.
        if value >> 32 == u64::from(epoch) && e.hash.load(Acquire) == hash {
            return value as u32;
        }
    }
    0
}

/// Notes a stack. One caller at a time: the registry's lock is held.
pub(super) fn note(hash: u64, epoch: u32, id: u32) {
    let old = |e: &&Entry| e.hash.load(Relaxed) == hash || e.value.load(Relaxed) >> 32 != u64::from(epoch);
    let Some(e) = places(hash).find(old).or_else(|| places(hash).last()) else { return };
    e.value.store(0, SeqCst);
    e.hash.store(hash, SeqCst);
    e.value.store(u64::from(epoch) << 32 | u64::from(id), SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_found_in_its_epoch_only() {
        note(77, 1, 5);
        assert_eq!((find(77, 1), find(77, 2), find(78, 1)), (5, 0, 0));
        note(77, 2, 6);
        assert_eq!((find(77, 1), find(77, 2)), (0, 6));
        (0..9).for_each(|n| note(1 << 60 | n, 2, 100 + n as u32));
        assert_eq!(find(1 << 60 | 8, 2), 108, "the newest of too many in one place");
    }
}
