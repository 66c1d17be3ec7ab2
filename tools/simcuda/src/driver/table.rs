//! Driver functions by name: what `cuGetProcAddress` and the runtime's entry points give out.

use super::{context, device, memory, pool, stream, vmm};
use crate::abi::{Out, Text};
use crate::call::driver;
use crate::code::Code;
use crate::note;

/// From this version on `cuGetProcAddress` takes a fifth argument.
const FIVE_ARGUMENTS: i32 = 12_000;
/// The flag with which it gives out functions for threads with a default stream of their own.
const PER_THREAD: u64 = 2;

macro_rules! names {
    ($($name:literal = $function:path;)*) => {
        /// The address of the function that a program means by `name`: the plain name stands for the newest form.
        fn plain(name: &str) -> Option<usize> {
            match name {
                $($name => Some($function as *const () as usize),)*
                _ => None,
            }
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$($name),*];
    };
}

names! {
    "cuInit" = device::sim_cuInit;
    "cuDriverGetVersion" = device::sim_cuDriverGetVersion;
    "cuDeviceGetCount" = device::sim_cuDeviceGetCount;
    "cuDeviceGet" = device::sim_cuDeviceGet;
    "cuDeviceGetAttribute" = device::sim_cuDeviceGetAttribute;
    "cuDeviceGetName" = device::sim_cuDeviceGetName;
    "cuDeviceTotalMem" = device::sim_cuDeviceTotalMem_v2;
    "cuDeviceGetUuid" = device::sim_cuDeviceGetUuid_v2;
    "cuDeviceGetPCIBusId" = device::sim_cuDeviceGetPCIBusId;
    "cuDeviceGetByPCIBusId" = device::sim_cuDeviceGetByPCIBusId;
    "cuGetErrorString" = device::sim_cuGetErrorString;
    "cuGetErrorName" = device::sim_cuGetErrorName;
    "cuTensorMapEncodeTiled" = device::sim_cuTensorMapEncodeTiled;
    "cuTensorMapEncodeIm2col" = device::sim_cuTensorMapEncodeIm2col;
    "cuCtxGetCurrent" = context::sim_cuCtxGetCurrent;
    "cuCtxSetCurrent" = context::sim_cuCtxSetCurrent;
    "cuCtxPushCurrent" = context::sim_cuCtxPushCurrent_v2;
    "cuCtxPopCurrent" = context::sim_cuCtxPopCurrent_v2;
    "cuCtxGetDevice" = context::sim_cuCtxGetDevice;
    "cuCtxSynchronize" = context::sim_cuCtxSynchronize;
    "cuDevicePrimaryCtxRetain" = context::sim_cuDevicePrimaryCtxRetain;
    "cuDevicePrimaryCtxRelease" = context::sim_cuDevicePrimaryCtxRelease_v2;
    "cuDevicePrimaryCtxGetState" = context::sim_cuDevicePrimaryCtxGetState;
    "cuMemGetInfo" = memory::sim_cuMemGetInfo_v2;
    "cuMemAlloc" = memory::sim_cuMemAlloc_v2;
    "cuMemAllocPitch" = memory::sim_cuMemAllocPitch_v2;
    "cuMemHostAlloc" = memory::cuMemHostAlloc;
    "cuMemAllocHost" = memory::cuMemAllocHost_v2;
    "cuMemFreeHost" = memory::cuMemFreeHost;
    "cuMemAllocManaged" = memory::sim_cuMemAllocManaged;
    "cuMemFree" = memory::sim_cuMemFree_v2;
    "cuMemAllocAsync" = memory::cuMemAllocAsync;
    "cuMemFreeAsync" = memory::cuMemFreeAsync;
    "cuMemAllocAsync_ptsz" = memory::sim_cuMemAllocAsync_ptsz;
    "cuMemFreeAsync_ptsz" = memory::sim_cuMemFreeAsync_ptsz;
    "cuMemAllocFromPoolAsync_ptsz" = pool::sim_cuMemAllocFromPoolAsync_ptsz;
    "cuMemAllocFromPoolAsync" = pool::cuMemAllocFromPoolAsync;
    "cuDeviceGetDefaultMemPool" = pool::cuDeviceGetDefaultMemPool;
    "cuDeviceGetMemPool" = pool::cuDeviceGetMemPool;
    "cuDeviceSetMemPool" = pool::cuDeviceSetMemPool;
    "cuMemPoolCreate" = pool::cuMemPoolCreate;
    "cuMemPoolDestroy" = pool::cuMemPoolDestroy;
    "cuMemPoolGetAttribute" = pool::cuMemPoolGetAttribute;
    "cuMemPoolSetAttribute" = pool::cuMemPoolSetAttribute;
    "cuMemPoolSetAccess" = pool::cuMemPoolSetAccess;
    "cuMemPoolTrimTo" = pool::cuMemPoolTrimTo;
    "cuThreadExchangeStreamCaptureMode" = stream::cuThreadExchangeStreamCaptureMode;
    "cuMemGetAddressRange" = memory::sim_cuMemGetAddressRange_v2;
    "cuPointerGetAttribute" = memory::sim_cuPointerGetAttribute;
    "cuMemGetAllocationGranularity" = vmm::sim_cuMemGetAllocationGranularity;
    "cuMemAddressReserve" = vmm::sim_cuMemAddressReserve;
    "cuMemAddressFree" = vmm::sim_cuMemAddressFree;
    "cuMemCreate" = vmm::sim_cuMemCreate;
    "cuMemRelease" = vmm::sim_cuMemRelease;
    "cuMemMap" = vmm::sim_cuMemMap;
    "cuMemSetAccess" = vmm::sim_cuMemSetAccess;
    "cuMemGetAccess" = vmm::sim_cuMemGetAccess;
    "cuMemUnmap" = vmm::sim_cuMemUnmap;
    "cuMemRetainAllocationHandle" = vmm::sim_cuMemRetainAllocationHandle;
    "cuMemGetAllocationPropertiesFromHandle" = vmm::sim_cuMemGetAllocationPropertiesFromHandle;
    "cuStreamCreate" = stream::cuStreamCreate;
    "cuStreamCreateWithPriority" = stream::cuStreamCreateWithPriority;
    "cuStreamDestroy" = stream::cuStreamDestroy_v2;
    "cuStreamQuery" = stream::cuStreamQuery;
    "cuStreamSynchronize" = stream::cuStreamSynchronize;
    "cuStreamWaitEvent" = stream::cuStreamWaitEvent;
    "cuStreamAddCallback" = stream::sim_cuStreamAddCallback;
    "cuLaunchHostFunc" = stream::sim_cuLaunchHostFunc;
    "cuStreamIsCapturing" = stream::cuStreamIsCapturing;
    "cuEventCreate" = stream::cuEventCreate;
    "cuEventDestroy" = stream::cuEventDestroy_v2;
    "cuEventRecord" = stream::cuEventRecord;
    "cuEventQuery" = stream::cuEventQuery;
    "cuEventSynchronize" = stream::cuEventSynchronize;
    "cuMemsetD32Async" = stream::sim_cuMemsetD32Async;
    "cuStreamWriteValue32" = stream::sim_cuStreamWriteValue32_v2;
    // Not simulated, but asked for by everybody who maps memory: they fail by name when they are called.
    "cuMemExportToShareableHandle" = super::absent::cuMemExportToShareableHandle;
    "cuMemImportFromShareableHandle" = super::absent::cuMemImportFromShareableHandle;
    "cuMulticastCreate" = super::absent::cuMulticastCreate;
    "cuMulticastAddDevice" = super::absent::cuMulticastAddDevice;
    "cuMulticastBindMem" = super::absent::cuMulticastBindMem;
    "cuMulticastUnbind" = super::absent::cuMulticastUnbind;
    "cuGreenCtxCreate" = super::absent::cuGreenCtxCreate;
    "cuGreenCtxDestroy" = super::absent::cuGreenCtxDestroy;
    "cuGreenCtxStreamCreate" = super::absent::cuGreenCtxStreamCreate;
    "cuCtxFromGreenCtx" = super::absent::cuCtxFromGreenCtx;
    "cuDeviceGetDevResource" = super::absent::cuDeviceGetDevResource;
    "cuDevSmResourceSplitByCount" = super::absent::cuDevSmResourceSplitByCount;
    "cuDevResourceGenerateDesc" = super::absent::cuDevResourceGenerateDesc;
}

/// The function that a program means by `name` for a version of CUDA.
pub fn find(name: &str, version: i32) -> Option<usize> {
    match name.strip_suffix("_v2").unwrap_or(name) {
        "cuGetProcAddress" if version < FIVE_ARGUMENTS => Some(sim_cuGetProcAddress as *const () as usize),
        "cuGetProcAddress" => Some(sim_cuGetProcAddress_v2 as *const () as usize),
        name => plain(name),
    }
}

/// The same with flags.
fn find_with(name: &str, version: i32, flags: u64) -> Option<usize> {
    let own = || if flags & PER_THREAD == 0 { None } else { plain(&format!("{name}_ptsz")) };
    own().or_else(|| find(name, version))
}

/// The form of CUDA 11.3 to 11.8.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuGetProcAddress(name: Text, function: Out<usize>, version: i32, flags: u64) -> Code {
    driver("cuGetProcAddress", || {
        note!("{} version {version}", name.as_str());
        let found = find_with(name.as_str(), version, flags);
        function.set(found.unwrap_or(0))?;
        found.map(drop).ok_or(Code::NOT_FOUND)
    })
}

/// The form since CUDA 12, which also says why nothing was found.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuGetProcAddress_v2(
    name: Text,
    function: Out<usize>,
    version: i32,
    flags: u64,
    status: Out<i32>,
) -> Code {
    driver("cuGetProcAddress_v2", || {
        note!("{} version {version}", name.as_str());
        let found = find_with(name.as_str(), version, flags);
        status.offer(if found.is_some() { 0 } else { 1 });
        function.set(found.unwrap_or(0))?;
        found.map(drop).ok_or(Code::NOT_FOUND)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lookup_itself_has_the_form_of_the_version_that_is_asked_for() {
        let four = find("cuGetProcAddress", 11_030);
        let five = find("cuGetProcAddress", 12_000);
        assert!(four.is_some() && five.is_some() && four != five);
        assert_eq!(find("cuGetProcAddress_v2", 13_000), five);
    }

    #[test]
    fn names_are_found_with_and_without_their_suffix() {
        for name in NAMES {
            assert!(find(name, 13_000).is_some(), "{name}");
        }
        assert_eq!(find("cuMemAlloc_v2", 13_000), find("cuMemAlloc", 13_000));
        assert_eq!(find("cuNothing", 13_000), None);
    }
}
