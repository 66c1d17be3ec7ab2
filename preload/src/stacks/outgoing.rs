//! Definitions on their way to the recording: written in memory that all threads share, handed on in order, by whoever is
//! there; nobody waits for anybody.
//!
//! A message is put on a list first. Then whoever finds the list unattended carries it over into the definitions ring, and
//! looks again when it is done: a message that came in the meantime is carried by the one who was there already. So a
//! message is in the ring when its thread goes on, but for one that found another thread at work: that one's is there as soon as
//! the other has gone on. A job that is killed in between has a stack number without a meaning.

use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};

/// Bytes that can be on their way.
const ROOM: usize = 1 << 20;
const HEAD: usize = size_of::<Message>();
const ALIGN: usize = 16;

/// A message begins with this.
#[repr(C, align(16))]
struct Message {
    next: AtomicPtr<Message>,
    /// Bytes of it, and how many bytes behind this head they begin.
    len: u32,
    from: u32,
}

/// What is on its way; zeroed memory is nothing.
#[repr(C)]
pub(super) struct Outgoing {
    /// Messages in the memory, above the bytes that are handed out. Where there are none, all of it is free.
    used: AtomicU64,
    /// The list, newest first.
    list: AtomicPtr<Message>,
    /// Somebody carries.
    carried: AtomicBool,
    /// What was taken from the list and found no room in the ring, oldest first. Of the one who carries.
    rest: AtomicPtr<Message>,
    memory: UnsafeCell<Memory>,
}

#[repr(align(16))]
struct Memory(#[expect(dead_code, reason = "reached by address only")] [u8; ROOM]);

// SAFETY: `memory` is handed out in pieces that do not overlap, each to one caller, who hands it on through the list.
unsafe impl Sync for Outgoing {}

/// A piece of the memory, for one message.
pub(super) struct Piece<'a> {
    of: &'a Outgoing,
    at: NonNull<Message>,
    len: usize,
}

impl Outgoing {
    /// Memory for a message of at most so many bytes. `None`: there is none just now.
    pub(super) fn piece(&self, len: usize) -> Option<Piece<'_>> {
        let bytes = len.checked_add(HEAD)?.checked_next_multiple_of(ALIGN).filter(|&n| n <= ROOM)?;
        let mut used = self.used.load(Relaxed);
        loop {
            let (count, from) = (used >> 32, (used as u32) as usize);
            if from + bytes > ROOM {
                return None;
            }
            let new = (count + 1) << 32 | (from + bytes) as u64;
            match self.used.compare_exchange_weak(used, new, AcqRel, Relaxed) {
                Ok(_) => {
                    // SAFETY: `from + bytes` <= ROOM; `from` is a multiple of 16, as the memory's own address.
                    let at = unsafe { NonNull::new_unchecked(self.memory.get().cast::<u8>().add(from)) }
                        .cast::<Message>();
                    // SAFETY: the exchange made these bytes this call's own: pieces in use lie below `from`.
                    unsafe { at.write(Message { next: AtomicPtr::new(null_mut()), len: 0, from: 0 }) };
                    return Some(Piece { of: self, at, len: bytes - HEAD });
                }
                Err(now) => used = now,
            }
        }
    }

    /// One piece is not used any more.
    fn free(&self) {
        let mut used = self.used.load(Relaxed);
        loop {
            let count = (used >> 32).saturating_sub(1);
            let new = if count == 0 { 0 } else { count << 32 | (used & 0xffff_ffff) };
            match self.used.compare_exchange_weak(used, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => used = now,
            }
        }
    }

    /// Carries what is on the list to `ring`, which says whether it has taken a message; unless somebody is at it.
    pub(super) fn carry(&self, ring: impl Fn(&[u8]) -> bool) {
        loop {
            if self.list.load(SeqCst).is_null() && self.rest.load(SeqCst).is_null() {
                return;
            }
            if self.carried.swap(true, SeqCst) {
                return; // they look again when they are done, and see what we have put on the list
            }
            let all = self.carry_list(&ring);
            self.carried.store(false, SeqCst);
            if !all {
                return;
            }
        }
    }

    /// By the one who carries. Whether there was room for all.
    fn carry_list(&self, ring: &impl Fn(&[u8]) -> bool) -> bool {
        // What came while the last ones waited is newer than they are.
        let mut newest = self.list.swap(null_mut(), SeqCst);
        let mut oldest: *mut Message = null_mut();
        // SAFETY: all of these were put on the list by `send` and are nobody's but the carrier's since they were taken from it.
        unsafe {
            while let Some(m) = newest.as_ref() {
                let next = m.next.swap(oldest, Relaxed);
                oldest = core::mem::replace(&mut newest, next);
            }
            let mut first = self.rest.swap(null_mut(), SeqCst);
            if first.is_null() {
                first = oldest;
            } else {
                let mut last = first;
                while let Some(next) = NonNull::new((*last).next.load(Relaxed)) {
                    last = next.as_ptr();
                }
                (*last).next.store(oldest, Relaxed);
            }
            while let Some(m) = first.as_ref() {
                let bytes = first.cast::<u8>().add(HEAD + m.from as usize);
                // Written by its thread before `send` put it on the list.
                if !ring(core::slice::from_raw_parts(bytes, m.len as usize)) {
                    self.rest.store(first, SeqCst);
                    return false;
                }
                first = m.next.load(Relaxed);
                self.free();
            }
        }
        true
    }
}

impl Piece<'_> {
    /// Its bytes.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the piece is this value's own: a head, and so many bytes behind it, which were zeroed or written before.
        unsafe { core::slice::from_raw_parts_mut(self.at.as_ptr().cast::<u8>().add(HEAD), self.len) }
    }

    /// Puts what lies in `len` of its bytes, `from` on, on the list.
    pub(super) fn send(self, from: usize, len: usize) {
        let (of, at) = (self.of, self.at.as_ptr());
        let fits = from.checked_add(len).is_some_and(|end| end <= self.len);
        core::mem::forget(self);
        // SAFETY: the head of a piece that is still this call's own.
        unsafe {
            (*at).len = if fits { len as u32 } else { 0 };
            (*at).from = if fits { from as u32 } else { 0 };
            let mut newest = of.list.load(Relaxed);
            loop {
                (*at).next.store(newest, Relaxed);
                match of.list.compare_exchange_weak(newest, at, SeqCst, Relaxed) {
                    Ok(_) => return,
                    Err(now) => newest = now,
                }
            }
        }
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.of.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn outgoing() -> Box<Outgoing> {
        // SAFETY: atomics and bytes, for which zero is a value.
        unsafe { Box::<Outgoing>::new_zeroed().assume_init() }
    }

    fn send(o: &Outgoing, bytes: &[u8]) -> bool {
        let Some(mut p) = o.piece(bytes.len() + 8) else { return false };
        p.bytes()[8..8 + bytes.len()].copy_from_slice(bytes);
        p.send(8, bytes.len());
        true
    }

    #[test]
    fn messages_arrive_once_in_the_order_of_their_thread_and_the_memory_is_free_again() {
        let (o, ring) = (outgoing(), Mutex::new(Vec::new()));
        const EACH: u32 = if cfg!(miri) { 20 } else { 3000 };
        std::thread::scope(|s| {
            for thread in 0..4u32 {
                let (o, ring) = (&o, &ring);
                s.spawn(move || {
                    for n in 0..EACH {
                        let mut bytes = [thread.to_le_bytes(), n.to_le_bytes()].concat();
                        bytes.resize(8 + n as usize % 300, 7);
                        while !send(o, &bytes) {
                            std::thread::yield_now();
                        }
                        // Full now and then: what finds no room stays.
                        o.carry(|b| {
                            let Ok(mut r) = ring.try_lock() else { return false };
                            r.push(b.to_vec());
                            true
                        });
                    }
                });
            }
        });
        o.carry(|b| {
            ring.lock().unwrap().push(b.to_vec());
            true
        });
        let ring = ring.into_inner().unwrap();
        assert_eq!(ring.len(), 4 * EACH as usize);
        let mut next = [0u32; 4];
        for b in &ring {
            let word = |i: usize| u32::from_le_bytes(b[i..i + 4].try_into().unwrap());
            assert_eq!(word(4), next[word(0) as usize]);
            assert_eq!(b.len(), 8 + word(4) as usize % 300);
            next[word(0) as usize] += 1;
        }
        assert_eq!(o.used.load(Relaxed), 0);
    }

    #[test]
    fn what_finds_no_room_waits_in_order_and_what_is_not_sent_is_freed() {
        let (o, took) = (outgoing(), Mutex::new(Vec::new()));
        drop(o.piece(100));
        assert!(send(&o, b"1") && send(&o, b"2"));
        o.carry(|_| false);
        assert!(send(&o, b"3"));
        o.carry(|b| {
            let mut t = took.lock().unwrap();
            t.push(b.to_vec());
            t.len() < 3 || b != b"3"
        });
        assert_eq!(took.lock().unwrap().concat(), b"123");
        o.carry(|b| b == b"3");
        assert_eq!(o.used.load(Relaxed), 0);
        assert!(o.piece(ROOM).is_none() && o.piece(usize::MAX).is_none());
        assert!(o.piece(ROOM - HEAD).is_some_and(|_| o.piece(1).is_none()));
    }
}
