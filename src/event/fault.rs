//! The first CUDA call that fails because a device's context is broken: something went wrong on the device some time before,
//! and from then on every call of the process fails in the same way.

use super::{DeviceId, StackId, StreamHandle};

/// That call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which call: its place in [`CALLS`].
    pub call: u32,
    /// What it returned. Runtime and driver number these errors alike (`cudaError_t`, `CUresult`).
    pub status: u32,
    /// The device of the thread that called.
    pub device: DeviceId,
    /// The stream that the call was about; 0 where it was about none.
    pub stream: StreamHandle,
    /// Who called.
    pub stack: StackId,
}

/// Calls by number. Numbers are written into recordings: new names go to the end.
pub const CALLS: &[&str] = &[
    "a CUDA call",
    "cudaGetLastError",
    "cudaMalloc",
    "cudaFree",
    "cudaMallocPitch",
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cudaFreeAsync",
    "cudaMallocAsync_ptsz",
    "cudaMallocFromPoolAsync_ptsz",
    "cudaFreeAsync_ptsz",
    "cudaHostAlloc",
    "cudaMallocHost",
    "cudaFreeHost",
    "cudaMallocManaged",
    "cudaMemGetInfo",
    "cudaGetDeviceProperties",
    "cudaGetDeviceProperties_v2",
    "cudaSetDevice",
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaEventRecord",
    "cudaEventRecordWithFlags",
    "cudaEventDestroy",
    "cudaStreamWaitEvent",
    "cudaStreamSynchronize",
    "cudaStreamQuery",
    "cudaEventSynchronize",
    "cudaEventQuery",
    "cudaDeviceSynchronize",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemFree_v2",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuMemFreeAsync",
    "cuMemFreeAsync_ptsz",
    "cuMemHostAlloc",
    "cuMemAllocHost_v2",
    "cuMemFreeHost",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemGetInfo_v2",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuCtxCreate_v2",
    "cuCtxCreate_v4",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuStreamSynchronize_ptsz",
    "cuEventSynchronize",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2_ptds",
    "cuMemcpyDtoHAsync_v2_ptsz",
    "cuCtxSynchronize_v2",
    "cudaStreamBeginCaptureToGraph",
];

/// Whether a status is one that stays: the process can make no use of the device any more. cuda.h says of each of these that the
/// process must be ended and begun anew.
pub fn stays(status: u32) -> bool {
    // Uncorrectable memory, NVLink; contained; illegal address; timeout; assert; hardware stack, illegal instruction, misaligned
    // address, address space, program counter, launch failure.
    matches!(status, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719)
}

impl Fault {
    /// The call's name.
    pub fn name(&self) -> &'static str {
        CALLS.get(self.call as usize).copied().unwrap_or(CALLS[0])
    }

    /// What the number of the error says, in words of our own.
    pub fn words(&self) -> &'static str {
        match self.status {
            214 => "an uncorrectable ECC error",
            220 => "an uncorrectable NVLink error",
            226 => "a memory error that the device has contained",
            700 => "an illegal memory access",
            702 => "a kernel launch timeout",
            710 => "a failed assertion in a kernel",
            714 => "a hardware stack error",
            715 => "an illegal instruction",
            716 => "a misaligned address",
            717 => "an access in the wrong address space",
            718 => "an invalid program counter",
            _ => "a kernel that failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_pass_are_no_faults() {
        assert!([214, 700, 702, 710, 714, 719].into_iter().all(stays));
        // Invalid value, out of memory, not ready, peer access, not supported, a capture's.
        assert!(![0, 1, 2, 600, 704, 720, 801, 900, 901].into_iter().any(stays));
    }

    #[test]
    fn every_call_has_one_number() {
        let mut all = CALLS.to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), CALLS.len());
        let f = Fault {
            call: 9999,
            status: 710,
            device: DeviceId(0),
            stream: StreamHandle(0),
            stack: StackId(0),
        };
        assert_eq!((f.name(), f.words()), ("a CUDA call", "a failed assertion in a kernel"));
    }
}
