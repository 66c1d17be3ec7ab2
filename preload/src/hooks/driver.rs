//! Memory that goes through CUDA's driver: a runtime that is a part of the program or library that calls, and programs
//! that use the driver themselves. What a dynamic runtime asks the driver for does not come here (`asked`).

use super::filled::filled;
use super::functions::{NO_STREAM, P, SUCCESS, Status, id};
use super::runtime::{Asked, OUT_OF_MEMORY, allocated, allocations, device_memory, gone, pitched};
use super::runtime::{record_mem_get_info, refused, released};
use super::sticky_error::{forward, hooks};
use crate::platform::tls;
use crate::recorder::devices;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strandline_core::event::RuntimeOp;

allocations! {
    alloc: CU_MEM_ALLOC() on NO_STREAM, device_memory as Malloc;
    alloc_async: CU_MEM_ALLOC_ASYNC(s: P) on s, device_memory as MallocAsync;
    alloc_async_ptsz: CU_MEM_ALLOC_ASYNC_PTSZ(s: P) on s, device_memory as MallocAsync;
    alloc_from_pool_async: CU_MEM_ALLOC_FROM_POOL_ASYNC(pool: P, s: P) on s, device_memory as MallocAsync;
    alloc_from_pool_async_ptsz: CU_MEM_ALLOC_FROM_POOL_ASYNC_PTSZ(pool: P, s: P) on s, device_memory as MallocAsync;
    alloc_managed: CU_MEM_ALLOC_MANAGED(flags: u32) on NO_STREAM, allocated as MallocManaged;
    host_alloc: CU_MEM_HOST_ALLOC(flags: u32) on NO_STREAM, allocated as HostAlloc;
    alloc_host: CU_MEM_ALLOC_HOST() on NO_STREAM, allocated as HostAlloc;
}

pub(super) unsafe fn alloc_pitch(
    p: *mut P,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Status {
    let caller = tls::caller();
    let status = forward!(CU_MEM_ALLOC_PITCH(p, pitch, width, height, element));
    // SAFETY: `p` and `pitch` are the caller's, and the call has returned.
    unsafe { pitched(id::CU_MEM_ALLOC_PITCH, status, p, pitch, [width, height], caller) };
    status
}

hooks! {
    free: CU_MEM_FREE(p: P), before |hook| gone(hook, RuntimeOp::Free, p, NO_STREAM);
    free_async: CU_MEM_FREE_ASYNC(p: P, s: P) on s, before |hook| gone(hook, RuntimeOp::FreeAsync, p, s);
    free_async_ptsz: CU_MEM_FREE_ASYNC_PTSZ(p: P, s: P) on s, before |hook| gone(hook, RuntimeOp::FreeAsync, p, s);
    free_host: CU_MEM_FREE_HOST(p: P), before |hook| released(hook, RuntimeOp::HostFree, p, NO_STREAM);
    mem_get_info: CU_MEM_GET_INFO(free: *mut usize, total: *mut usize), after |hook, status| {
        // SAFETY: the call has returned.
        unsafe { record_mem_get_info(hook, status, free, total) }
    };
    // Does not arm: launchers ask what there is and never touch it.
    total_mem: CU_DEVICE_TOTAL_MEM(total: *mut usize, device: i32), after |_hook, status| {
        // SAFETY: the call has returned.
        if let Some(total) = unsafe { filled(status, total) } && let Ok(device) = u8::try_from(device) {
            devices::note_total(device, total as u64);
        }
    };
}

/// Physical memory that this process made and that may be mapped: its handle, its size, and where it was mapped first (0:
/// it is not). Memory of others that is mapped here is not in it, and is not counted; nor is what finds no place.
static PHYSICAL: [[AtomicU64; 3]; 4096] = [const { [const { AtomicU64::new(0) }; 3] }; 4096];
/// A place whose rest is being written.
const BUSY: u64 = u64::MAX;

pub(super) unsafe fn create(handle: *mut u64, n: usize, properties: P, flags: u64) -> Status {
    let caller = tls::caller();
    let status = forward!(CU_MEM_CREATE(handle, n, properties, flags));
    // SAFETY: the call has returned.
    if let Some(made) = unsafe { filled(status, handle) } {
        let free = |[h, _, at]: &&[AtomicU64; 3]| {
            at.load(Relaxed) == 0 && h.compare_exchange(0, BUSY, Relaxed, Relaxed).is_ok()
        };
        if let Some([h, size, _]) = PHYSICAL.iter().find(free) {
            size.store(n as u64, Relaxed);
            h.store(made, Relaxed);
        }
    } else if status == OUT_OF_MEMORY {
        refused(id::CU_MEM_CREATE, RuntimeOp::Malloc, n, NO_STREAM, caller);
    }
    status
}

/// Mapped memory lives on without its handle.
pub(super) unsafe fn release(handle: u64) -> Status {
    let known = |[h, ..]: &&[AtomicU64; 3]| handle != 0 && h.load(Relaxed) == handle;
    if let Some([h, ..]) = PHYSICAL.iter().find(known) {
        h.store(0, Relaxed);
    }
    forward!(CU_MEM_RELEASE(handle))
}

pub(super) unsafe fn map(p: P, n: usize, offset: usize, handle: u64, flags: u64) -> Status {
    let caller = tls::caller();
    let status = forward!(CU_MEM_MAP(p, n, offset, handle, flags));
    let known = |[h, ..]: &&[AtomicU64; 3]| handle != 0 && h.load(Relaxed) == handle;
    if status == SUCCESS
        && let Some([_, size, at]) = PHYSICAL.iter().find(known)
        && at.compare_exchange(0, p as u64, Relaxed, Relaxed).is_ok()
    {
        let (mut p, size) = (p, size.load(Relaxed) as usize);
        let (hook, op, p) = (id::CU_MEM_MAP, RuntimeOp::Malloc, &raw mut p);
        // SAFETY: a pointer of our own.
        unsafe { device_memory(Asked { hook, op, status, p, size, stream: NO_STREAM, caller }) };
    }
    status
}

/// One call may take back what several have mapped.
pub(super) unsafe fn unmap(p: P, n: usize) -> Status {
    let range = p as u64..(p as u64).saturating_add(n as u64);
    for [_, _, at] in PHYSICAL.iter().filter(|[.., at]| range.contains(&at.load(Relaxed))) {
        gone(id::CU_MEM_UNMAP, RuntimeOp::Free, at.load(Relaxed) as P, NO_STREAM);
        at.store(0, Relaxed);
    }
    forward!(CU_MEM_UNMAP(p, n))
}
