//! The definitions ring: what stacks, code and texts mean, committed before the first record that names them.

use super::region::Region;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

impl Region {
    /// Commits one message (see `format::definition`), whole or not at all. Call it before publishing a record that refers
    /// to it. `false`: no room, or another thread is in here; counted, and worth another try later.
    ///
    /// Cold path: copies the bytes, no system call, no heap, no waiting. Callers that share an interner hold its lock.
    pub fn define(&self, message: &[u8]) -> bool {
        let written = self.try_define(message);
        if !written {
            self.head().lost_definitions.fetch_add(1, Relaxed);
        }
        written
    }

    /// As [`Region::define`], for whoever keeps the message and tries again: nothing is counted.
    pub fn try_define(&self, message: &[u8]) -> bool {
        let head = self.head();
        if head.def_busy.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            return false;
        }
        let written = self.append(message);
        head.def_busy.store(0, Release);
        written
    }

    /// Bytes that a definition may have at present.
    pub fn definition_room(&self) -> u64 {
        let head = self.head();
        let used = head.def_head.load(Relaxed).wrapping_sub(head.def_tail.load(Acquire));
        u64::from(self.geometry().definitions).saturating_sub(used)
    }

    /// Only under the busy flag.
    fn append(&self, message: &[u8]) -> bool {
        if message.is_empty() || message.len() as u64 > self.definition_room() {
            return false;
        }
        let head = self.head().def_head.load(Relaxed);
        let capacity = self.geometry().definitions as usize;
        let at = head as usize & (capacity - 1);
        let (first, second) = message.split_at(message.len().min(capacity - at));
        let bytes = self.definition_bytes().as_ptr();
        // SAFETY: `at` < capacity and `first` reaches at most the ring's end; `second` is what is left of a message no longer
        // than the ring. Both ranges lie in `tail+capacity` beyond `head`, which is the producer's (fact 3, for bytes), and
        // the busy flag makes this call the only producer. The message is not in the region: it is a live reference, and no
        // reference to unpublished bytes of the ring exists.
        unsafe {
            bytes.add(at).copy_from_nonoverlapping(first.as_ptr(), first.len());
            bytes.copy_from_nonoverlapping(second.as_ptr(), second.len());
        }
        self.head().def_head.store(head.wrapping_add(message.len() as u64), Release);
        true
    }
}
