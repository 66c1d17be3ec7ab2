//! The token that a hook needs to record anything.

use crate::recorder;
use crate::recorder::thread;
use crate::recorder::thread::Thread;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use strandline_core::event::HookId;

/// This thread is inside one of our hooks, and in no other: a signal handler or a nested call that comes back to us
/// gets no second token. Gives access to the thread's state. `NOTED`: a word of the hook is in the shared memory meanwhile.
pub(crate) struct Guard<const NOTED: bool> {
    thread: NonNull<Thread>,
    not_send: PhantomData<*mut ()>,
}

/// What [`enter`] gives.
pub(crate) type HookGuard = Guard<true>;
/// What [`enter_fast`] gives.
pub(crate) type FastGuard = Guard<false>;

/// The token, while the process records. One load of a global and one of a thread-local where it does not. `hook`: what is left in the
/// shared memory while the token lives: where the process was, should it die of it. It lives in our own code alone, never while the
/// real function runs.
#[inline(always)]
pub(crate) fn enter(hook: HookId) -> Option<HookGuard> {
    if !recorder::is_recording() {
        return None;
    }
    let thread = match thread::current() {
        Some(t) => t,
        None => thread::claim()?,
    };
    // SAFETY: the pointer is this thread's own place, set by `claim` on this thread; only this thread touches it, and no
    // reference to it is alive here, since references come from tokens and `inside` tells that there is none.
    unsafe {
        if (*thread.as_ptr()).inside {
            return interrupted();
        }
        (*thread.as_ptr()).inside = true;
        (*thread.as_ptr()).hook.store(hook.word(), Relaxed);
        (*thread.as_ptr()).pulse.enter(|| None);
    }
    // A handler that interrupts us from here on must see the mark.
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    Some(Guard { thread, not_send: PhantomData })
}

/// A signal handler called CUDA while a hook of ours was at work on its thread: what it does cannot be recorded.
#[cold]
#[inline(never)]
fn interrupted() -> Option<HookGuard> {
    if let Some(region) = recorder::region() {
        region.lose();
    }
    None
}

/// The token at a call that may be the process's first: arms it where that is still to be done.
#[inline(always)]
pub(crate) fn enter_or_arm(hook: HookId) -> Option<HookGuard> {
    if !recorder::is_recording() && !recorder::arm() {
        return None;
    }
    enter(hook)
}

/// The token of a hook that is short and calls nothing: for the many. `None` wherever anything is not as usual (the process does
/// not record, the thread has no place yet, a hook is at work on it): then the hook goes the long way, with [`enter`]. It leaves no word in the shared
/// memory: who reads more than what was handed to the hook and the thread's own ring does so himself, with [`Thread::noted`].
/// `began`: see [`OverheadSampler::enter`](crate::recorder::overhead::OverheadSampler::enter).
#[inline(always)]
pub(crate) fn enter_fast(began: impl FnOnce() -> Option<u64>) -> Option<FastGuard> {
    let thread = peek_thread()?;
    // SAFETY: as in `enter`.
    unsafe {
        (*thread.as_ptr()).pulse.enter(began);
        (*thread.as_ptr()).inside = true;
    }
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    Some(Guard { thread, not_send: PhantomData })
}

/// This thread's place, where the process records, the thread has one, and no hook of ours is at work on it: to look at a
/// word, or to change one, with nothing called meanwhile. That takes no mark: whoever interrupts sees the word as it was
/// or as it is.
#[inline(always)]
pub(crate) fn peek_thread() -> Option<NonNull<Thread>> {
    if !recorder::is_recording() {
        return None;
    }
    let thread = thread::current()?;
    // SAFETY: as in `enter`.
    if unsafe { (*thread.as_ptr()).inside } { None } else { Some(thread) }
}

impl<const NOTED: bool> Drop for Guard<NOTED> {
    #[inline(always)]
    fn drop(&mut self) {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        // SAFETY: the token is neither Send nor Clone, so this is its thread and the only access.
        unsafe {
            (*self.thread.as_ptr()).pulse.leave();
            if NOTED {
                (*self.thread.as_ptr()).hook.store(0, Relaxed);
            }
            (*self.thread.as_ptr()).inside = false;
        }
    }
}

impl<const NOTED: bool> Deref for Guard<NOTED> {
    type Target = Thread;
    #[inline(always)]
    fn deref(&self) -> &Thread {
        // SAFETY: the place lives for ever, and while the token lives nobody else refers to it.
        unsafe { self.thread.as_ref() }
    }
}

impl<const NOTED: bool> DerefMut for Guard<NOTED> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Thread {
        // SAFETY: as in `deref`; the token is borrowed mutably.
        unsafe { self.thread.as_mut() }
    }
}
