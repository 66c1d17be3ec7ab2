//! THE list of hooked functions. Exports, real pointers and the table that the law test reads all come from it.
//!
//! Every hook has the same shape: enter, (observe a release), the real function exactly once, (observe an acquisition or
//! what its success tells). A release is recorded before the real call, since the address or handle may be another
//! thread's the moment it returns; an acquisition after it, since only then it is known. A hook that needs no result
//! records first and then jumps.
//!
//! Only names of CUDA and of PyTorch are here: nothing that a shell or a compiler would call. The one name beside the list,
//! `dlsym`, lets everything else through untouched (`asked`).

mod asked;
pub(crate) mod autograd;
pub(crate) mod blocks;
mod context;
mod driver;
mod failed;
pub(crate) mod owner;
mod pooled;
mod runtime;
mod streams;
mod torch;

use crate::platform::real::{Library, Real};
use cudarc::runtime::sys::cudaError_t;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::AtomicPtr;

/// What a function of the runtime returns.
pub(crate) type Status = i32;
/// Success.
pub(crate) const SUCCESS: Status = cudaError_t::cudaSuccess as Status;
/// Returned only where no real function exists in the whole process.
const NOTHING_BEHIND: Status = cudaError_t::cudaErrorNotSupported as Status;

/// A `c10::Stream` or `c10::cuda::CUDAStream` by value: two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// Device type in the low byte, device index in the next; the rest is not defined.
    pub(crate) device: u64,
    /// c10's own number of the stream.
    pub(crate) id: u64,
}

impl Stream {
    /// CUDA ordinal.
    #[inline(always)]
    pub(crate) fn index(self) -> u8 {
        (self.device >> 8) as u8
    }
}

const fn terminated(symbol: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(symbol.as_bytes()) {
        Ok(s) => s,
        Err(_) => c"",
    }
}

/// What is exported under a symbol: the hook; with `called`, after the address that the call returns to was noted
/// (`tls::caller`); with `often`, for what is called thousands of times a step, beside the code of the other such.
macro_rules! entry {
    ((often) $symbol:literal $real:ident ($($a:ident: $t:ty),*) ($(-> $r:ty)?) $hook:path) => {
        entry! { (() #[unsafe(link_section = ".text.strandline_hot")]) $symbol $real ($($a: $t),*) ($(-> $r)?) $hook }
    };
    (() $($rest:tt)*) => {
        entry! { (() #[inline(never)]) $($rest)* }
    };
    ((() #[$placed:meta]) $symbol:literal $real:ident ($($a:ident: $t:ty),*) ($(-> $r:ty)?) $hook:path) => {
        #[$placed]
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        pub(super) unsafe extern "C-unwind" fn $real($($a: $t),*) $(-> $r)? {
            // SAFETY: the caller's arguments are handed on as they are; hooks look at them only as the function itself would.
            unsafe { $hook($($a),*) }
        }
    };
    ((called) $symbol:literal $real:ident ($($a:ident: $t:ty),*) ($(-> $r:ty)?) $hook:path) => {
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        pub(super) unsafe extern "C-unwind" fn $real($($a: $t),*) $(-> $r)? {
            unsafe extern "C-unwind" fn entered($($a: $t),*) $(-> $r)? {
                // SAFETY: as above.
                unsafe { $hook($($a),*) }
            }
            // No argument is in these two registers, and the stack is as the caller left it.
            core::arch::naked_asm!(
                "mov r11, qword ptr [rip + strandline_tls_caller@GOTTPOFF]",
                "mov rax, qword ptr [rsp]",
                "mov qword ptr fs:[r11], rax",
                "jmp {entered}",
                entered = sym entered,
            )
        }
    };
}

macro_rules! hooks {
    ($($symbol:literal in $library:ident as $real:ident ($($a:ident: $t:ty),*) $(-> $r:ty)? => $([$how:ident])? $hook:path;)*) => {
        /// The real functions.
        pub(crate) mod real {
            use super::*;
            $(
                #[doc = concat!("`", $symbol, "`")]
                pub(crate) static $real: Real<unsafe extern "C-unwind" fn($($t),*) $(-> $r)?> =
                    // SAFETY: the type is the function's, as its library's headers declare it.
                    unsafe {
                        Real::new(
                            {
                                #[unsafe(link_section = ".data.strandline_hot")]
                                static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                                &ADDRESS
                            },
                            terminated(concat!($symbol, "\0")),
                            Library::$library,
                        )
                    };
            )*
        }
        /// What the shared memory calls each hook.
        #[allow(dead_code, reason = "not every hook records")]
        pub(crate) mod id {
            use strandline_core::event::HookId;
            $(pub(crate) const $real: HookId = HookId::of($symbol);)*
        }
        #[allow(non_snake_case)]
        mod exported {
            use super::*;
            $(
                entry! { ($($how)?) $symbol $real ($($a: $t),*) ($(-> $r)?) $hook }
                // Keeps the function in test builds too, where it is not exported.
                #[cfg(test)]
                const _: unsafe extern "C-unwind" fn($($t),*) $(-> $r)? = $real;
            )*
        }
        /// Every symbol that is hooked, in the order of the list.
        #[allow(dead_code, unreachable_pub, reason = "the list, for those who check it")]
        pub const HOOKED: &[&str] = &[$($symbol),*];
        /// Looks all real functions up, outside of any allocator lock.
        #[cold]
        pub(crate) fn resolve_all() {
            $(real::$real.resolve();)*
        }
        /// The driver's functions among them, and whatever else the list has, by name.
        pub(super) static TABLE: &[asked::Hook] = &[$(asked::Hook {
            name: $symbol,
            library: Library::$library,
            hook: exported::$real as *const c_void,
            real: real::$real.place(),
        }),*];
        /// Every symbol with the address of its hook and that of the real function, which is null where there is none.
        #[cold]
        pub(crate) fn addresses() -> Vec<(&'static str, usize, usize)> {
            vec![$(($symbol, exported::$real as *const () as usize, real::$real.resolve() as usize)),*]
        }
    };
}

/// A hook that may step aside: its name, its address and that of the real function.
pub(crate) type Trigger = (&'static str, usize, usize);

/// The hook with nothing to do any more once it is settled whether we are attached: what is called before every kernel comes to us
/// five thousand times a step.
#[cold]
pub(crate) fn attach_trigger() -> Option<Trigger> {
    let real = &real::GET_CURRENT_STREAM;
    trigger(real.name(), exported::GET_CURRENT_STREAM as *const c_void, real.resolve())
}

/// The same once our Python has run: what is called for each tensor that autograd takes in.
#[cold]
pub(crate) fn python_trigger() -> Option<Trigger> {
    let real = &real::GRADIENT_EDGE;
    trigger(real.name(), exported::GRADIENT_EDGE as *const c_void, real.resolve())
}

fn trigger(name: &'static CStr, hook: *const c_void, real: *mut c_void) -> Option<Trigger> {
    Some((name.to_str().ok()?, hook as usize, real as usize)).filter(|_| !real.is_null())
}

/// The code of the hook that follows each event of the allocator's.
#[inline(always)]
pub(crate) fn of_reports() -> *const () {
    exported::REPORT_MEMORY_USAGE as *const ()
}

/// The C interface, exported beside the hooks.
#[allow(dead_code, unreachable_pub, reason = "the list, for those who check it")]
pub const CONTROL: &[&str] = &[
    "strandline_step",
    "strandline_phase",
    "strandline_mark",
    "strandline_snapshot",
    "strandline_version",
    // Steps that are NVTX ranges.
    "InitializeInjectionNvtx2",
    // How programs without an import of CUDA's find it.
    "dlsym",
    // The late door.
    "strandline_start",
    "strandline_device",
    "strandline_recording",
    // Blocks of CuPy's pool.
    "strandline_cupy",
    "strandline_block",
    "strandline_block_gone",
    // The pluggable door.
    "strandline_malloc",
    "strandline_free",
    "strandline_record_stream",
    "strandline_empty_cache",
    "strandline_set_memory_fraction",
    "strandline_memory_fraction",
    "strandline_begin_pool",
    "strandline_end_pool",
    "strandline_release_pool",
    "strandline_memory_stats",
    "strandline_reset_memory_stats",
];

type P = *mut c_void;

hooks! {
    // Memory of the runtime.
    "cudaMalloc" in Cudart as MALLOC (p: *mut P, n: usize) -> Status => [called] runtime::malloc;
    "cudaFree" in Cudart as FREE (p: P) -> Status => runtime::free;
    "cudaMallocPitch" in Cudart as MALLOC_PITCH (p: *mut P, pitch: *mut usize, width: usize, height: usize) -> Status => [called] runtime::malloc_pitch;
    "cudaMallocAsync" in Cudart as MALLOC_ASYNC (p: *mut P, n: usize, s: P) -> Status => [called] runtime::malloc_async;
    "cudaMallocFromPoolAsync" in Cudart as MALLOC_FROM_POOL_ASYNC (p: *mut P, n: usize, pool: P, s: P) -> Status => [called] runtime::malloc_from_pool_async;
    "cudaFreeAsync" in Cudart as FREE_ASYNC (p: P, s: P) -> Status => runtime::free_async;
    "cudaMallocAsync_ptsz" in Cudart as MALLOC_ASYNC_PTSZ (p: *mut P, n: usize, s: P) -> Status => [called] runtime::malloc_async_ptsz;
    "cudaMallocFromPoolAsync_ptsz" in Cudart as MALLOC_FROM_POOL_ASYNC_PTSZ (p: *mut P, n: usize, pool: P, s: P) -> Status => [called] runtime::malloc_from_pool_async_ptsz;
    "cudaFreeAsync_ptsz" in Cudart as FREE_ASYNC_PTSZ (p: P, s: P) -> Status => runtime::free_async_ptsz;
    "cudaHostAlloc" in Cudart as HOST_ALLOC (p: *mut P, n: usize, flags: u32) -> Status => [called] runtime::host_alloc;
    "cudaMallocHost" in Cudart as MALLOC_HOST (p: *mut P, n: usize) -> Status => [called] runtime::malloc_host;
    "cudaFreeHost" in Cudart as FREE_HOST (p: P) -> Status => runtime::free_host;
    "cudaMallocManaged" in Cudart as MALLOC_MANAGED (p: *mut P, n: usize, flags: u32) -> Status => [called] runtime::malloc_managed;
    // What the program asks about its devices.
    "cudaMemGetInfo" in Cudart as MEM_GET_INFO (free: *mut usize, total: *mut usize) -> Status => runtime::mem_get_info;
    "cudaGetDeviceProperties" in Cudart as GET_DEVICE_PROPERTIES (p: P, device: i32) -> Status => runtime::get_device_properties;
    "cudaGetDeviceProperties_v2" in Cudart as GET_DEVICE_PROPERTIES_V2 (p: P, device: i32) -> Status => runtime::get_device_properties_v2;
    "cudaSetDevice" in Cudart as SET_DEVICE (device: i32) -> Status => runtime::set_device;
    // Streams and events.
    "cudaStreamCreate" in Cudart as STREAM_CREATE (s: *mut P) -> Status => streams::create;
    "cudaStreamCreateWithFlags" in Cudart as STREAM_CREATE_WITH_FLAGS (s: *mut P, flags: u32) -> Status => streams::create_with_flags;
    "cudaStreamCreateWithPriority" in Cudart as STREAM_CREATE_WITH_PRIORITY (s: *mut P, flags: u32, priority: i32) -> Status => streams::create_with_priority;
    "cudaStreamDestroy" in Cudart as STREAM_DESTROY (s: P) -> Status => streams::destroy;
    "cudaEventRecord" in Cudart as EVENT_RECORD (e: P, s: P) -> Status => streams::event_record;
    "cudaEventRecordWithFlags" in Cudart as EVENT_RECORD_WITH_FLAGS (e: P, s: P, flags: u32) -> Status => streams::event_record_with_flags;
    "cudaEventDestroy" in Cudart as EVENT_DESTROY (e: P) -> Status => streams::event_destroy;
    "cudaStreamWaitEvent" in Cudart as STREAM_WAIT_EVENT (s: P, e: P, flags: u32) -> Status => streams::wait_event;
    // What the host learns.
    "cudaStreamSynchronize" in Cudart as STREAM_SYNCHRONIZE (s: P) -> Status => streams::synchronize;
    "cudaStreamQuery" in Cudart as STREAM_QUERY (s: P) -> Status => streams::query;
    "cudaEventSynchronize" in Cudart as EVENT_SYNCHRONIZE (e: P) -> Status => streams::event_synchronize;
    "cudaEventQuery" in Cudart as EVENT_QUERY (e: P) -> Status => streams::event_query;
    "cudaDeviceSynchronize" in Cudart as DEVICE_SYNCHRONIZE () -> Status => streams::device_synchronize;
    "cudaMemcpy" in Cudart as MEMCPY (to: P, from: P, n: usize, kind: i32) -> Status => streams::memcpy;
    // Who else hears first that a device's context is broken.
    "cudaMemcpyAsync" in Cudart as MEMCPY_ASYNC (to: P, from: P, n: usize, kind: i32, s: P) -> Status => failed::memcpy_async;
    "cudaGetLastError" in Cudart as GET_LAST_ERROR () -> Status => [often] failed::get_last_error;
    "cuCtxSynchronize" in Driver as CU_CTX_SYNCHRONIZE () -> Status => failed::context_synchronize;
    "cuStreamSynchronize" in Driver as CU_STREAM_SYNCHRONIZE (s: P) -> Status => failed::stream_synchronize;
    "cuStreamSynchronize_ptsz" in Driver as CU_STREAM_SYNCHRONIZE_PTSZ (s: P) -> Status => failed::stream_synchronize_ptsz;
    "cuEventSynchronize" in Driver as CU_EVENT_SYNCHRONIZE (e: P) -> Status => failed::event_synchronize;
    "cuMemcpyDtoH_v2" in Driver as CU_MEMCPY_DTOH (to: P, from: P, n: usize) -> Status => failed::copy_to_host;
    "cuMemcpyDtoHAsync_v2" in Driver as CU_MEMCPY_DTOH_ASYNC (to: P, from: P, n: usize, s: P) -> Status => failed::copy_to_host_async;
    // Capture.
    "cudaStreamBeginCapture" in Cudart as STREAM_BEGIN_CAPTURE (s: P, mode: i32) -> Status => streams::begin_capture;
    "cudaStreamEndCapture" in Cudart as STREAM_END_CAPTURE (s: P, graph: *mut P) -> Status => streams::end_capture;
    // The driver, for whoever goes past the runtime: programs and libraries with a runtime of their own inside.
    "cuGetProcAddress" in Driver as GET_PROC_ADDRESS (name: *const c_char, f: *mut P, version: i32, flags: u64) -> Status => [called] asked::get_proc_address;
    "cuGetProcAddress_v2" in Driver as GET_PROC_ADDRESS_V2 (name: *const c_char, f: *mut P, version: i32, flags: u64, status: P) -> Status => [called] asked::get_proc_address_v2;
    "cuMemAlloc_v2" in Driver as CU_MEM_ALLOC (p: *mut P, n: usize) -> Status => [called] driver::alloc;
    "cuMemAllocPitch_v2" in Driver as CU_MEM_ALLOC_PITCH (p: *mut P, pitch: *mut usize, width: usize, height: usize, element: u32) -> Status => [called] driver::alloc_pitch;
    "cuMemAllocManaged" in Driver as CU_MEM_ALLOC_MANAGED (p: *mut P, n: usize, flags: u32) -> Status => [called] driver::alloc_managed;
    "cuMemFree_v2" in Driver as CU_MEM_FREE (p: P) -> Status => driver::free;
    "cuMemAllocAsync" in Driver as CU_MEM_ALLOC_ASYNC (p: *mut P, n: usize, s: P) -> Status => [called] driver::alloc_async;
    "cuMemAllocAsync_ptsz" in Driver as CU_MEM_ALLOC_ASYNC_PTSZ (p: *mut P, n: usize, s: P) -> Status => [called] driver::alloc_async_ptsz;
    "cuMemAllocFromPoolAsync" in Driver as CU_MEM_ALLOC_FROM_POOL_ASYNC (p: *mut P, n: usize, pool: P, s: P) -> Status => [called] driver::alloc_from_pool_async;
    "cuMemAllocFromPoolAsync_ptsz" in Driver as CU_MEM_ALLOC_FROM_POOL_ASYNC_PTSZ (p: *mut P, n: usize, pool: P, s: P) -> Status => [called] driver::alloc_from_pool_async_ptsz;
    "cuMemFreeAsync" in Driver as CU_MEM_FREE_ASYNC (p: P, s: P) -> Status => driver::free_async;
    "cuMemFreeAsync_ptsz" in Driver as CU_MEM_FREE_ASYNC_PTSZ (p: P, s: P) -> Status => driver::free_async_ptsz;
    "cuMemHostAlloc" in Driver as CU_MEM_HOST_ALLOC (p: *mut P, n: usize, flags: u32) -> Status => [called] driver::host_alloc;
    "cuMemAllocHost_v2" in Driver as CU_MEM_ALLOC_HOST (p: *mut P, n: usize) -> Status => [called] driver::alloc_host;
    "cuMemFreeHost" in Driver as CU_MEM_FREE_HOST (p: P) -> Status => driver::free_host;
    "cuMemCreate" in Driver as CU_MEM_CREATE (handle: *mut u64, n: usize, properties: P, flags: u64) -> Status => [called] driver::create;
    "cuMemRelease" in Driver as CU_MEM_RELEASE (handle: u64) -> Status => driver::release;
    "cuMemMap" in Driver as CU_MEM_MAP (p: P, n: usize, offset: usize, handle: u64, flags: u64) -> Status => [called] driver::map;
    "cuMemUnmap" in Driver as CU_MEM_UNMAP (p: P, n: usize) -> Status => driver::unmap;
    "cuMemGetInfo_v2" in Driver as CU_MEM_GET_INFO (free: *mut usize, total: *mut usize) -> Status => driver::mem_get_info;
    "cuDeviceTotalMem_v2" in Driver as CU_DEVICE_TOTAL_MEM (total: *mut usize, device: i32) -> Status => driver::total_mem;
    "cuDevicePrimaryCtxRetain" in Driver as CU_PRIMARY_CTX_RETAIN (context: *mut P, device: i32) -> Status => context::retain;
    "cuCtxCreate_v2" in Driver as CU_CTX_CREATE (context: *mut P, flags: u32, device: i32) -> Status => context::create;
    "cuCtxCreate_v4" in Driver as CU_CTX_CREATE_V4 (context: *mut P, parameters: P, flags: u32, device: i32) -> Status => context::create_v4;
    "cuCtxSetCurrent" in Driver as CU_CTX_SET_CURRENT (context: P) -> Status => context::set_current;
    "cuCtxPushCurrent_v2" in Driver as CU_CTX_PUSH_CURRENT (context: P) -> Status => context::push;
    "cuCtxPopCurrent_v2" in Driver as CU_CTX_POP_CURRENT (context: *mut P) -> Status => context::pop;
    // c10: triggers, scopes, the allocator's report.
    "_ZN3c104cuda6detail21init_p2p_access_cacheEl" in C10Cuda as INIT_P2P_ACCESS_CACHE (devices: i64) => torch::init_p2p_access_cache;
    "_ZN3c104cuda20getCurrentCUDAStreamEa" in C10Cuda as GET_CURRENT_STREAM (device: i8) -> Stream => [often] torch::get_current_stream;
    "_ZN3c104cuda20setCurrentCUDAStreamENS0_10CUDAStreamE" in C10Cuda as SET_CURRENT_STREAM (device: u64, id: u64) => [often] torch::set_current_stream;
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE" in C10 as REPORT_MEMORY_USAGE (p: u64, size: i64, allocated: u64, reserved: u64, device: u64) => [often] torch::report_memory_usage;
    "_ZN3c1013setThreadNameENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE" in C10 as SET_THREAD_NAME (name: P) => torch::set_thread_name;
    // ATen and autograd.
    "_ZN2at6native18record_stream_cudaERNS_6TensorEN3c106StreamE" in TorchCuda as RECORD_STREAM (tensor: P, device: u64, id: u64) => torch::record_stream;
    "_ZN2at4_ops18_amp_update_scale_4callERNS_6TensorES3_RKS2_ddl" in TorchCpu as AMP_UPDATE_SCALE (scale: P, tracker: P, found: P, growth: f64, backoff: f64, interval: i64) -> P => autograd::amp_update_scale;
    "_ZN5torch8autograd4impl13gradient_edgeERKN2at6TensorE" in TorchCpu as GRADIENT_EDGE (out: P, tensor: P) -> P => [called] autograd::gradient_edge;
    "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_" in TorchCpu as ENGINE_EXECUTE (out: P, engine: P, roots: P, inputs: P, keep: u64, create: u64, accumulate: u64, outputs: P) -> P => autograd::execute;
    "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE" in TorchCpu as ENGINE_EVALUATE (engine: P, task: P, node: P, inputs: P, queue: P) => [often] autograd::evaluate_function;
}

/// Calls the real function of CUDA behind a hook; `on`: the stream that the call is about.
macro_rules! forward {
    ($real:ident($($a:expr),*)) => {
        $crate::hooks::forward!($real($($a),*) on core::ptr::null_mut())
    };
    ($real:ident($($a:expr),*) on $stream:expr) => {
        match $crate::hooks::real::$real.get() {
            Some(f) => {
                // SAFETY: the arguments are those of the hook's own caller.
                let status = unsafe { f($($a),*) };
                if status != $crate::hooks::SUCCESS {
                    $crate::hooks::failed::look(status, $crate::hooks::id::$real, $stream);
                }
                status
            }
            None => $crate::hooks::NOTHING_BEHIND,
        }
    };
}
pub(crate) use forward;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_symbol_is_listed_twice_and_all_are_of_cuda_or_torch() {
        let mut all = HOOKED.to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), HOOKED.len());
        for s in HOOKED {
            let of_driver = s.starts_with("cu") && s.as_bytes().get(2).is_some_and(u8::is_ascii_uppercase);
            let ours = ["cuda", "_ZN3c10", "_ZN2at", "_ZN5torch"].iter().any(|p| s.starts_with(p));
            assert!(ours || of_driver, "{s}");
        }
        let of_cuda = |s: &&&str| s.starts_with("cu");
        assert_eq!(
            HOOKED.iter().find(|s| of_cuda(s) && !strandline_core::event::CALLS.contains(s)),
            None,
            "a call without a number"
        );
        let others = ["InitializeInjectionNvtx2", "dlsym"];
        assert!(CONTROL.iter().all(|s| s.starts_with("strandline_") || others.contains(s)));
    }
}
