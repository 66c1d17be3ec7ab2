//! The first call that fails because a device's context is broken: something went wrong on the device some time before, and from
//! now on every call of the process returns the same. Who hears of it last, in some destructor, is often all that a job's own
//! message names; the first one is nearest to what did it.
//!
//! Errors that last are rare and the process is lost with them, so all of this is out of the way: a hook compares the status that
//! it has anyway with zero. The hooks of this room are there for nothing else.

use super::functions::{P, Status};
use crate::platform::tls;
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

/// Hooks of CUDA calls as a table. Each calls the real function; `before` says what happens first, `after` what happens with the
/// status that came back, whatever it is.
macro_rules! hooks {
    ($(
        $name:ident: $real:ident($($a:ident: $t:ty),*) $(on $stream:ident)?
        $(, before |$early:ident| $before:expr)? $(, after |$hook:ident, $status:ident| $after:expr)?;
    )*) => { $(
        pub(super) unsafe fn $name($($a: $t),*) -> $crate::hooks::functions::Status {
            $( let $early = $crate::hooks::functions::id::$real;
            $before; )?
            let status = $crate::hooks::sticky_error::forward!($real($($a),*) $(on $stream)?);
            $( let ($hook, $status) = ($crate::hooks::functions::id::$real, status);
            $after; )?
            status
        }
    )* };
}
pub(super) use hooks;

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
    let record = t.record(Kind::Failed, tls::device());
    t.push(Record { a: u64::from(status as u32), b: hook.word(), c: stream as u64, stack, ..record });
}

hooks! {
    memcpy_async: MEMCPY_ASYNC(to: P, from: P, n: usize, kind: i32, s: P) on s;
    // Which a launch is followed by: launches themselves are not looked at.
    get_last_error: GET_LAST_ERROR();
    context_synchronize: CU_CTX_SYNCHRONIZE();
    context_synchronize_v2: CU_CTX_SYNCHRONIZE_V2(context: P);
    stream_synchronize: CU_STREAM_SYNCHRONIZE(s: P) on s;
    stream_synchronize_ptsz: CU_STREAM_SYNCHRONIZE_PTSZ(s: P) on s;
    event_synchronize: CU_EVENT_SYNCHRONIZE(e: P);
    copy_to_host: CU_MEMCPY_DTOH(to: P, from: P, n: usize);
    copy_to_host_async: CU_MEMCPY_DTOH_ASYNC(to: P, from: P, n: usize, s: P) on s;
    copy_to_host_ptds: CU_MEMCPY_DTOH_PTDS(to: P, from: P, n: usize);
    copy_to_host_async_ptsz: CU_MEMCPY_DTOH_ASYNC_PTSZ(to: P, from: P, n: usize, s: P) on s;
}
