//! The few functions of the CUDA driver that are needed to have a context and to ask what is free. Loaded when asked for:
//! nothing else of this command needs a driver, or a GPU.
//!
//! Declarations after NVIDIA's published `cuda.h`.

use crate::nvml::inferred;
use libloading::{Library, Symbol};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;

type Return = c_int;

/// `libcuda.so.1`, initialised. It is never unloaded: it has threads of its own, which would go on in what is no longer there.
pub(super) struct Driver {
    library: ManuallyDrop<Library>,
}

/// A device's primary context, the one that the CUDA runtime, and so PyTorch, uses; the calling thread's.
pub(super) struct Context<'a> {
    driver: &'a Driver,
    device: c_int,
}

/// Calls a function of the driver. Its arguments have the types of what is handed over.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),*)) => {
        $driver
            .get::<unsafe extern "C" fn($(inferred!($argument)),*) -> Return>(stringify!($name))
            .and_then(|call| $driver.check(stringify!($name), call($($argument),*)))
    };
}

impl Driver {
    /// Loads and initialises it.
    ///
    /// # Errors
    /// There is none, or it refuses; as a clause.
    pub(super) fn load() -> Result<Driver, String> {
        // SAFETY: NVIDIA's library runs no code at load time that this process could trip over.
        let library = unsafe { Library::new("libcuda.so.1") };
        let library = library.map_err(|e| {
            let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            format!("the NVIDIA driver cannot be loaded ({why})")
        })?;
        let driver = Driver { library: ManuallyDrop::new(library) };
        // SAFETY: cuInit(unsigned int), by cuda.h.
        unsafe { call!(driver, cuInit(0 as c_uint)) }.map(|()| driver)
    }

    /// How many devices this process sees.
    ///
    /// # Errors
    /// The driver refuses.
    pub(super) fn count(&self) -> Result<c_int, String> {
        let mut count: c_int = 0;
        // SAFETY: cuDeviceGetCount(int*), by cuda.h; the place lives through the call.
        unsafe { call!(self, cuDeviceGetCount(&raw mut count)) }.map(|()| count)
    }

    /// What a device is called.
    pub(super) fn name(&self, device: c_int) -> String {
        let mut text = [0u8; 256];
        let (place, room) = (text.as_mut_ptr().cast::<c_char>(), text.len() as c_int);
        // SAFETY: cuDeviceGetName(char*, int, CUdevice), by cuda.h; it writes at most as many bytes as it is told.
        let said = self.device(device).and_then(|d| unsafe { call!(self, cuDeviceGetName(place, room, d)) });
        let name = CStr::from_bytes_until_nul(&text).ok().filter(|_| said.is_ok());
        name.map_or_else(|| "a device without a name".into(), |name| name.to_string_lossy().into_owned())
    }

    /// Gives the calling thread a context there.
    ///
    /// # Errors
    /// The driver refuses: there is no memory for one, or another process has the device for itself.
    pub(super) fn enter(&self, device: c_int) -> Result<Context<'_>, String> {
        let device = self.device(device)?;
        let mut context: *mut c_void = std::ptr::null_mut();
        // SAFETY: cuDevicePrimaryCtxRetain(CUcontext*, CUdevice), by cuda.h; the place lives through the call.
        unsafe { call!(self, cuDevicePrimaryCtxRetain(&raw mut context, device)) }?;
        let entered = Context { driver: self, device };
        // SAFETY: cuCtxSetCurrent(CUcontext), by cuda.h; the context is retained for as long as `entered` lives.
        unsafe { call!(self, cuCtxSetCurrent(context)) }.map(|()| entered)
    }

    fn device(&self, ordinal: c_int) -> Result<c_int, String> {
        let mut device: c_int = 0;
        // SAFETY: cuDeviceGet(CUdevice*, int), by cuda.h; the place lives through the call.
        unsafe { call!(self, cuDeviceGet(&raw mut device, ordinal)) }.map(|()| device)
    }

    /// A function of the library, of the type that its caller gives it.
    ///
    /// # Safety
    /// `F` is its type by cuda.h.
    unsafe fn get<F>(&self, name: &str) -> Result<Symbol<'_, F>, String> {
        // SAFETY: the caller vouches for the type.
        unsafe { self.library.get(name) }.map_err(|_| format!("this libcuda.so.1 has no {name}"))
    }

    /// What a call returned, in words.
    fn check(&self, call: &str, code: Return) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        type Text = unsafe extern "C" fn(Return, *mut *const c_char) -> Return;
        // SAFETY: cuGetErrorString(CUresult, const char**), by cuda.h; what it gives is a static C string.
        let known = unsafe {
            self.get::<Text>("cuGetErrorString").is_ok_and(|get| get(code, &mut text) == 0) && !text.is_null()
        };
        // SAFETY: a static C string, as just asked.
        let text = known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        let call = call.trim_end_matches("_v2");
        Err(format!("{call}: error {code}{}", text.map(|t| format!(" ({t})")).unwrap_or_default()))
    }
}

impl Context<'_> {
    /// Bytes that nobody holds on the device.
    ///
    /// # Errors
    /// The driver refuses.
    pub(super) fn free(&self) -> Result<u64, String> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: cuMemGetInfo_v2(size_t*, size_t*), by cuda.h; both places live through the call, and the calling thread has a
        // context, since this one is neither sent nor shared.
        let told = unsafe { call!(self.driver, cuMemGetInfo_v2(&raw mut free, &raw mut total)) };
        told.map(|()| free as u64)
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: cuDevicePrimaryCtxRelease_v2(CUdevice), by cuda.h, once for our one retain.
        let _ = unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.device)) };
    }
}
