//! `cudaDeviceProp`, as CUDA 13 lays it out and as CUDA 12 did.

use crate::abi::Out;
use crate::call::runtime;
use crate::code::{Code, Outcome};
use crate::device::{self, Device};
use crate::model::lock;

const SIZE_13: usize = 1008;
const SIZE_12: usize = 1032;

/// A layout: fields of four bytes and of eight, each an attribute and where its value stands.
struct Layout {
    words: &'static [(i32, usize)],
    wide: &'static [(i32, usize)],
}

/// The beginning, which did not change: registers, warp, threads, grid, capability; shared and constant memory, pitch
/// and alignment.
const WORDS: [(i32, usize); 11] = [
    (12, 304),
    (10, 308),
    (1, 320),
    (2, 324),
    (2, 328),
    (3, 332),
    (5, 336),
    (6, 340),
    (7, 344),
    (75, 360),
    (76, 364),
];
const WIDE: [(i32, usize); 4] = [(8, 296), (11, 312), (9, 352), (14, 368)];

/// The rest in CUDA 13, which dropped clock rates and others.
const CUDA_13: Layout = Layout {
    words: &[
        (16, 384),  // multiProcessorCount
        (19, 392),  // canMapHostMemory
        (31, 560),  // concurrentKernels
        (32, 564),  // ECCEnabled
        (33, 568),  // pciBusID
        (40, 584),  // asyncEngineCount
        (41, 588),  // unifiedAddressing
        (37, 592),  // memoryBusWidth
        (38, 596),  // l2CacheSize
        (39, 604),  // maxThreadsPerMultiProcessor
        (78, 608),  // streamPrioritiesSupported
        (82, 632),  // regsPerMultiprocessor
        (83, 636),  // managedMemory
        (95, 668),  // cooperativeLaunch
        (106, 688), // maxBlocksPerMultiProcessor
        (99, 704),  // hostRegisterSupported
        (115, 720), // memoryPoolsSupported
    ],
    wide: &[
        (81, 624),  // sharedMemPerMultiprocessor
        (97, 672),  // sharedMemPerBlockOptin
        (111, 696), // reservedSharedMemPerBlock
    ],
};

/// The rest in CUDA 12.
const CUDA_12: Layout = Layout {
    words: &[
        (13, 348),  // clockRate
        (16, 388),  // multiProcessorCount
        (19, 400),  // canMapHostMemory
        (31, 576),  // concurrentKernels
        (32, 580),  // ECCEnabled
        (33, 584),  // pciBusID
        (40, 600),  // asyncEngineCount
        (41, 604),  // unifiedAddressing
        (36, 608),  // memoryClockRate
        (37, 612),  // memoryBusWidth
        (38, 616),  // l2CacheSize
        (39, 624),  // maxThreadsPerMultiProcessor
        (78, 628),  // streamPrioritiesSupported
        (82, 648),  // regsPerMultiprocessor
        (83, 652),  // managedMemory
        (95, 688),  // cooperativeLaunch
        (106, 712), // maxBlocksPerMultiProcessor
        (99, 728),  // hostRegisterSupported
        (115, 744), // memoryPoolsSupported
    ],
    wide: &[
        (81, 640),  // sharedMemPerMultiprocessor
        (97, 696),  // sharedMemPerBlockOptin
        (111, 720), // reservedSharedMemPerBlock
    ],
};

/// The properties of a device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetDeviceProperties(properties: Out<[u8; SIZE_13]>, device: i32) -> Code {
    runtime("cudaGetDeviceProperties", || properties.set(fill(device, &CUDA_13)?))
}

/// The properties of a device, for programs built for CUDA 12.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetDeviceProperties_v2(properties: Out<[u8; SIZE_12]>, device: i32) -> Code {
    runtime("cudaGetDeviceProperties_v2", || properties.set(fill(device, &CUDA_12)?))
}

fn fill<const SIZE: usize>(device: i32, rest: &Layout) -> Outcome<[u8; SIZE]> {
    let model = lock();
    Ok(layout(model.device(model.numbered(device)?)?, model.config.capability, rest))
}

fn layout<const SIZE: usize>(device: &Device, capability: (i32, i32), rest: &Layout) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let mut put = |offset: usize, field: &[u8]| {
        if let Some(place) = bytes.get_mut(offset..offset + field.len()) {
            place.copy_from_slice(field);
        }
    };
    put(0, device::name(device.physical).as_bytes());
    put(256, &device::uuid(device.physical));
    put(288, &device.total.to_ne_bytes());
    let value = |attribute| device::attribute(attribute, capability, device.physical);
    for &(attribute, offset) in WORDS.iter().chain(rest.words) {
        put(offset, &value(attribute).to_ne_bytes());
    }
    for &(attribute, offset) in WIDE.iter().chain(rest.wide) {
        put(offset, &i64::from(value(attribute)).to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_each_version_has_them() {
        let device = Device::new(2, 24 << 30, 0);
        let word =
            |bytes: &[u8], offset: usize| i32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap());
        let new: [u8; SIZE_13] = layout(&device, (9, 0), &CUDA_13);
        assert!(new.starts_with(b"Simulated device 2\0"));
        assert_eq!(u64::from_ne_bytes(new[288..296].try_into().unwrap()), 24 << 30);
        assert_eq!((word(&new, 360), word(&new, 364), word(&new, 384), word(&new, 604)), (9, 0, 132, 2048));
        let old: [u8; SIZE_12] = layout(&device, (8, 6), &CUDA_12);
        assert_eq!((word(&old, 360), word(&old, 364), word(&old, 388), word(&old, 624)), (8, 6, 108, 2048));
    }
}
