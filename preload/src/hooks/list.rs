//! THE list of hooked functions, handed to a macro: each with its library, its type, and the hook before it.

/// Calls `$with!` with the list.
macro_rules! for_each_hook {
    ($with:ident) => {
        $with! {
    // Memory of the runtime.
    "cudaMalloc" in Cudart as MALLOC (p: *mut P, n: usize) -> Status => [called] runtime::malloc;
    "cudaFree" in Cudart as FREE (p: P) -> Status => [called] runtime::free;
    "cudaMallocPitch" in Cudart as MALLOC_PITCH (p: *mut P, pitch: *mut usize, width: usize, height: usize) -> Status => [called] runtime::malloc_pitch;
    "cudaMallocAsync" in Cudart as MALLOC_ASYNC (p: *mut P, n: usize, s: P) -> Status => [called] runtime::malloc_async;
    "cudaMallocFromPoolAsync" in Cudart as MALLOC_FROM_POOL_ASYNC (p: *mut P, n: usize, pool: P, s: P) -> Status => [called] runtime::malloc_from_pool_async;
    "cudaFreeAsync" in Cudart as FREE_ASYNC (p: P, s: P) -> Status => [called] runtime::free_async;
    "cudaMallocAsync_ptsz" in Cudart as MALLOC_ASYNC_PTSZ (p: *mut P, n: usize, s: P) -> Status => [called] runtime::malloc_async_ptsz;
    "cudaMallocFromPoolAsync_ptsz" in Cudart as MALLOC_FROM_POOL_ASYNC_PTSZ (p: *mut P, n: usize, pool: P, s: P) -> Status => [called] runtime::malloc_from_pool_async_ptsz;
    "cudaFreeAsync_ptsz" in Cudart as FREE_ASYNC_PTSZ (p: P, s: P) -> Status => [called] runtime::free_async_ptsz;
    "cudaHostAlloc" in Cudart as HOST_ALLOC (p: *mut P, n: usize, flags: u32) -> Status => [called] runtime::host_alloc;
    "cudaMallocHost" in Cudart as MALLOC_HOST (p: *mut P, n: usize) -> Status => [called] runtime::malloc_host;
    "cudaFreeHost" in Cudart as FREE_HOST (p: P) -> Status => [called] runtime::free_host;
    "cudaMallocManaged" in Cudart as MALLOC_MANAGED (p: *mut P, n: usize, flags: u32) -> Status => [called] runtime::malloc_managed;
    // What the program asks about its devices.
    "cudaMemGetInfo" in Cudart as MEM_GET_INFO (free: *mut usize, total: *mut usize) -> Status => [called] runtime::mem_get_info;
    "cudaGetDeviceProperties" in Cudart as GET_DEVICE_PROPERTIES (p: P, device: i32) -> Status => [called] runtime::get_device_properties;
    "cudaGetDeviceProperties_v2" in Cudart as GET_DEVICE_PROPERTIES_V2 (p: P, device: i32) -> Status => [called] runtime::get_device_properties_v2;
    "cudaSetDevice" in Cudart as SET_DEVICE (device: i32) -> Status => [called] runtime::set_device;
    // Streams and events.
    "cudaStreamCreate" in Cudart as STREAM_CREATE (s: *mut P) -> Status => [called] streams::create;
    "cudaStreamCreateWithFlags" in Cudart as STREAM_CREATE_WITH_FLAGS (s: *mut P, flags: u32) -> Status => [called] streams::create_with_flags;
    "cudaStreamCreateWithPriority" in Cudart as STREAM_CREATE_WITH_PRIORITY (s: *mut P, flags: u32, priority: i32) -> Status => [called] streams::create_with_priority;
    "cudaStreamDestroy" in Cudart as STREAM_DESTROY (s: P) -> Status => [called] streams::destroy;
    "cudaEventRecord" in Cudart as EVENT_RECORD (e: P, s: P) -> Status => [called] streams::event_record;
    "cudaEventRecordWithFlags" in Cudart as EVENT_RECORD_WITH_FLAGS (e: P, s: P, flags: u32) -> Status => [called] streams::event_record_with_flags;
    "cudaEventDestroy" in Cudart as EVENT_DESTROY (e: P) -> Status => [called] streams::event_destroy;
    "cudaStreamWaitEvent" in Cudart as STREAM_WAIT_EVENT (s: P, e: P, flags: u32) -> Status => [called] streams::wait_event;
    // What the host learns.
    "cudaStreamSynchronize" in Cudart as STREAM_SYNCHRONIZE (s: P) -> Status => [called] streams::synchronize;
    "cudaStreamQuery" in Cudart as STREAM_QUERY (s: P) -> Status => [called] streams::query;
    "cudaEventSynchronize" in Cudart as EVENT_SYNCHRONIZE (e: P) -> Status => [called] streams::event_synchronize;
    "cudaEventQuery" in Cudart as EVENT_QUERY (e: P) -> Status => [called] streams::event_query;
    "cudaDeviceSynchronize" in Cudart as DEVICE_SYNCHRONIZE () -> Status => [called] streams::device_synchronize;
    "cudaMemcpy" in Cudart as MEMCPY (to: P, from: P, n: usize, kind: i32) -> Status => [called] streams::memcpy;
    // Who else hears first that a device's context is broken.
    "cudaMemcpyAsync" in Cudart as MEMCPY_ASYNC (to: P, from: P, n: usize, kind: i32, s: P) -> Status => [called] sticky_error::memcpy_async;
    "cudaGetLastError" in Cudart as GET_LAST_ERROR () -> Status => [often_called] sticky_error::get_last_error;
    "cuCtxSynchronize" in Driver as CU_CTX_SYNCHRONIZE () -> Status => sticky_error::context_synchronize;
    "cuCtxSynchronize_v2" in Driver as CU_CTX_SYNCHRONIZE_V2 (context: P) -> Status => sticky_error::context_synchronize_v2;
    "cuStreamSynchronize" in Driver as CU_STREAM_SYNCHRONIZE (s: P) -> Status => sticky_error::stream_synchronize;
    "cuStreamSynchronize_ptsz" in Driver as CU_STREAM_SYNCHRONIZE_PTSZ (s: P) -> Status => sticky_error::stream_synchronize_ptsz;
    "cuEventSynchronize" in Driver as CU_EVENT_SYNCHRONIZE (e: P) -> Status => sticky_error::event_synchronize;
    "cuMemcpyDtoH_v2" in Driver as CU_MEMCPY_DTOH (to: P, from: P, n: usize) -> Status => sticky_error::copy_to_host;
    "cuMemcpyDtoHAsync_v2" in Driver as CU_MEMCPY_DTOH_ASYNC (to: P, from: P, n: usize, s: P) -> Status => sticky_error::copy_to_host_async;
    "cuMemcpyDtoH_v2_ptds" in Driver as CU_MEMCPY_DTOH_PTDS (to: P, from: P, n: usize) -> Status => sticky_error::copy_to_host_ptds;
    "cuMemcpyDtoHAsync_v2_ptsz" in Driver as CU_MEMCPY_DTOH_ASYNC_PTSZ (to: P, from: P, n: usize, s: P) -> Status => sticky_error::copy_to_host_async_ptsz;
    // Capture.
    "cudaStreamBeginCapture" in Cudart as STREAM_BEGIN_CAPTURE (s: P, mode: i32) -> Status => [called] streams::begin_capture;
    "cudaStreamBeginCaptureToGraph" in Cudart as STREAM_BEGIN_CAPTURE_TO_GRAPH (s: P, graph: P, after: P, data: P, count: usize, mode: i32) -> Status => [called] streams::begin_capture_to_graph;
    "cudaStreamEndCapture" in Cudart as STREAM_END_CAPTURE (s: P, graph: *mut P) -> Status => [called] streams::end_capture;
    // The driver, for whoever goes past the runtime: programs and libraries with a runtime of their own inside.
    "cuGetProcAddress" in Driver as GET_PROC_ADDRESS (name: *const c_char, f: *mut P, version: i32, flags: u64) -> Status => [called] entry_points::get_proc_address::<All>;
    "cuGetProcAddress_v2" in Driver as GET_PROC_ADDRESS_V2 (name: *const c_char, f: *mut P, version: i32, flags: u64, status: P) -> Status => [called] entry_points::get_proc_address_v2::<All>;
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
    };
}
pub(super) use for_each_hook;
