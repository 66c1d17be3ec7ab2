//! Streams, events, capture: what makes a stream, what orders it, and from what the host learns that it is done.

use super::filled::filled;
use super::functions::{NO_STREAM, P, SUCCESS, Status};
use super::sticky_error::hooks;
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
    // SAFETY: the caller's promise.
    if let Some(stream) = unsafe { filled(status, s) } {
        note(hook, Kind::StreamCreate, 0, stream);
    }
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

/// After a call from whose success the host learns that something is done.
#[inline(always)]
fn done(hook: HookId, status: Status, kind: Kind, a: u64, stream: P) {
    if status == SUCCESS {
        note(hook, kind, a, stream);
    }
}

/// After a call that begins a capture.
fn begun(hook: HookId, status: Status, s: P) {
    if status == SUCCESS
        && let Some(mut t) = enter_or_arm(hook)
    {
        t.captures += 1;
        t.note(Kind::CaptureBegin, tls::device(), 0, 0, s as u64);
    }
}

hooks! {
    create: STREAM_CREATE(s: *mut P), after |hook, status| {
        // SAFETY: the call has returned.
        unsafe { created(hook, status, s) }
    };
    create_with_flags: STREAM_CREATE_WITH_FLAGS(s: *mut P, flags: u32), after |hook, status| {
        // SAFETY: the call has returned.
        unsafe { created(hook, status, s) }
    };
    create_with_priority: STREAM_CREATE_WITH_PRIORITY(s: *mut P, flags: u32, priority: i32), after |hook, status| {
        // SAFETY: the call has returned.
        unsafe { created(hook, status, s) }
    };
    destroy: STREAM_DESTROY(s: P) on s, before |hook| note(hook, Kind::StreamDestroy, 0, s);
    event_record: EVENT_RECORD(e: P, s: P) on s, before |hook| recorded(hook, e, s);
    event_record_with_flags: EVENT_RECORD_WITH_FLAGS(e: P, s: P, flags: u32) on s, before |hook| recorded(hook, e, s);
    event_destroy: EVENT_DESTROY(e: P), before |hook| note(hook, Kind::EventDestroy, e as u64, NO_STREAM);
    wait_event: STREAM_WAIT_EVENT(s: P, e: P, flags: u32) on s, before |hook| note(hook, Kind::StreamWait, e as u64, s);
    synchronize: STREAM_SYNCHRONIZE(s: P) on s, after |hook, status| done(hook, status, Kind::StreamDone, 0, s);
    query: STREAM_QUERY(s: P) on s, after |hook, status| done(hook, status, Kind::StreamDone, 0, s);
    event_synchronize: EVENT_SYNCHRONIZE(e: P), after |hook, status| done(hook, status, Kind::EventDone, e as u64, NO_STREAM);
    event_query: EVENT_QUERY(e: P), after |hook, status| done(hook, status, Kind::EventDone, e as u64, NO_STREAM);
    device_synchronize: DEVICE_SYNCHRONIZE(), after |hook, status| done(hook, status, Kind::DeviceDone, 0, NO_STREAM);
    memcpy: MEMCPY(to: P, from: P, n: usize, kind: i32), after |hook, status| {
        if kind == DEVICE_TO_HOST && n > 0 {
            done(hook, status, Kind::StreamDone, 0, NO_STREAM);
        }
    };
    begin_capture: STREAM_BEGIN_CAPTURE(s: P, mode: i32) on s, after |hook, status| begun(hook, status, s);
    begin_capture_to_graph: STREAM_BEGIN_CAPTURE_TO_GRAPH(s: P, graph: P, after: P, data: P, count: usize, mode: i32) on s,
        after |hook, status| begun(hook, status, s);
    // A capture that failed has ended too.
    end_capture: STREAM_END_CAPTURE(s: P, graph: *mut P) on s, after |hook, _status| {
        if let Some(mut t) = enter_or_arm(hook) {
            t.captures = t.captures.saturating_sub(1);
            t.note(Kind::CaptureEnd, tls::device(), 0, 0, s as u64);
        }
    };
}
