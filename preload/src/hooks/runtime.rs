//! Memory that goes through the CUDA runtime, and what the program asks about its devices.

use super::{P, SUCCESS, Status, blocks, forward};
use crate::entered::enter_or_arm;
use crate::{clock, devices, stacks, tls};
use cudarc::runtime::sys::cudaError_t;
use strandline_core::event::RuntimeOp;
use strandline_core::format::raw::{Kind, Record};

/// Writes a runtime record, if this thread is not inside another hook of ours. `caller`: where the call returns to; 0: of no
/// interest.
#[inline(always)]
fn note(op: RuntimeOp, addr: u64, size: usize, stream: P, caller: u64) {
    let Some(mut t) = enter_or_arm() else { return };
    let phase = t.phase(false);
    let stack = if caller == 0 { 0 } else { stacks::of_call(&mut t, caller) };
    t.push(Record {
        ticks: clock::ticks(),
        a: addr,
        b: size as u64,
        c: stream as u64,
        rounded_seq: u64::from(stack),
        stack: op as u32,
        kind: Kind::Runtime as u8,
        device: tls::device(),
        phase,
        ..Record::default()
    });
}

/// After an allocation: what it returned, if it did.
///
/// # Safety
/// `p` must be what the successful call filled.
#[inline(always)]
unsafe fn allocated(op: RuntimeOp, status: Status, p: *mut P, size: usize, stream: P, caller: u64) {
    if status == SUCCESS && !p.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        note(op, unsafe { *p } as u64, size, stream, caller);
    }
}

/// Before a deallocation; freeing nothing is nothing.
#[inline(always)]
fn released(op: RuntimeOp, p: P, stream: P) {
    if !p.is_null() {
        note(op, p as u64, 0, stream, 0);
    }
}

macro_rules! allocations {
    ($($name:ident, $op:ident, $real:ident ($($a:ident: $t:ty),*), $stream:expr;)*) => {
        $(pub(super) unsafe fn $name(p: *mut P, n: usize $(, $a: $t)*) -> Status {
            let caller = tls::caller();
            let status = forward!($real(p, n $(, $a)*));
            // SAFETY: `p` is the caller's, and the call has returned.
            unsafe { allocated(RuntimeOp::$op, status, p, n, $stream, caller) };
            status
        })*
    };
}

const NO_STREAM: P = core::ptr::null_mut();
const OUT_OF_MEMORY: Status = cudaError_t::cudaErrorMemoryAllocation as Status;

allocations! {
    host_alloc, HostAlloc, HOST_ALLOC (flags: u32), NO_STREAM;
    malloc_host, HostAlloc, MALLOC_HOST (), NO_STREAM;
    malloc_managed, MallocManaged, MALLOC_MANAGED (flags: u32), NO_STREAM;
}

/// A segment of PyTorch's cache, or a block where its cache is switched off.
pub(super) unsafe fn malloc(p: *mut P, n: usize) -> Status {
    let caller = tls::caller();
    let status = forward!(MALLOC(p, n));
    if blocks::is_uncached(caller) && status == SUCCESS && !p.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        blocks::handed_out(unsafe { *p } as u64, n, NO_STREAM);
    } else {
        // SAFETY: `p` is the caller's, and the call has returned.
        unsafe { allocated(RuntimeOp::Malloc, status, p, n, NO_STREAM, caller) };
    }
    status
}

pub(super) unsafe fn malloc_async(p: *mut P, n: usize, s: P) -> Status {
    let caller = tls::caller();
    let status = forward!(MALLOC_ASYNC(p, n, s));
    // SAFETY: `p` is the caller's, and the call has returned.
    unsafe { allocated_async(status, p, n, s, caller) };
    status
}

pub(super) unsafe fn malloc_from_pool_async(p: *mut P, n: usize, pool: P, s: P) -> Status {
    let caller = tls::caller();
    let status = forward!(MALLOC_FROM_POOL_ASYNC(p, n, pool, s));
    // SAFETY: `p` is the caller's, and the call has returned.
    unsafe { allocated_async(status, p, n, s, caller) };
    status
}

/// After a stream-ordered allocation: a block where such calls are torch's allocator.
///
/// # Safety
/// As of [`allocated`].
#[inline(always)]
unsafe fn allocated_async(status: Status, p: *mut P, n: usize, s: P, caller: u64) {
    if !blocks::are_async() {
        // SAFETY: the caller's promise.
        return unsafe { allocated(RuntimeOp::MallocAsync, status, p, n, s, caller) };
    }
    if status == SUCCESS && !p.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        blocks::handed_out(unsafe { *p } as u64, n, s);
    } else if status == OUT_OF_MEMORY {
        blocks::refused(n, s);
    }
}

pub(super) unsafe fn free(p: P) -> Status {
    if blocks::are_there() {
        blocks::given_back(p, NO_STREAM);
    } else {
        released(RuntimeOp::Free, p, NO_STREAM);
    }
    forward!(FREE(p))
}

pub(super) unsafe fn free_async(p: P, s: P) -> Status {
    if blocks::are_there() {
        blocks::given_back(p, s);
    } else {
        released(RuntimeOp::FreeAsync, p, s);
    }
    forward!(FREE_ASYNC(p, s))
}

pub(super) unsafe fn free_host(p: P) -> Status {
    released(RuntimeOp::HostFree, p, NO_STREAM);
    forward!(FREE_HOST(p))
}

pub(super) unsafe fn mem_get_info(free: *mut usize, total: *mut usize) -> Status {
    let status = forward!(MEM_GET_INFO(free, total));
    if status == SUCCESS && !free.is_null() && !total.is_null() {
        // SAFETY: not null, and filled by the call that succeeded.
        let (free, total) = unsafe { (*free as u64, *total as u64) };
        devices::note_total(tls::device(), total);
        if let Some(mut t) = enter_or_arm() {
            blocks::out_of_memory(&mut t, free);
            t.note(Kind::MemInfo, tls::device(), free, total, 0);
            if let Some(fraction) = stacks::fraction::being_set() {
                devices::note_fraction(tls::device(), fraction);
            }
        }
    }
    status
}

/// Does not arm: launchers ask what there is and never touch it.
pub(super) unsafe fn get_device_properties(p: P, device: i32) -> Status {
    let status = forward!(GET_DEVICE_PROPERTIES(p, device));
    if status == SUCCESS && !p.is_null() {
        // SAFETY: filled by the call that succeeded.
        unsafe { devices::note_properties(device, p) };
    }
    status
}

/// As above: the runtime of CUDA 12 has this name for it.
pub(super) unsafe fn get_device_properties_v2(p: P, device: i32) -> Status {
    let status = forward!(GET_DEVICE_PROPERTIES_V2(p, device));
    if status == SUCCESS && !p.is_null() {
        // SAFETY: filled by the call that succeeded.
        unsafe { devices::note_properties(device, p) };
    }
    status
}

/// Does not arm, for the same reason; the choice is kept in any case.
pub(super) unsafe fn set_device(device: i32) -> Status {
    let status = forward!(SET_DEVICE(device));
    if status == SUCCESS {
        tls::set_device(device as u8);
    }
    status
}
