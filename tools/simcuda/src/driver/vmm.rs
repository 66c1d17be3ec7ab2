//! Virtual memory: what expandable segments are made of.

use crate::abi::{In, Out};
use crate::call::driver;
use crate::code::Code;
use crate::device::UNIT;
use crate::mapping::Access;
use crate::model::{Counter, lock};
use crate::note;
use crate::vmm::Properties;

const ON_DEVICE: i32 = 1;

/// `CUmemAllocationProp`: 32 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocationProperties {
    allocation_type: i32,
    handle_types: i32,
    location_type: i32,
    location: i32,
    security: usize,
    flags: [u8; 8],
}

const _: () = assert!(size_of::<AllocationProperties>() == 32);

/// `CUmemAccessDesc`: 12 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AccessDescription {
    location_type: i32,
    location: i32,
    access: i32,
}

const _: () = assert!(size_of::<AccessDescription>() == 12);

/// In which units memory is made: 2 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemGetAllocationGranularity(
    granularity: Out<usize>,
    _properties: In<AllocationProperties>,
    _option: i32,
) -> Code {
    driver("cuMemGetAllocationGranularity", || granularity.set(UNIT as usize))
}

/// Reserves addresses. A wish for particular ones is not granted, as the real driver may refuse to.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAddressReserve(
    address: Out<usize>,
    size: usize,
    align: usize,
    _wish: usize,
    _flags: u64,
) -> Code {
    driver("cuMemAddressReserve", || {
        let base = lock().vmm.reserve(size, align)?;
        note!("size {size} at {base:#x}");
        address.set(base)
    })
}

/// Frees reserved addresses.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAddressFree(address: usize, size: usize) -> Code {
    driver("cuMemAddressFree", || {
        note!("size {size} at {address:#x}");
        lock().vmm.free(address, size)
    })
}

/// Makes physical memory.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemCreate(
    handle: Out<u64>,
    size: usize,
    properties: In<AllocationProperties>,
    _flags: u64,
) -> Code {
    driver("cuMemCreate", || {
        let wanted = properties.get()?;
        note!("size {size} device {}", wanted.location);
        let mut model = lock();
        let model = &mut *model;
        // A capture does not forbid it: on a card PyTorch's expandable segments grow within one, in the global mode.
        let device = match wanted.location_type {
            ON_DEVICE => Some(model.numbered(wanted.location)?),
            _ => None,
        };
        let properties = Properties { device, handle_types: wanted.handle_types };
        let made = model.vmm.create(&mut model.devices, size, properties)?;
        model.count(Counter::Create);
        note!("size {size} device {} = {made:#x}", wanted.location);
        handle.set(made as u64)
    })
}

/// Lets go of physical memory.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemRelease(handle: u64) -> Code {
    driver("cuMemRelease", || {
        note!("{handle:#x}");
        let mut model = lock();
        let model = &mut *model;
        model.vmm.release(&mut model.devices, handle as usize)?;
        model.count(Counter::Release);
        Ok(())
    })
}

/// Maps physical memory at reserved addresses.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemMap(address: usize, size: usize, offset: usize, handle: u64, _flags: u64) -> Code {
    driver("cuMemMap", || {
        note!("size {size} at {address:#x} = {handle:#x}");
        let mut model = lock();
        let model = &mut *model;
        model.vmm.map(&mut model.memory, address, size, offset, handle as usize)
    })
}

/// Says who may reach mapped memory. The widest access of any device named is everybody's here.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemSetAccess(
    address: usize,
    size: usize,
    descriptions: In<AccessDescription>,
    count: usize,
) -> Code {
    driver("cuMemSetAccess", || {
        note!("size {size} at {address:#x}");
        let mut widest = Access::None;
        for index in 0..count {
            match descriptions.at(index)?.access {
                0 => {}
                1 if widest == Access::None => widest = Access::Read,
                1 => {}
                3 => widest = Access::ReadWrite,
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        let mut model = lock();
        let model = &mut *model;
        model.vmm.set_access(&mut model.memory, address, size, widest)
    })
}

/// What access there is to an address.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemGetAccess(access: Out<u64>, _location: usize, address: usize) -> Code {
    driver("cuMemGetAccess", || {
        let model = lock();
        let readable = model.memory.reachable(address, 1, false);
        access.set(match (readable, model.memory.reachable(address, 1, true)) {
            (Ok(()), Ok(())) => 3,
            (Ok(()), Err(_)) => 1,
            (Err(Code::ILLEGAL_ADDRESS), _) => 0,
            (Err(code), _) => return Err(code),
        })
    })
}

/// Takes mapped memory away.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemUnmap(address: usize, size: usize) -> Code {
    driver("cuMemUnmap", || {
        note!("size {size} at {address:#x}");
        let mut model = lock();
        let model = &mut *model;
        model.vmm.unmap(&mut model.memory, &mut model.devices, address, size)
    })
}

/// The physical memory behind an address, held once more.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemRetainAllocationHandle(handle: Out<u64>, address: usize) -> Code {
    driver("cuMemRetainAllocationHandle", || handle.set(lock().vmm.retain(address)? as u64))
}

/// What physical memory was made with.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemGetAllocationPropertiesFromHandle(
    properties: Out<AllocationProperties>,
    handle: u64,
) -> Code {
    driver("cuMemGetAllocationPropertiesFromHandle", || {
        let known = lock().vmm.properties(handle as usize)?;
        properties.set(AllocationProperties {
            allocation_type: 1,
            handle_types: known.handle_types,
            location_type: if known.device.is_some() { ON_DEVICE } else { 2 },
            location: known.device.unwrap_or(0) as i32,
            security: 0,
            flags: [0; 8],
        })
    })
}
