//! `cudaDeviceProp` as CUDA 13 lays it out: 1008 bytes.

use crate::abi::Out;
use crate::call::runtime;
use crate::code::Code;
use crate::device;
use crate::model::lock;

const SIZE: usize = 1008;

/// Attributes whose value is a four-byte field: (attribute, offset).
const FIELDS: [(i32, usize); 28] = [
    (12, 304), // regsPerBlock
    (10, 308), // warpSize
    (1, 320),  // maxThreadsPerBlock
    (2, 324),  // maxThreadsDim
    (2, 328),
    (3, 332),
    (5, 336), // maxGridSize
    (6, 340),
    (7, 344),
    (75, 360),  // major
    (76, 364),  // minor
    (16, 384),  // multiProcessorCount
    (19, 392),  // canMapHostMemory
    (31, 560),  // concurrentKernels
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
    (32, 564),  // ECCEnabled
];

/// Attributes whose value is an eight-byte field.
const WIDE: [(i32, usize); 7] = [
    (8, 296),   // sharedMemPerBlock
    (11, 312),  // memPitch
    (9, 352),   // totalConstMem
    (14, 368),  // textureAlignment
    (81, 624),  // sharedMemPerMultiprocessor
    (97, 672),  // sharedMemPerBlockOptin
    (111, 696), // reservedSharedMemPerBlock
];

/// The properties of a device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetDeviceProperties(properties: Out<[u8; SIZE]>, device: i32) -> Code {
    runtime("cudaGetDeviceProperties", || {
        let model = lock();
        let device = model.device(model.numbered(device)?)?;
        properties.set(layout(device, model.config.capability))
    })
}

fn layout(device: &device::Device, capability: (i32, i32)) -> [u8; SIZE] {
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
    for (attribute, offset) in FIELDS {
        put(offset, &value(attribute).to_ne_bytes());
    }
    for (attribute, offset) in WIDE {
        put(offset, &i64::from(value(attribute)).to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_cuda_13_has_them() {
        let bytes = layout(&device::Device::new(2, 24 << 30, 0), (9, 0));
        let word = |offset: usize| i32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap());
        assert!(bytes.starts_with(b"Simulated device 2\0"));
        assert_eq!(u64::from_ne_bytes(bytes[288..296].try_into().unwrap()), 24 << 30);
        assert_eq!((word(360), word(364), word(384), word(604)), (9, 0, 132, 2048));
    }
}
