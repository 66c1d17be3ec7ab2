//! The driver's own account of a device's memory, through NVML. Optional: without `libnvidia-ml.so.1` there is none.
//!
//! Loaded in the wrapper's process, never in the job. Declarations after NVIDIA's published `nvml.h`.

use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

type Return = c_int;
type Handle = *mut c_void;
const SUCCESS: Return = 0;
/// `NVML_VALUE_NOT_AVAILABLE`: the driver does not tell this process.
const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Memory {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}
/// `nvmlMemory_v2`: the struct's size, and its version in the top byte.
const MEMORY_V2: c_uint = size_of::<Memory>() as c_uint | 2 << 24;

/// `nvmlProcessInfo_t` of `nvmlDeviceGetComputeRunningProcesses_v3`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Room for a text: `NVML_DEVICE_NAME_V2_BUFFER_SIZE`, of all that are asked for the longest.
const TEXT: usize = 96;

/// The text that a function writes into so much room.
fn text(write: impl FnOnce(*mut c_char, c_uint) -> bool) -> Option<String> {
    let mut text = [0u8; TEXT];
    let is_there = write(text.as_mut_ptr().cast(), TEXT as c_uint);
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().into_owned();
    (is_there && !text.is_empty()).then_some(text)
}

/// NVML, initialised.
pub(crate) struct Nvml {
    library: Library,
}

/// A device; valid while the [`Nvml`] it came from lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device(Handle);

// SAFETY: NVML's handles are documented as usable from any thread.
unsafe impl Send for Device {}

/// What the driver says about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Bytes in all, less what the driver keeps for itself: what `cudaMemGetInfo` calls the total.
    pub(crate) total: u64,
    /// Bytes free.
    pub(crate) free: u64,
}

/// Whether a function of the library does what it is asked. Its arguments have the types of what is handed over.
macro_rules! ask {
    ($nvml:ident.$name:ident($($argument:expr),*)) => {
        $nvml
            .library
            .get::<unsafe extern "C" fn($(inferred!($argument)),*) -> Return>(concat!(stringify!($name), "\0"))
            .is_ok_and(|call| call($($argument),*) == SUCCESS)
    };
}

/// The type of an argument, where its value says it.
macro_rules! inferred {
    ($argument:expr) => {
        _
    };
}
pub(crate) use inferred;

impl Nvml {
    /// Loads and initialises it; `None` where there is none or it refuses.
    pub(crate) fn load() -> Option<Nvml> {
        // SAFETY: NVIDIA's library runs no code at load time that this process could trip over; the symbol has the
        // declared type by nvml.h.
        unsafe {
            let library = Library::new("libnvidia-ml.so.1").ok()?;
            let init: Symbol<unsafe extern "C" fn() -> Return> = library.get(b"nvmlInit_v2\0").ok()?;
            (init() == SUCCESS).then_some(Nvml { library })
        }
    }

    /// How many devices the machine has.
    pub(crate) fn count(&self) -> u32 {
        let mut count: c_uint = 0;
        // SAFETY: nvmlDeviceGetCount_v2(unsigned int*), by nvml.h.
        let ok = unsafe { ask!(self.nvmlDeviceGetCount_v2(&raw mut count)) };
        if ok { count } else { 0 }
    }

    /// The device with this number.
    pub(crate) fn by_index(&self, index: u32) -> Option<Device> {
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: nvmlDeviceGetHandleByIndex_v2(unsigned int, nvmlDevice_t*), by nvml.h.
        let ok = unsafe { ask!(self.nvmlDeviceGetHandleByIndex_v2(index, &raw mut handle)) };
        ok.then_some(Device(handle))
    }

    /// The device (or MIG instance) with this UUID.
    pub(crate) fn by_uuid(&self, uuid: &str) -> Option<Device> {
        let uuid = CString::new(uuid).ok()?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: nvmlDeviceGetHandleByUUID(const char*, nvmlDevice_t*), by nvml.h; the string outlives the call.
        let ok = unsafe { ask!(self.nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut handle)) };
        ok.then_some(Device(handle))
    }

    /// The driver's version.
    pub(crate) fn driver(&self) -> Option<String> {
        // SAFETY: nvmlSystemGetDriverVersion(char*, unsigned int), by nvml.h; it writes at most as many bytes as it is told.
        text(|to, room| unsafe { ask!(self.nvmlSystemGetDriverVersion(to, room)) })
    }

    /// What a device is called.
    pub(crate) fn name(&self, device: Device) -> Option<String> {
        // SAFETY: nvmlDeviceGetName(nvmlDevice_t, char*, unsigned int), by nvml.h; it writes at most as many bytes as it is
        // told, and the handle came from this library.
        text(|to, room| unsafe { ask!(self.nvmlDeviceGetName(device.0, to, room)) })
    }

    /// Total and free memory of a device.
    pub(crate) fn usage(&self, device: Device) -> Option<Usage> {
        let mut memory = Memory { version: MEMORY_V2, ..Memory::default() };
        // SAFETY: nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t*), by nvml.h, with its version filled in; the
        // handle came from this library.
        let ok = unsafe { ask!(self.nvmlDeviceGetMemoryInfo_v2(device.0, &raw mut memory)) };
        ok.then_some(Usage { total: memory.total.saturating_sub(memory.reserved), free: memory.free })
    }

    /// Bytes that a process uses on a device; `None` where the driver does not tell, as in most containers.
    pub(crate) fn process(&self, device: Device, pid: u32) -> Option<u64> {
        let mut processes = [Process::default(); 256];
        let mut count = processes.len() as c_uint;
        // SAFETY: nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned int*, nvmlProcessInfo_t*), by
        // nvml.h; `count` says how many entries may be written, and the handle came from this library.
        let ok = unsafe {
            ask!(self.nvmlDeviceGetComputeRunningProcesses_v3(
                device.0,
                &raw mut count,
                processes.as_mut_ptr()
            ))
        };
        let found = processes.get(..count as usize)?.iter().find(|p| ok && p.pid == pid)?;
        (found.used != NOT_AVAILABLE).then_some(found.used)
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: nvmlShutdown(void), by nvml.h, once for our one nvmlInit_v2.
        unsafe {
            if let Ok(shutdown) = self.library.get::<unsafe extern "C" fn() -> Return>(b"nvmlShutdown\0") {
                shutdown();
            }
        }
    }
}

/// The devices a process sees, in its own order, by its `CUDA_VISIBLE_DEVICES`.
pub(crate) fn visible(nvml: &Nvml, list: Option<&str>) -> Vec<Device> {
    match list {
        None => (0..nvml.count()).filter_map(|i| nvml.by_index(i)).collect(),
        Some(list) => names(list).map_while(|name| find(nvml, name)).collect(),
    }
}

/// CUDA takes the names up to the first that it does not know.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).take_while(|name| !name.is_empty() && *name != "-1")
}

fn find(nvml: &Nvml, name: &str) -> Option<Device> {
    match name.parse() {
        Ok(index) => nvml.by_index(index),
        Err(_) => nvml.by_uuid(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_ends_where_cuda_ends_it() {
        let list = |text| names(text).collect::<Vec<_>>();
        assert_eq!(list("1,0"), ["1", "0"]);
        assert_eq!(list("0,-1,1"), ["0"]);
        assert_eq!(list(""), [""; 0]);
        assert_eq!(list("GPU-a, GPU-b"), ["GPU-a", "GPU-b"]);
    }

    #[test]
    fn the_layouts_are_those_of_nvml_h() {
        assert_eq!((size_of::<Memory>(), std::mem::offset_of!(Memory, total)), (40, 8));
        assert_eq!(MEMORY_V2, 0x0200_0028);
        assert_eq!(size_of::<Process>(), 24);
        assert_eq!(std::mem::offset_of!(Process, used), 8);
    }
}
