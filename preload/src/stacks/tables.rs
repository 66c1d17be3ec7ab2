//! Who has which number: tables that every thread reads and writes without a lock, in memory reserved when the process is armed.
//!
//! Numbers of what is *said* (stacks, and the contents of code objects) are given once and never taken back. Where a
//! code object *lies* is forgotten when it dies. Full is full: what finds no place has no number, and is counted.

use super::outgoing::Outgoing;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// Places that are looked at for one number.
const WINDOW: usize = 32;
/// Live code objects that share a window: two cache lines.
const WAYS: usize = 16;
const ID_BITS: u32 = 20;

/// All tables of the process; zeroed memory is empty ones.
#[repr(C)]
pub(crate) struct Tables {
    /// Stacks by the hash that a walk makes, for threads that have not met them.
    pub(super) seen: Seen<{ 1 << 16 }>,
    /// Stacks by what they say.
    pub(super) stacks: Numbers<{ 1 << 16 }>,
    /// Code objects by what they say: source that is compiled again and again is defined once.
    pub(super) contents: Numbers<{ 1 << 15 }>,
    /// Live code objects by where they lie.
    pub(super) codes: Codes<{ 1 << 12 }>,
    /// Definitions on their way to the recording.
    pub(super) outgoing: Outgoing,
    /// Bytes of definitions so far.
    pub(super) spent: AtomicU64,
    /// The last number given to a stack.
    pub(super) last_stack: AtomicU32,
    /// The last number given to a code object or module.
    pub(super) last_code: AtomicU32,
}

static TABLES: AtomicPtr<Tables> = AtomicPtr::new(core::ptr::null_mut());

/// Reserves the tables. Called once, when the process is armed; they are never given back.
///
/// # Errors
/// What the kernel said when it refused memory.
#[cold]
pub(crate) fn reserve() -> std::io::Result<()> {
    // SAFETY: a fresh mapping that is ours for ever.
    let memory = unsafe { crate::platform::mapping::reserved(size_of::<Tables>()) }?;
    TABLES.store(memory.as_ptr().cast(), Release);
    Ok(())
}

/// The tables; `None` before [`reserve`].
#[inline(always)]
pub(super) fn tables() -> Option<&'static Tables> {
    // SAFETY: null, or zeroed page-aligned memory as large as it must be, which is never unmapped and of which only atomics
    // (and bytes that `Outgoing` hands out) are reached: zero is a value of all of them.
    unsafe { TABLES.load(Acquire).as_ref() }
}

/// Bytes of the tables that have memory behind them.
#[cold]
pub(crate) fn resident() -> u64 {
    let Some(t) = tables() else { return 0 };
    // SAFETY: the mapping that `reserve` made, as large as it made it; it is never unmapped.
    unsafe {
        crate::platform::mapping::resident(core::ptr::from_ref(t).cast_mut().cast(), size_of::<Tables>())
    }
}

/// 96 bits of what something says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Not 0.
    pub(super) hash: u64,
    /// Beside it.
    pub(super) check: u32,
}

/// Numbers by what is said; an entry that is made stays.
pub(super) struct Numbers<const N: usize>([Number; N]);

struct Number {
    /// 0: free. Set once.
    hash: AtomicU64,
    /// The number, below the check; 0 until it is given. Set once.
    value: AtomicU64,
}

/// What the table has for a key.
pub(super) enum Place<'a> {
    /// It has a number.
    Known(u32),
    /// It is kept for one.
    Free(Free<'a>),
}

/// An entry without a number yet. Others may be about to give it one, too.
pub(super) struct Free<'a>(&'a Number, Key);

impl Free<'_> {
    /// Gives the number, unless somebody was faster: the number that counts. `None`: to something else with the same hash.
    pub(super) fn settle(self, id: u32) -> Option<u32> {
        let value = u64::from(self.1.check) << 32 | u64::from(id);
        let first = match self.0.value.compare_exchange(0, value, AcqRel, Acquire) {
            Ok(_) => value,
            Err(first) => first,
        };
        (first >> 32 == u64::from(self.1.check)).then_some(first as u32)
    }
}

impl<const N: usize> Numbers<N> {
    /// The place of a key, taken for it where it has none. `None`: there is no room.
    pub(super) fn place(&self, key: Key) -> Option<Place<'_>> {
        for k in 0..WINDOW {
            let e = self.0.get((key.hash >> 24) as usize % N + k).or_else(|| self.0.get(k))?;
            let mut hash = e.hash.load(Acquire);
            if hash == 0 {
                hash = match e.hash.compare_exchange(0, key.hash, AcqRel, Acquire) {
                    Ok(_) => key.hash,
                    Err(other) => other,
                };
            }
            if hash != key.hash {
                continue;
            }
            match e.value.load(Acquire) {
                0 => return Some(Place::Free(Free(e, key))),
                v if v >> 32 == u64::from(key.check) => return Some(Place::Known(v as u32)),
                _ => {}
            }
        }
        None
    }
}

/// Numbers of live code objects: sets of words, each an address above a number.
pub(super) struct Codes<const N: usize>([[AtomicU64; WAYS]; N]);

impl<const N: usize> Codes<N> {
    fn set(&self, address: u64) -> Option<(&[AtomicU64; WAYS], u64)> {
        let fits = address.is_multiple_of(8) && address >> 47 == 0 && address != 0;
        let h = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let set = self.0.get(h as usize % N).filter(|_| fits)?;
        Some((set, (address >> 3) << ID_BITS))
    }

    /// The number of the code object at an address; 0 where it has none.
    pub(super) fn find(&self, address: u64) -> u32 {
        let Some((set, tag)) = self.set(address) else { return 0 };
        let same = set.iter().map(|w| w.load(Acquire)).find(|w| w >> ID_BITS == tag >> ID_BITS);
        same.map_or(0, |w| (w & ((1 << ID_BITS) - 1)) as u32)
    }

    /// Whether another one can be noted beside those near it.
    pub(super) fn has_room(&self, address: u64) -> bool {
        self.set(address).is_some_and(|(set, _)| set.iter().any(|w| w.load(Relaxed) == 0))
    }

    /// Notes the number of a code object that is alive during the call. `false`: there is no room.
    pub(super) fn put(&self, address: u64, id: u32) -> bool {
        let Some((set, tag)) = self.set(address).filter(|_| id >> ID_BITS == 0) else { return false };
        // Two threads may note the same one twice, in two places; both know the same number, and both places are forgotten.
        set.iter().any(|w| {
            w.load(Relaxed) == 0 && w.compare_exchange(0, tag | u64::from(id), AcqRel, Relaxed).is_ok()
        })
    }

    /// The code object at this address dies. Whether it was noted.
    pub(super) fn forget(&self, address: u64) -> bool {
        let Some((set, tag)) = self.set(address) else { return false };
        let mut known = false;
        for w in set {
            // Nobody notes it while it dies, so the word stays what it is.
            if w.load(Acquire) >> ID_BITS == tag >> ID_BITS {
                w.store(0, Release);
                known = true;
            }
        }
        known
    }
}

/// Stacks that any thread has seen, for the threads that have not. A thread's own cache is empty at its first event, and the
/// stack is then nearly always one that others have been in.
pub(super) struct Seen<const N: usize>([Sight; N]);

struct Sight {
    /// The hash, changed by the value: two halves that were not written together fit no hash.
    mixed: AtomicU64,
    /// The stack's number, below the epoch that it is good for.
    value: AtomicU64,
}

impl<const N: usize> Seen<N> {
    const PROBES: usize = 4;

    fn places(&self, hash: u64) -> impl Iterator<Item = &Sight> {
        (0..Self::PROBES).filter_map(move |k| self.0.get(((hash >> 24) as usize).wrapping_add(k) % N))
    }

    /// The number of a stack that was defined in this epoch; 0 where it is not known.
    #[inline]
    pub(super) fn find(&self, hash: u64, epoch: u32) -> u32 {
        for e in self.places(hash) {
            let value = e.value.load(Acquire);
            if value >> 32 == u64::from(epoch) && e.mixed.load(Acquire) ^ value == hash {
                return value as u32;
            }
        }
        0
    }

    /// Notes a stack.
    pub(super) fn note(&self, hash: u64, epoch: u32, id: u32) {
        let old = |e: &&Sight| {
            let value = e.value.load(Relaxed);
            value >> 32 != u64::from(epoch) || e.mixed.load(Relaxed) ^ value == hash
        };
        let Some(e) = self.places(hash).find(old).or_else(|| self.places(hash).last()) else { return };
        let value = u64::from(epoch) << 32 | u64::from(id);
        e.mixed.store(hash ^ value, Release);
        e.value.store(value, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeroed<T>() -> Box<T> {
        // SAFETY: used for tables only, which are nothing but atomics.
        unsafe { Box::<T>::new_zeroed().assume_init() }
    }

    #[test]
    fn a_stack_is_found_in_its_epoch_only() {
        let t = zeroed::<Seen<64>>();
        t.note(77, 1, 5);
        assert_eq!((t.find(77, 1), t.find(77, 2), t.find(78, 1)), (5, 0, 0));
        t.note(77, 2, 6);
        assert_eq!((t.find(77, 1), t.find(77, 2)), (0, 6));
        (0..9).for_each(|n| t.note(1 << 60 | n, 2, 100 + n as u32));
        assert_eq!(t.find(1 << 60 | 8, 2), 108, "the newest of too many in one place");
    }

    #[test]
    fn what_is_said_has_one_number_whoever_says_it() {
        const MANY: u64 = if cfg!(miri) { 40 } else { 2000 };
        let (t, next) = (zeroed::<Numbers<4096>>(), AtomicU32::new(0));
        let number = |n: u64| {
            let key = Key { hash: n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, check: n as u32 };
            match t.place(key)? {
                Place::Known(id) => Some(id),
                Place::Free(f) => f.settle(next.fetch_add(1, Relaxed) + 1),
            }
        };
        let all: Vec<Vec<Option<u32>>> = std::thread::scope(|s| {
            let workers: Vec<_> = (0..4).map(|_| s.spawn(|| (1..MANY).map(number).collect())).collect();
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        assert!(all.iter().all(|a| *a == all[0]));
        let mut ids: Vec<u32> = all[0].iter().flatten().copied().collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len() as u64, MANY - 1);
        let other = Key { hash: 0x9e37_79b9_7f4a_7c15, check: 9 };
        let Some(Place::Free(f)) = t.place(other) else { panic!("the check tells them apart") };
        assert_eq!(f.settle(5000), Some(5000));
        let full = (MANY..9000).filter(|&n| !cfg!(miri) && number(n).is_none()).count();
        assert!(full > 2000 || cfg!(miri), "{full}");
    }

    #[test]
    fn a_code_object_is_forgotten_wherever_it_was_noted() {
        let t = zeroed::<Codes<1>>();
        assert!(t.put(0x7f00_0000_1230, 7) && t.put(0x7f00_0000_1230, 7) && t.put(0x7f00_0000_1240, 8));
        assert_eq!((t.find(0x7f00_0000_1230), t.find(0x7f00_0000_1240), t.find(0x7f00_0000_1250)), (7, 8, 0));
        assert!(t.forget(0x7f00_0000_1230) && !t.forget(0x7f00_0000_1230));
        assert_eq!((t.find(0x7f00_0000_1230), t.find(0x7f00_0000_1240)), (0, 8));
        assert!((1..16).all(|n| t.put(n * 16, n as u32)) && !t.has_room(4096) && !t.put(4096, 1));
        assert!(!t.put(1 << 50, 1) && t.find(1 << 50) == 0 && !t.put(12, 1) && !t.put(0, 1));
    }
}
