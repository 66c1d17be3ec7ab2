//! c10 and ATen: where we attach, which stream is current, what a block is used on, and the allocator's report.

use super::functions::{P, Stream, id, pass_on, real};
use crate::platform::real::{Library, look_up};
use crate::platform::tls;
use crate::recorder::guard::{enter, enter_or_arm, peek_thread};
use crate::recorder::thread::{DEVICES, Thread};
use crate::torch::{attach, tracker};
use crate::{pluggable, recorder};
use core::ptr::{NonNull, addr_of};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use strandline_core::format::raw::Kind;

const CUDA: u8 = 1;

/// Right after the allocator is initialized, before its first allocation, usually with the GIL held (2.11 and newer).
pub(super) unsafe fn init_p2p_access_cache(devices: i64) {
    pass_on!(INIT_P2P_ACCESS_CACHE(devices));
    arm_and_attach();
}

/// Called before every allocation, without a lock: the trigger of versions that have no other. Once it is settled whether
/// we are attached, a load, a compare and a jump.
#[inline(always)]
pub(super) unsafe fn get_current_stream(device: i8) -> Stream {
    match real::GET_CURRENT_STREAM.known().filter(|_| attach::is_settled()) {
        // SAFETY: the caller's argument.
        Some(f) => unsafe { f(device) },
        // SAFETY: the caller's argument.
        None => unsafe { get_first_stream(device) },
    }
}

#[cold]
#[inline(never)]
unsafe fn get_first_stream(device: i8) -> Stream {
    arm_and_attach();
    let default = Stream { device: u64::from(CUDA) | u64::from(device as u8) << 8, id: 0 };
    pass_on!(GET_CURRENT_STREAM(device) else default)
}

#[cold]
#[inline(never)]
fn arm_and_attach() {
    recorder::arm();
    attach::attempt();
}

/// The current stream of this thread changes; most calls set what is set already: those take no token.
#[inline(always)]
pub(super) unsafe fn set_current_stream(device: u64, id: u64) {
    let index = usize::from(Stream { device, id }.index()) & (DEVICES - 1);
    // SAFETY: this thread's own place, of which nobody else has a reference now; the index is below the array's length.
    let is_set =
        |t: NonNull<Thread>| unsafe { *(&raw const (*t.as_ptr()).current).cast::<u64>().add(index) == id };
    match real::SET_CURRENT_STREAM.known() {
        // SAFETY: the caller's arguments.
        Some(f) if peek_thread().is_some_and(is_set) => unsafe { f(device, id) },
        // SAFETY: the caller's arguments.
        _ => unsafe { change_current_stream(device, id) },
    }
}

#[cold]
#[inline(never)]
unsafe fn change_current_stream(device: u64, id: u64) {
    let s = Stream { device, id };
    if let Some(mut t) = enter_or_arm(id::SET_CURRENT_STREAM)
        && let Some(current) = t.current.get_mut(usize::from(s.index()) & (DEVICES - 1))
        && *current != id
    {
        let from = Stream { device, id: core::mem::replace(current, id) };
        drop(t); // the look-up below is c10's, which may call the runtime and so come back to us
        switched(from, s);
    }
    pass_on!(SET_CURRENT_STREAM(device, id))
}

#[cold]
#[inline(never)]
fn switched(from: Stream, to: Stream) {
    let (a, b) = (handle(from), handle(to));
    if let Some(mut t) = enter_or_arm(id::SET_CURRENT_STREAM) {
        t.note(Kind::Scope, to.index(), a, b, 0);
    }
}

static STREAM_OF: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The raw handle of a stream: `CUDAStream::stream() const`. c10 makes a pool's streams before it hands one out, so this
/// only reads a table.
fn handle(s: Stream) -> u64 {
    if s.id == 0 {
        return 0; // the default stream, on every device
    }
    let mut f = STREAM_OF.load(Relaxed);
    if f.is_null() {
        f = look_up(c"_ZNK3c104cuda10CUDAStream6streamEv", Library::C10Cuda);
        STREAM_OF.store(f, Relaxed);
        if f.is_null() {
            return s.id;
        }
    }
    // SAFETY: the symbol is that member function; a CUDAStream is the 16 bytes of a c10::Stream.
    let f: extern "C-unwind" fn(*const Stream) -> u64 = unsafe { core::mem::transmute(f) };
    f(addr_of!(s))
}

/// The allocator's report. Host allocations report here too: those pass at once.
#[inline(always)]
pub(super) unsafe fn report_memory_usage(p: u64, size: i64, allocated: u64, reserved: u64, device: u64) {
    let is_done = device as u8 != CUDA
        || !tracker::takes_reports()
        || tracker::report_quickly(p, size, allocated, reserved).is_some();
    match real::REPORT_MEMORY_USAGE.known() {
        // SAFETY: the caller's arguments.
        Some(f) if is_done => unsafe { f(p, size, allocated, reserved, device) },
        // SAFETY: the caller's arguments.
        _ => unsafe { report_slowly(p, size, allocated, reserved, device, is_done) },
    }
}

#[cold]
#[inline(never)]
unsafe fn report_slowly(p: u64, size: i64, allocated: u64, reserved: u64, device: u64, is_done: bool) {
    if !is_done {
        tracker::report(p, size, allocated, reserved, (device >> 8) as u8);
    }
    pass_on!(REPORT_MEMORY_USAGE(p, size, allocated, reserved, device))
}

/// A thread of torch's gets its name: the autograd engine's do so before they do anything else. To ask the kernel for the
/// name at a thread's first event would be a system call. Does not arm.
pub(super) unsafe fn set_thread_name(name: P) {
    // SAFETY: the caller's `std::string`, passed by reference since it is not trivial: where its characters are, and how many.
    let text = unsafe {
        let [characters, length] = *name.cast::<[usize; 2]>();
        core::slice::from_raw_parts(characters as *const u8, length)
    };
    if text.starts_with(b"pt_autograd_") {
        tls::set_autograd();
        if let Some(mut t) = enter(id::SET_THREAD_NAME) {
            t.autograd = true;
        }
    }
    // The name stays the caller's to destroy.
    pass_on!(SET_THREAD_NAME(name))
}

/// A tensor is used on another stream: its block may not be reused before that is done.
pub(super) unsafe fn record_stream(tensor: P, device: u64, id: u64) {
    // SAFETY: the caller's tensor.
    let data = unsafe { data_pointer(tensor) };
    let s = handle(Stream { device, id });
    // Through the pluggable door the allocator itself is told, by autograd and others too.
    if !pluggable::is_open()
        && let Some(mut t) = enter_or_arm(id::RECORD_STREAM)
    {
        t.note(Kind::RecordStream, (device >> 8) as u8, data, 0, s);
    }
    pass_on!(RECORD_STREAM(tensor, device, id))
}

/// The storage's data pointer of an `at::Tensor`; 0 where there is none. The two offsets are those of every version from
/// 2.4 to 2.15.
///
/// # Safety
/// `tensor` must point to an `at::Tensor`.
unsafe fn data_pointer(tensor: P) -> u64 {
    const STORAGE: usize = 16; // TensorImpl.storage_
    const DATA: usize = 16; // StorageImpl.data_ptr_
    // SAFETY: a Tensor is a pointer to its TensorImpl (never null: undefined tensors point to a static one, without a
    // storage), and the storage is null or a StorageImpl.
    unsafe {
        let implementation = *tensor.cast::<*const u8>();
        if implementation.is_null() {
            return 0;
        }
        let storage = *implementation.add(STORAGE).cast::<*const u8>();
        if storage.is_null() { 0 } else { *storage.add(DATA).cast::<u64>() }
    }
}
