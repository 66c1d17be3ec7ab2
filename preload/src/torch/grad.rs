//! Whether gradients are recorded on a thread: c10's own bit, read where it lies.
//!
//! To ask c10 is two calls and the loader's look-up of a thread-local, a tenth of what an event takes. Where the bit lies is not known
//! but found, once, when we attach: `GradMode` is switched on the attaching thread, and back, and exactly one bit must follow it.

use crate::platform::real::{self, Library};
use crate::recorder::thread::Thread;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering::*};

/// Bytes of c10's `AutogradState` that are looked at: an optional object, then the bits (2.4 to 2.15).
const BYTES: usize = 32;

/// `c10::GradMode::is_enabled`; null where there is none.
static IS_ENABLED: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// `c10::AutogradState::get_tls_state`, where the bit has been found; else null.
static STATE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static AT: AtomicUsize = AtomicUsize::new(0);
#[unsafe(link_section = ".data.strandline_hot")]
static BIT: AtomicU8 = AtomicU8::new(0);

type State = extern "C" fn() -> *const u8;
type IsEnabled = extern "C" fn() -> bool;

/// Looks for it, before the first event. Called on a thread of the job's, which is in no operator then.
#[cold]
pub(super) fn begin() {
    let found = |name| real::look_up(name, Library::C10);
    let is_enabled = found(c"_ZN3c108GradMode10is_enabledEv");
    let set = found(c"_ZN3c108GradMode11set_enabledEb");
    let state = found(c"_ZN3c1013AutogradState13get_tls_stateEv");
    IS_ENABLED.store(is_enabled, Relaxed);
    if [is_enabled, set, state].contains(&core::ptr::null_mut()) {
        return;
    }
    // SAFETY: all three have had these types since 2.4. They read or set a thread-local and cannot throw; the state lives as long as
    // its thread.
    let (is_enabled, set, address) = unsafe {
        let set: extern "C" fn(bool) = core::mem::transmute(set);
        (
            core::mem::transmute::<*mut c_void, IsEnabled>(is_enabled),
            set,
            core::mem::transmute::<*mut c_void, State>(state),
        )
    };
    let (place, before) = (address(), is_enabled());
    // SAFETY: a thread-local of c10's; where the class was smaller, what follows it belongs to the same thread's block.
    let look = || unsafe { place.cast::<[u8; BYTES]>().read_volatile() };
    let was = look();
    set(!before);
    let (switched, agrees) = (look(), is_enabled() != before);
    set(before);
    if agrees
        && look() == was
        && let Some((at, bit)) = one_bit(&was, &switched)
        && (was.get(at).is_some_and(|byte| byte & bit != 0)) == before
    {
        AT.store(at, Relaxed);
        BIT.store(bit, Relaxed);
        STATE.store(state, Release); // who sees it sees the two above
    }
}

/// The only bit in which they differ.
fn one_bit(a: &[u8; BYTES], b: &[u8; BYTES]) -> Option<(usize, u8)> {
    let mut differ = a.iter().zip(b).map(|(a, b)| a ^ b).enumerate().filter(|(_, bits)| *bits != 0);
    let (at, bits) = differ.next()?;
    (differ.next().is_none() && bits.is_power_of_two()).then_some((at, bits))
}

/// Whether this thread records none.
#[inline(always)]
pub(super) fn is_off(t: &mut Thread) -> bool {
    match t.grad.is_null() {
        // SAFETY: set by `asked`, to a byte of a thread-local of this thread's.
        false => unsafe { t.grad.read() & BIT.load(Relaxed) == 0 },
        true => asked(t),
    }
}

/// A thread's first time; every time, where the bit was not found.
#[cold]
#[inline(never)]
fn asked(t: &mut Thread) -> bool {
    let (state, is_enabled) = (STATE.load(Acquire), IS_ENABLED.load(Relaxed));
    // SAFETY: as in `begin`, which has set both.
    unsafe {
        if !state.is_null() {
            let state: State = core::mem::transmute(state);
            t.grad = state().add(AT.load(Relaxed));
            return t.grad.read() & BIT.load(Relaxed) == 0;
        }
        if is_enabled.is_null() {
            return false;
        }
        let is_enabled: IsEnabled = core::mem::transmute(is_enabled);
        !is_enabled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_bit_must_follow() {
        let was = [7u8; BYTES];
        let with = |changes: &[(usize, u8)]| {
            let mut all = was;
            changes.iter().for_each(|(at, bits)| all[*at] ^= bits);
            one_bit(&was, &all)
        };
        assert_eq!(with(&[(24, 1)]), Some((24, 1)));
        assert_eq!(with(&[(0, 8)]), Some((0, 8)));
        assert_eq!((with(&[]), with(&[(24, 3)]), with(&[(1, 1), (2, 1)])), (None, None, None));
    }
}
