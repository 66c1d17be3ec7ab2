//! Where the C library keeps a thread's value of a `pthread` key: for a process's first 32 keys, in the thread's own descriptor.
//!
//! Python keeps a thread's state under such a key. To ask for it is three calls, through code that an allocation finds in no
//! cache any more; to load it is one word. Where it lies is not known but found: two keys of our own are given values, and the
//! descriptor is looked through for them.

use crate::platform::say::Blocked;
use crate::platform::tls;
use std::ffi::c_void;

/// Keys whose values are in the descriptor.
const KEYS: u32 = 32;
/// Bytes of a value and its generation, in glibc.
const STRIDE: usize = 16;

/// Where, behind the thread pointer, each thread has what `ask` returns on it, which is the calling thread's value of some key.
/// `None`: it is not, or of no such key, or the C library keeps them elsewhere.
///
/// Others may keep the same value under keys of theirs (pybind11 does): the key is the one at whose change the answer changes, for an
/// instant in which this thread does nothing else.
#[cold]
pub(super) fn find(ask: impl Fn() -> u64) -> Option<usize> {
    const OTHER: u64 = 0x5354_7261_6e64_4c30;
    let (first, value) = (first_value()?, ask());
    let _signals = Blocked::all();
    let is_it = |key: &u32| {
        // SAFETY: a key that does not exist has no value; one that has this thread's gets it back.
        unsafe {
            if libc::pthread_getspecific(*key) as u64 != value
                || libc::pthread_setspecific(*key, OTHER as *const c_void) != 0
            {
                return false;
            }
            let follows = ask() == OTHER;
            libc::pthread_setspecific(*key, value as *const c_void);
            follows
        }
    };
    let key = (0..KEYS).filter(|_| value != 0).find(is_it)?;
    let at = first + STRIDE * key as usize;
    (tls::word_of_descriptor(at) == value).then_some(at)
}

/// Where the first key's value lies.
fn first_value() -> Option<usize> {
    let [one, other] = [Key::new(0x5354_7261_6e64_4c31)?, Key::new(0x5354_7261_6e64_4c32)?];
    let first = one.first_value()?;
    (other.first_value()? == first).then_some(first)
}

/// A key of ours, with a value that nothing else has.
struct Key(libc::pthread_key_t, u64);

impl Key {
    fn new(value: u64) -> Option<Key> {
        let mut key = 0;
        // SAFETY: makes a key without a destructor, which is ours alone until `drop`.
        let made = unsafe {
            libc::pthread_key_create(&mut key, None) == 0
                && libc::pthread_setspecific(key, value as *const c_void) == 0
        };
        made.then_some(Key(key, value))
    }

    /// Where the first key's value must lie, as this one's does where it does.
    fn first_value(&self) -> Option<usize> {
        let mut found = tls::words_of_descriptor().filter(|at| tls::word_of_descriptor(*at) == self.1);
        let at = found.next().filter(|_| self.0 < KEYS)?;
        if found.next().is_some() { None } else { at.checked_sub(STRIDE * self.0 as usize) }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key exists, and nobody else knows it.
        unsafe {
            libc::pthread_setspecific(self.0, core::ptr::null());
            libc::pthread_key_delete(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_value_is_found_where_every_thread_has_its_own() {
        let mut key = 0;
        // SAFETY: makes a key.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, None) }, 0);
        assert!(key < KEYS, "one of the first");
        let set = |value: u64| {
            // SAFETY: the key of this test's own.
            assert_eq!(unsafe { libc::pthread_setspecific(key, value as *const c_void) }, 0)
        };
        set(0x1234_5670);
        // Somebody else has the same under a key of theirs.
        let like = Key::new(0x1234_5670).expect("a key");
        // SAFETY: the key exists.
        let ask = || unsafe { libc::pthread_getspecific(key) } as u64;
        let at = find(ask).expect("glibc keeps it in the descriptor");
        assert_eq!((find(|| 0x1234_5670), find(|| 0)), (None, None), "no key's value");
        assert_eq!((ask(), tls::word_of_descriptor(at)), (0x1234_5670, 0x1234_5670), "what it was");
        drop(like);
        std::thread::scope(|s| {
            s.spawn(|| {
                assert_eq!(tls::word_of_descriptor(at), 0, "not set on this thread");
                set(0x777);
                assert_eq!(tls::word_of_descriptor(at), 0x777);
            });
        });
        assert_eq!(tls::word_of_descriptor(at), 0x1234_5670);
        set(0);
        assert_eq!(tls::word_of_descriptor(at), 0);
    }
}
