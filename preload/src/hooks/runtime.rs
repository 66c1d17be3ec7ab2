//! Memory that goes through the CUDA runtime, and what the program asks about its devices.

use super::filled::filled;
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

/// A call that hands out memory, and what came of it.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) hook: HookId,
    pub(super) op: RuntimeOp,
    pub(super) status: Status,
    /// Where a call that succeeds puts the address.
    pub(super) p: *mut P,
    pub(super) size: usize,
    pub(super) stream: P,
    pub(super) caller: u64,
}

impl Asked {
    /// The address that it returned, if it did.
    ///
    /// # Safety
    /// `p` must be what the call filled where it was successful.
    #[inline(always)]
    unsafe fn address(&self) -> Option<u64> {
        // SAFETY: the caller's promise.
        unsafe { filled(self.status, self.p) }.map(|p| p as u64)
    }
}

/// After an allocation: what it returned, if it did.
///
/// # Safety
/// As of [`Asked::address`].
#[inline(always)]
pub(super) unsafe fn allocated(a: Asked) {
    // SAFETY: the caller's promise.
    if let Some(addr) = unsafe { a.address() } {
        note(a.hook, a.op, addr, a.size, a.stream, a.caller);
    }
}

/// After an allocation of device memory: a block, or what a library keeps for itself.
///
/// # Safety
/// As of [`Asked::address`].
#[inline(always)]
pub(super) unsafe fn device_memory(a: Asked) {
    if a.status == OUT_OF_MEMORY {
        return refused(a.hook, a.op, a.size, a.stream, a.caller);
    }
    // SAFETY: the caller's promise.
    let Some(addr) = (unsafe { a.address() }) else { return };
    if attribution::is_block(a.caller) {
        blocks::record_alloc_of_program(a.hook, a.caller, addr, a.size, a.stream);
    } else {
        // What a pool holds whose blocks are told is nobody's beside them.
        let caller = if attribution::cupy_hooks_active() { 0 } else { a.caller };
        note(a.hook, a.op, addr, a.size, a.stream, caller);
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
            unsafe {
                $record($crate::hooks::runtime::Asked {
                    hook: id::$real,
                    op: RuntimeOp::$op,
                    status,
                    p,
                    size: n,
                    stream: $stream,
                    caller,
                })
            };
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
/// As of [`Asked::address`].
#[inline(always)]
unsafe fn segment_or_uncached(a: Asked) {
    // SAFETY: the caller's promise.
    let address = unsafe { a.address() };
    match address.filter(|_| uncached::is_uncached(a.caller)) {
        Some(addr) => blocks::record_alloc(a.hook, addr, a.size, a.stream),
        // SAFETY: the caller's promise.
        None => unsafe { device_memory(a) },
    }
}

/// After a stream-ordered allocation: a block where such calls are torch's allocator.
///
/// # Safety
/// As of [`Asked::address`].
#[inline(always)]
unsafe fn stream_ordered(a: Asked) {
    if !uncached::is_async() {
        // SAFETY: the caller's promise.
        return unsafe { device_memory(a) };
    }
    // SAFETY: the caller's promise.
    if let Some(addr) = unsafe { a.address() } {
        blocks::record_alloc(a.hook, addr, a.size, a.stream);
    } else if a.status == OUT_OF_MEMORY {
        blocks::refused(a.hook, a.size, a.stream);
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
/// As of [`Asked::address`], also for `pitch`.
pub(super) unsafe fn pitched(
    hook: HookId,
    status: Status,
    p: *mut P,
    pitch: *mut usize,
    [width, height]: [usize; 2],
    caller: u64,
) {
    // SAFETY: the caller's promise.
    let size = match unsafe { filled(status, pitch) } {
        Some(pitch) => pitch.saturating_mul(height),
        None if status == OUT_OF_MEMORY => width.saturating_mul(height),
        None => return,
    };
    // SAFETY: the caller's promise.
    unsafe {
        device_memory(Asked { hook, op: RuntimeOp::Malloc, status, p, size, stream: NO_STREAM, caller })
    };
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
    // SAFETY: the caller's promise.
    if let Some((free, total)) = unsafe { filled(status, free).zip(filled(status, total)) } {
        let (free, total) = (free as u64, total as u64);
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
