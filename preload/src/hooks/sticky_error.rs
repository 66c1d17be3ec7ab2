//! The first call that fails because a device's context is broken: something went wrong on the device some time before, and from
//! now on every call of the process returns the same. Who hears of it last, in some destructor, is often all that a job's own
//! message names; the first one is nearest to what did it.
//!
//! Errors that last are rare and the process is lost with them, so all of this is out of the way: a hook compares the status that
//! it has anyway with zero. The hooks of this room are there for nothing else.

use super::functions::{P, Status};
use crate::platform::{clock, tls};
use crate::recorder::guard::enter;
use crate::stacks;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strandline_core::event::{self, HookId};
use strandline_core::format::raw::{Kind, Record};

/// Calls the real function of CUDA behind a hook; `on`: the stream that the call is about.
macro_rules! forward {
    ($real:ident($($a:expr),*)) => {
        $crate::hooks::sticky_error::forward!($real($($a),*) on core::ptr::null_mut())
    };
    ($real:ident($($a:expr),*) on $stream:expr) => {
        match $crate::hooks::functions::real::$real.get() {
            Some(f) => {
                // SAFETY: the arguments are those of the hook's own caller.
                let status = unsafe { f($($a),*) };
                if status != $crate::hooks::functions::SUCCESS {
                    $crate::hooks::sticky_error::record_sticky_error(status, $crate::hooks::functions::id::$real, $stream);
                }
                status
            }
            None => $crate::hooks::functions::NOTHING_BEHIND,
        }
    };
}
pub(crate) use forward;

static TOLD: AtomicBool = AtomicBool::new(false);

/// After a call has returned something else than success: the one behind this hook, whose number is its place in [`event::CALLS`].
#[cold]
#[inline(never)]
pub(crate) fn record_sticky_error(status: Status, hook: HookId, stream: P) {
    if !event::stays(status as u32) || TOLD.load(Relaxed) {
        return;
    }
    let Some(mut t) = enter(hook) else { return };
    if TOLD.swap(true, Relaxed) {
        return;
    }
    let stack = stacks::current(&mut t);
    let phase = t.phase(false);
    t.push(Record {
        ticks: clock::ticks(),
        a: u64::from(status as u32),
        b: hook.word(),
        c: stream as u64,
        stack,
        kind: Kind::Failed as u8,
        device: tls::device(),
        phase,
        ..Record::default()
    });
}

pub(super) unsafe fn memcpy_async(to: P, from: P, n: usize, kind: i32, s: P) -> Status {
    forward!(MEMCPY_ASYNC(to, from, n, kind, s) on s)
}

/// Which a launch is followed by: launches themselves are not looked at.
pub(super) unsafe fn get_last_error() -> Status {
    forward!(GET_LAST_ERROR())
}

pub(super) unsafe fn context_synchronize() -> Status {
    forward!(CU_CTX_SYNCHRONIZE())
}

pub(super) unsafe fn stream_synchronize(s: P) -> Status {
    forward!(CU_STREAM_SYNCHRONIZE(s) on s)
}

pub(super) unsafe fn stream_synchronize_ptsz(s: P) -> Status {
    forward!(CU_STREAM_SYNCHRONIZE_PTSZ(s) on s)
}

pub(super) unsafe fn event_synchronize(e: P) -> Status {
    forward!(CU_EVENT_SYNCHRONIZE(e))
}

pub(super) unsafe fn copy_to_host(to: P, from: P, n: usize) -> Status {
    forward!(CU_MEMCPY_DTOH(to, from, n))
}

pub(super) unsafe fn copy_to_host_async(to: P, from: P, n: usize, s: P) -> Status {
    forward!(CU_MEMCPY_DTOH_ASYNC(to, from, n, s) on s)
}
