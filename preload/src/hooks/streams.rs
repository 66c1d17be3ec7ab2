//! Streams, events, capture: what makes a stream, what orders it, and from what the host learns that it is done.

use super::functions::{P, SUCCESS, Status, id};
use super::sticky_error::forward;
use crate::platform::tls;
use crate::recorder::guard::enter_or_arm;
use strandline_core::event::HookId;
use strandline_core::format::raw::Kind;

/// Copies to the host are synchronous; the other directions may return before the device is done.
const DEVICE_TO_HOST: i32 = 2;

#[inline(always)]
fn note(hook: HookId, kind: Kind, a: u64, stream: P) {
    if let Some(mut t) = enter_or_arm(hook) {
        t.note(kind, tls::device(), a, 0, stream as u64);
    }
}

/// After a stream was made.
///
/// # Safety
/// `s` must be what the successful call filled.
#[inline(always)]
unsafe fn created(hook: HookId, status: Status, s: *mut P) {
    if status == SUCCESS && !s.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        note(hook, Kind::StreamCreate, 0, unsafe { *s });
    }
}

pub(super) unsafe fn create(s: *mut P) -> Status {
    let status = forward!(STREAM_CREATE(s));
    // SAFETY: the call has returned.
    unsafe { created(id::STREAM_CREATE, status, s) };
    status
}

pub(super) unsafe fn create_with_flags(s: *mut P, flags: u32) -> Status {
    let status = forward!(STREAM_CREATE_WITH_FLAGS(s, flags));
    // SAFETY: the call has returned.
    unsafe { created(id::STREAM_CREATE_WITH_FLAGS, status, s) };
    status
}

pub(super) unsafe fn create_with_priority(s: *mut P, flags: u32, priority: i32) -> Status {
    let status = forward!(STREAM_CREATE_WITH_PRIORITY(s, flags, priority));
    // SAFETY: the call has returned.
    unsafe { created(id::STREAM_CREATE_WITH_PRIORITY, status, s) };
    status
}

pub(super) unsafe fn destroy(s: P) -> Status {
    note(id::STREAM_DESTROY, Kind::StreamDestroy, 0, s);
    forward!(STREAM_DESTROY(s) on s)
}

pub(super) unsafe fn event_record(e: P, s: P) -> Status {
    recorded(id::EVENT_RECORD, e, s);
    forward!(EVENT_RECORD(e, s) on s)
}

pub(super) unsafe fn event_record_with_flags(e: P, s: P, flags: u32) -> Status {
    recorded(id::EVENT_RECORD_WITH_FLAGS, e, s);
    forward!(EVENT_RECORD_WITH_FLAGS(e, s, flags) on s)
}

/// An event recorded between a request to free and its report, on the same thread, is the allocator's own: the block
/// waits for that stream.
#[inline(always)]
fn recorded(hook: HookId, e: P, s: P) {
    let Some(mut t) = enter_or_arm(hook) else { return };
    t.note(Kind::EventRecord, tls::device(), e as u64, 0, s as u64);
    if let Some((device, block)) = t.freeing {
        t.note(Kind::FreeWaits, device, block.get(), 0, s as u64);
    }
}

pub(super) unsafe fn event_destroy(e: P) -> Status {
    note(id::EVENT_DESTROY, Kind::EventDestroy, e as u64, core::ptr::null_mut());
    forward!(EVENT_DESTROY(e))
}

pub(super) unsafe fn wait_event(s: P, e: P, flags: u32) -> Status {
    note(id::STREAM_WAIT_EVENT, Kind::StreamWait, e as u64, s);
    forward!(STREAM_WAIT_EVENT(s, e, flags) on s)
}

pub(super) unsafe fn synchronize(s: P) -> Status {
    let status = forward!(STREAM_SYNCHRONIZE(s) on s);
    if status == SUCCESS {
        note(id::STREAM_SYNCHRONIZE, Kind::StreamDone, 0, s);
    }
    status
}

pub(super) unsafe fn query(s: P) -> Status {
    let status = forward!(STREAM_QUERY(s) on s);
    if status == SUCCESS {
        note(id::STREAM_QUERY, Kind::StreamDone, 0, s);
    }
    status
}

pub(super) unsafe fn event_synchronize(e: P) -> Status {
    let status = forward!(EVENT_SYNCHRONIZE(e));
    if status == SUCCESS {
        note(id::EVENT_SYNCHRONIZE, Kind::EventDone, e as u64, core::ptr::null_mut());
    }
    status
}

pub(super) unsafe fn event_query(e: P) -> Status {
    let status = forward!(EVENT_QUERY(e));
    if status == SUCCESS {
        note(id::EVENT_QUERY, Kind::EventDone, e as u64, core::ptr::null_mut());
    }
    status
}

pub(super) unsafe fn device_synchronize() -> Status {
    let status = forward!(DEVICE_SYNCHRONIZE());
    if status == SUCCESS {
        note(id::DEVICE_SYNCHRONIZE, Kind::DeviceDone, 0, core::ptr::null_mut());
    }
    status
}

pub(super) unsafe fn memcpy(to: P, from: P, n: usize, kind: i32) -> Status {
    let status = forward!(MEMCPY(to, from, n, kind));
    if status == SUCCESS && kind == DEVICE_TO_HOST && n > 0 {
        note(id::MEMCPY, Kind::StreamDone, 0, core::ptr::null_mut());
    }
    status
}

pub(super) unsafe fn begin_capture(s: P, mode: i32) -> Status {
    let status = forward!(STREAM_BEGIN_CAPTURE(s, mode) on s);
    if status == SUCCESS
        && let Some(mut t) = enter_or_arm(id::STREAM_BEGIN_CAPTURE)
    {
        t.captures += 1;
        t.note(Kind::CaptureBegin, tls::device(), 0, 0, s as u64);
    }
    status
}

/// A capture that failed has ended too.
pub(super) unsafe fn end_capture(s: P, graph: *mut P) -> Status {
    let status = forward!(STREAM_END_CAPTURE(s, graph) on s);
    if let Some(mut t) = enter_or_arm(id::STREAM_END_CAPTURE) {
        t.captures = t.captures.saturating_sub(1);
        t.note(Kind::CaptureEnd, tls::device(), 0, 0, s as u64);
    }
    status
}
