//! The driver's functions that the door calls, by name; cudarc has their types. Nothing is linked, and what the job has
//! loaded is used: a process that asks us for device memory has a driver.
//!
//! Results are plain numbers here, not cudarc's enumeration: a newer driver may return one that it does not know.

use crate::platform::real::{self, Library};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemAllocationType, CUmemLocationType, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CUpointer_attribute, CUresult, CUstream,
};
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// `CUresult` as a number.
pub(super) type Status = u32;
/// Success.
pub(super) const SUCCESS: Status = CUresult::CUDA_SUCCESS as Status;
/// The device has not enough memory.
pub(super) const OUT_OF_MEMORY: Status = CUresult::CUDA_ERROR_OUT_OF_MEMORY as Status;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURING: c_int = 0;

macro_rules! functions {
    ($($field:ident: $name:literal ($($t:ty),*),)*) => {
        /// All of them; all are there or none is used.
        pub(super) struct Driver { $($field: unsafe extern "C" fn($($t),*) -> Status,)* }
        impl Driver {
            fn look_up() -> Result<Driver, &'static CStr> {
                Ok(Driver {
                    $($field: {
                        let p = real::look_up($name, Library::Driver);
                        if p.is_null() {
                            return Err($name);
                        }
                        // SAFETY: the driver's function of this name has this type (cuda.h), its result as a number.
                        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($t),*) -> Status>(p) }
                    },)*
                })
            }
        }
    };
}

functions! {
    retain: c"cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice),
    current: c"cuCtxGetCurrent" (*mut CUcontext),
    set_current: c"cuCtxSetCurrent" (CUcontext),
    synchronize: c"cuCtxSynchronize" (),
    total: c"cuDeviceTotalMem_v2" (*mut usize, CUdevice),
    info: c"cuMemGetInfo_v2" (*mut usize, *mut usize),
    pointer: c"cuPointerGetAttribute" (*mut c_void, CUpointer_attribute, CUdeviceptr),
    text: c"cuGetErrorString" (Status, *mut *const c_char),
    pool_create: c"cuMemPoolCreate" (*mut CUmemoryPool, *const CUmemPoolProps),
    pool_get: c"cuMemPoolGetAttribute" (CUmemoryPool, CUmemPool_attribute, *mut u64),
    pool_set: c"cuMemPoolSetAttribute" (CUmemoryPool, CUmemPool_attribute, *mut u64),
    pool_trim: c"cuMemPoolTrimTo" (CUmemoryPool, usize),
    allocate: c"cuMemAllocFromPoolAsync" (*mut CUdeviceptr, usize, CUmemoryPool, CUstream),
    free: c"cuMemFreeAsync" (CUdeviceptr, CUstream),
    stream_create: c"cuStreamCreate" (*mut CUstream, u32),
    stream_synchronize: c"cuStreamSynchronize" (CUstream),
    stream_wait: c"cuStreamWaitEvent" (CUstream, CUevent, u32),
    capturing: c"cuStreamIsCapturing" (CUstream, *mut c_int),
    capture_mode: c"cuThreadExchangeStreamCaptureMode" (*mut c_int),
    event_create: c"cuEventCreate" (*mut CUevent, u32),
    event_record: c"cuEventRecord" (CUevent, CUstream),
    event_destroy: c"cuEventDestroy_v2" (CUevent),
}

/// The driver; what it lacks where it cannot be used.
pub(super) fn driver() -> Result<&'static Driver, &'static CStr> {
    static DRIVER: OnceCell<Result<Driver, &'static CStr>> = OnceCell::new();
    DRIVER.get_or_init(Driver::look_up).as_ref().map_err(|e| *e)
}

fn done(status: Status) -> Result<(), Status> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

/// Captures that may be under way, on whatever device: while there are any, calls of ours that one of them might forbid are made
/// outside of every capture, as PyTorch makes its own (`cudaThreadExchangeStreamCaptureMode`, relaxed).
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// One more may be under way.
pub(super) fn capture_begins() {
    CAPTURES.fetch_add(1, Relaxed);
}

/// It no longer is.
pub(super) fn capture_ends() {
    let _ = CAPTURES.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
}

/// A device's own context is the thread's while this lives: the default stream and a pool's memory belong to one. So is, during
/// captures, the mode that forbids nothing.
pub(super) struct Entered<'a> {
    driver: &'a Driver,
    before: Option<CUcontext>,
    mode: Option<c_int>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            self.driver.exchange(mode);
        }
        if let Some(context) = self.before {
            // SAFETY: the context was this thread's a moment ago, or is null, which is allowed.
            unsafe { (self.driver.set_current)(context) };
        }
    }
}

impl Driver {
    /// A device's primary context, which the runtime uses too. It stays retained: the pool lives as long as the process.
    pub(super) fn context(&self, device: u8) -> Result<CUcontext, Status> {
        let mut context = core::ptr::null_mut();
        // SAFETY: fills our variable; ordinals beyond the last are an error.
        done(unsafe { (self.retain)(&mut context, CUdevice::from(device)) }).map(|()| context)
    }

    /// Makes a context the thread's, if it is not.
    pub(super) fn enter(&self, context: CUcontext) -> Entered<'_> {
        let mut before = core::ptr::null_mut();
        // SAFETY: fills our variable; `context` is a retained primary context.
        let changed = unsafe {
            (self.current)(&mut before) == SUCCESS
                && before != context
                && (self.set_current)(context) == SUCCESS
        };
        let mode = if CAPTURES.load(Relaxed) == 0 { None } else { self.exchange(RELAXED) };
        Entered { driver: self, before: changed.then_some(before), mode }
    }

    /// Sets what this thread may do during captures; what it was before, where that could be set.
    fn exchange(&self, mode: c_int) -> Option<c_int> {
        let mut mode = mode;
        // SAFETY: exchanges a number of this thread's with ours.
        (unsafe { (self.capture_mode)(&mut mode) } == SUCCESS).then_some(mode)
    }

    /// A pool of device memory that keeps what it has: only a trim gives memory back.
    pub(super) fn pool(&self, device: u8) -> Result<CUmemoryPool, Status> {
        // SAFETY: a structure of numbers and a pointer, all of which may be zero: no handles, no bound, nothing reserved.
        let mut properties: CUmemPoolProps = unsafe { MaybeUninit::zeroed().assume_init() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = c_int::from(device);
        let mut pool = core::ptr::null_mut();
        // SAFETY: reads our structure, which is at least as large as any driver's, and fills our variable.
        done(unsafe { (self.pool_create)(&mut pool, &properties) })?;
        self.set(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
        Ok(pool)
    }

    /// An attribute that is eight bytes wide; 0 where the driver refuses.
    pub(super) fn get(&self, pool: CUmemoryPool, what: CUmemPool_attribute) -> u64 {
        let mut value = 0;
        // SAFETY: the pool is ours and never destroyed; the attributes asked for are 8 bytes wide.
        let status = unsafe { (self.pool_get)(pool, what, &mut value) };
        if status == SUCCESS { value } else { 0 }
    }

    /// Sets such an attribute.
    pub(super) fn set(
        &self,
        pool: CUmemoryPool,
        what: CUmemPool_attribute,
        value: u64,
    ) -> Result<(), Status> {
        let mut value = value;
        // SAFETY: as in `get`; the call only reads the value.
        done(unsafe { (self.pool_set)(pool, what, &mut value) })
    }

    /// Gives back what nobody uses.
    pub(super) fn trim(&self, pool: CUmemoryPool) {
        // SAFETY: the pool is ours and never destroyed.
        unsafe { (self.pool_trim)(pool, 0) };
    }

    /// Allocates in a stream's order.
    pub(super) fn allocate(&self, pool: CUmemoryPool, size: usize, stream: CUstream) -> Result<u64, Status> {
        let mut address = 0;
        // SAFETY: fills our variable; the pool is ours and the stream is the caller's.
        done(unsafe { (self.allocate)(&mut address, size, pool, stream) }).map(|()| address)
    }

    /// Frees in a stream's order. Where nothing is captured a failure is nobody's to hear: at the end of a process the driver is gone.
    pub(super) fn free(&self, address: u64, stream: CUstream) -> Result<(), Status> {
        // SAFETY: the address came from `allocate` and is given back once; the stream is one of its users'.
        done(unsafe { (self.free)(address, stream) })
    }

    /// Waits for all work of the current context.
    pub(super) fn synchronize(&self) -> Result<(), Status> {
        // SAFETY: no arguments.
        done(unsafe { (self.synchronize)() })
    }

    /// Waits for a stream of ours.
    pub(super) fn finish(&self, stream: CUstream) -> Result<(), Status> {
        // SAFETY: a stream of ours, never destroyed.
        done(unsafe { (self.stream_synchronize)(stream) })
    }

    /// A stream that waits for no other.
    pub(super) fn stream(&self) -> Result<CUstream, Status> {
        let mut stream = core::ptr::null_mut();
        // SAFETY: fills our variable.
        done(unsafe { (self.stream_create)(&mut stream, NON_BLOCKING) }).map(|()| stream)
    }

    /// What `after` does next waits for all that `before` was given so far.
    pub(super) fn order(&self, before: CUstream, after: CUstream) -> Result<(), Status> {
        let mut event = core::ptr::null_mut();
        // SAFETY: an event of ours between two live streams; destroying it early is allowed, the driver keeps it as long as
        // it is waited for.
        unsafe {
            done((self.event_create)(&mut event, NO_TIMING))?;
            let ordered = done((self.event_record)(event, before))
                .and_then(|()| done((self.stream_wait)(after, event, 0)));
            (self.event_destroy)(event);
            ordered
        }
    }

    /// Whether a stream is being captured.
    pub(super) fn is_capturing(&self, stream: CUstream) -> bool {
        let mut state = NOT_CAPTURING;
        // SAFETY: fills our variable; the stream is the caller's.
        unsafe { (self.capturing)(stream, &mut state) == SUCCESS && state != NOT_CAPTURING }
    }

    /// Does something that a capture elsewhere would forbid, outside of every capture.
    pub(super) fn relaxed<T>(&self, act: impl FnOnce() -> T) -> T {
        let before = self.exchange(RELAXED);
        let result = act();
        before.map(|mode| self.exchange(mode));
        result
    }

    /// The device that an address of its memory is on.
    pub(super) fn device_of(&self, addr: u64) -> Option<c_int> {
        if CAPTURES.load(Relaxed) > 0 {
            return self.relaxed(|| self.ask_device_of(addr));
        }
        self.ask_device_of(addr)
    }

    fn ask_device_of(&self, addr: u64) -> Option<c_int> {
        let mut ordinal: c_int = 0;
        // SAFETY: fills our variable, which is as wide as this attribute; any address may be asked for.
        let status = unsafe {
            (self.pointer)(
                (&raw mut ordinal).cast(),
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                addr,
            )
        };
        (status == SUCCESS).then_some(ordinal)
    }

    /// A device's memory in bytes.
    pub(super) fn total(&self, device: u8) -> Result<u64, Status> {
        let mut bytes = 0;
        // SAFETY: fills our variable.
        done(unsafe { (self.total)(&mut bytes, CUdevice::from(device)) }).map(|()| bytes as u64)
    }

    /// What the driver calls free on the current device; 0 where it does not say.
    pub(super) fn free_bytes(&self) -> u64 {
        let (mut free, mut total) = (0, 0);
        // SAFETY: fills our variables.
        let status = unsafe { (self.info)(&mut free, &mut total) };
        if status == SUCCESS { free as u64 } else { 0 }
    }

    /// An error in the driver's words.
    pub(super) fn explain(&self, status: Status) -> String {
        let mut text = core::ptr::null();
        // SAFETY: fills our variable with a static string, or leaves it null for a number that it does not know.
        let text = unsafe {
            (self.text)(status, &mut text);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        text.unwrap_or_else(|| format!("CUDA error {status}"))
    }
}
