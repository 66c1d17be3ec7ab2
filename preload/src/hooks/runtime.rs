//! Memory that goes through the CUDA runtime, and what the program asks about its devices.

use super::functions::{NO_STREAM, P, SUCCESS, Status, id};
use super::sticky_error::{forward, hooks};
use super::{attribution, blocks};
use crate::platform::tls;
use crate::recorder::devices;
use crate::recorder::guard::{HookGuard, enter_or_arm};
use crate::stacks;
use crate::torch::{tracker, uncached};
use cudarc::runtime::sys::cudaError_t;
use strandline_core::event::{HookId, RuntimeOp};
use strandline_core::format::raw::{Kind, Record};

/// Writes a runtime record, if this thread is not inside another hook of ours. `caller`: where the call returns to; 0: of no
/// interest.
#[inline(always)]
fn note(hook: HookId, op: RuntimeOp, addr: u64, size: usize, stream: P, caller: u64) {
    let Some(mut t) = enter_or_arm(hook) else { return };
    let stack = if caller == 0 { 0 } else { stacks::of_call(&mut t, caller) };
    write(&mut t, op, addr, size, stream, stack);
}

#[inline(always)]
fn write(t: &mut HookGuard, op: RuntimeOp, addr: u64, size: usize, stream: P, stack: u32) {
    let (b, c, rounded_seq) = (size as u64, stream as u64, u64::from(stack));
    let record = t.record(Kind::Runtime, tls::device());
    t.push(Record { a: addr, b, c, rounded_seq, stack: op as u32, ..record });
}

/// After an allocation of device memory that CUDA refused for want of it: an address of 0. PyTorch gives its cache back then and
/// asks again, within the same allocation; a library may do with less; another program may end of it, and then who asked matters.
#[cold]
#[inline(never)]
pub(super) fn refused(hook: HookId, op: RuntimeOp, size: usize, stream: P, caller: u64) {
    let block = attribution::is_block(caller) && attribution::have_stacks();
    let Some(mut t) = enter_or_arm(hook) else { return };
    let stack = if uncached::is_uncached(caller) {
        tracker::origin(&mut t).1
    } else if block {
        stacks::of_block(&mut t, caller)
    } else {
        stacks::of_call(&mut t, caller)
    };
    write(&mut t, op, 0, size, stream, stack);
}

/// After an allocation: what it returned, if it did.
///
/// # Safety
/// `p` must be what the successful call filled.
#[inline(always)]
pub(super) unsafe fn allocated(
    hook: HookId,
    op: RuntimeOp,
    status: Status,
    p: *mut P,
    size: usize,
    stream: P,
    caller: u64,
) {
    if status == SUCCESS && !p.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        note(hook, op, unsafe { *p } as u64, size, stream, caller);
    }
}

/// After an allocation of device memory: a block, or what a library keeps for itself.
///
/// # Safety
/// As of [`allocated`].
#[inline(always)]
pub(super) unsafe fn device_memory(
    hook: HookId,
    op: RuntimeOp,
    status: Status,
    p: *mut P,
    size: usize,
    stream: P,
    caller: u64,
) {
    if status == OUT_OF_MEMORY {
        return refused(hook, op, size, stream, caller);
    }
    if status != SUCCESS || p.is_null() {
        return;
    }
    // SAFETY: not null, and filled by the call that succeeded.
    let addr = unsafe { *p } as u64;
    if attribution::is_block(caller) {
        blocks::record_alloc_of_program(hook, caller, addr, size, stream);
    } else {
        // What a pool holds whose blocks are told is nobody's beside them.
        note(hook, op, addr, size, stream, if attribution::cupy_hooks_active() { 0 } else { caller });
    }
}

/// Before device memory is given back.
#[inline(always)]
pub(super) fn gone(hook: HookId, op: RuntimeOp, p: P, stream: P) {
    if blocks::any_recorded() {
        blocks::record_free(hook, p, stream);
    } else {
        released(hook, op, p, stream);
    }
}

/// Before a deallocation; freeing nothing is nothing.
#[inline(always)]
pub(super) fn released(hook: HookId, op: RuntimeOp, p: P, stream: P) {
    if !p.is_null() {
        note(hook, op, p as u64, 0, stream, 0);
    }
}

/// Hooks of calls that hand out memory, as a table. Each calls the real function, and lets what came back be recorded.
macro_rules! allocations {
    ($($name:ident: $real:ident($($a:ident: $t:ty),*) on $stream:expr, $record:ident as $op:ident;)*) => { $(
        pub(super) unsafe fn $name(p: *mut P, n: usize $(, $a: $t)*) -> Status {
            let caller = tls::caller();
            let status = $crate::hooks::sticky_error::forward!($real(p, n $(, $a)*) on $stream);
            // SAFETY: `p` is the caller's, and the call has returned.
            unsafe { $record(id::$real, RuntimeOp::$op, status, p, n, $stream, caller) };
            status
        }
    )* };
}
pub(super) use allocations;

/// The driver has the same number for it.
pub(super) const OUT_OF_MEMORY: Status = cudaError_t::cudaErrorMemoryAllocation as Status;

allocations! {
    malloc: MALLOC() on NO_STREAM, segment_or_uncached as Malloc;
    malloc_async: MALLOC_ASYNC(s: P) on s, stream_ordered as MallocAsync;
    malloc_async_ptsz: MALLOC_ASYNC_PTSZ(s: P) on s, stream_ordered as MallocAsync;
    malloc_from_pool_async: MALLOC_FROM_POOL_ASYNC(pool: P, s: P) on s, stream_ordered as MallocAsync;
    malloc_from_pool_async_ptsz: MALLOC_FROM_POOL_ASYNC_PTSZ(pool: P, s: P) on s, stream_ordered as MallocAsync;
    host_alloc: HOST_ALLOC(flags: u32) on NO_STREAM, allocated as HostAlloc;
    malloc_host: MALLOC_HOST() on NO_STREAM, allocated as HostAlloc;
    malloc_managed: MALLOC_MANAGED(flags: u32) on NO_STREAM, allocated as MallocManaged;
}

/// After `cudaMalloc`: a segment of PyTorch's cache, or a block where its cache is switched off.
///
/// # Safety
/// As of [`allocated`].
#[inline(always)]
unsafe fn segment_or_uncached(
    hook: HookId,
    op: RuntimeOp,
    status: Status,
    p: *mut P,
    n: usize,
    s: P,
    caller: u64,
) {
    if uncached::is_uncached(caller) && status == SUCCESS && !p.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        blocks::record_alloc(hook, unsafe { *p } as u64, n, s);
    } else {
        // SAFETY: the caller's promise.
        unsafe { device_memory(hook, op, status, p, n, s, caller) };
    }
}

/// After a stream-ordered allocation: a block where such calls are torch's allocator.
///
/// # Safety
/// As of [`allocated`].
#[inline(always)]
unsafe fn stream_ordered(
    hook: HookId,
    op: RuntimeOp,
    status: Status,
    p: *mut P,
    n: usize,
    s: P,
    caller: u64,
) {
    if !uncached::is_async() {
        // SAFETY: the caller's promise.
        return unsafe { device_memory(hook, op, status, p, n, s, caller) };
    }
    if status == SUCCESS && !p.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        blocks::record_alloc(hook, unsafe { *p } as u64, n, s);
    } else if status == OUT_OF_MEMORY {
        blocks::refused(hook, n, s);
    }
}

pub(super) unsafe fn malloc_pitch(p: *mut P, pitch: *mut usize, width: usize, height: usize) -> Status {
    let caller = tls::caller();
    let status = forward!(MALLOC_PITCH(p, pitch, width, height));
    // SAFETY: `p` and `pitch` are the caller's, and the call has returned.
    unsafe { pitched(id::MALLOC_PITCH, status, p, pitch, [width, height], caller) };
    status
}

/// After an allocation of rows, whose length in memory the call has written to `pitch`.
///
/// # Safety
/// As of [`allocated`], also for `pitch`.
pub(super) unsafe fn pitched(
    hook: HookId,
    status: Status,
    p: *mut P,
    pitch: *mut usize,
    [width, height]: [usize; 2],
    caller: u64,
) {
    if status == OUT_OF_MEMORY {
        refused(hook, RuntimeOp::Malloc, width.saturating_mul(height), NO_STREAM, caller);
    } else if status == SUCCESS && !pitch.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        let size = unsafe { *pitch }.saturating_mul(height);
        // SAFETY: the caller's promise.
        unsafe { device_memory(hook, RuntimeOp::Malloc, status, p, size, NO_STREAM, caller) };
    }
}

hooks! {
    free: FREE(p: P), before |hook| gone(hook, RuntimeOp::Free, p, NO_STREAM);
    free_async: FREE_ASYNC(p: P, s: P) on s, before |hook| gone(hook, RuntimeOp::FreeAsync, p, s);
    free_async_ptsz: FREE_ASYNC_PTSZ(p: P, s: P) on s, before |hook| gone(hook, RuntimeOp::FreeAsync, p, s);
    free_host: FREE_HOST(p: P), before |hook| released(hook, RuntimeOp::HostFree, p, NO_STREAM);
    mem_get_info: MEM_GET_INFO(free: *mut usize, total: *mut usize), after |hook, status| {
        // SAFETY: the call has returned.
        unsafe { record_mem_get_info(hook, status, free, total) }
    };
    // These two do not arm: launchers ask what there is and never touch it. The runtime of CUDA 12 has the second name for it.
    get_device_properties: GET_DEVICE_PROPERTIES(p: P, device: i32), after |_hook, status| {
        // SAFETY: the call has returned.
        unsafe { noted_properties(status, p, device) }
    };
    get_device_properties_v2: GET_DEVICE_PROPERTIES_V2(p: P, device: i32), after |_hook, status| {
        // SAFETY: the call has returned.
        unsafe { noted_properties(status, p, device) }
    };
    // Does not arm, for the same reason; the choice is kept in any case.
    set_device: SET_DEVICE(device: i32), after |_hook, status| {
        if status == SUCCESS {
            tls::set_device(device as u8);
        }
    };
}

/// After `cudaMemGetInfo` or `cuMemGetInfo` succeeded: notes the device's size, and what is free.
///
/// # Safety
/// Both must be what the successful call filled.
pub(super) unsafe fn record_mem_get_info(hook: HookId, status: Status, free: *mut usize, total: *mut usize) {
    if status == SUCCESS && !free.is_null() && !total.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        let (free, total) = unsafe { (*free as u64, *total as u64) };
        devices::note_total(tls::device(), total);
        if let Some(mut t) = enter_or_arm(hook) {
            blocks::out_of_memory(&mut t, free);
            t.note(Kind::MemInfo, tls::device(), free, total, 0);
            if let Some(fraction) = stacks::fraction::being_set() {
                devices::note_fraction(tls::device(), fraction);
            }
        }
    }
}

/// After the program was told what a device is.
///
/// # Safety
/// `p` must be what the successful call filled.
unsafe fn noted_properties(status: Status, p: P, device: i32) {
    if status == SUCCESS && !p.is_null() {
        // SAFETY: filled by the call that succeeded.
        unsafe { devices::note_properties(device, p) };
    }
}
