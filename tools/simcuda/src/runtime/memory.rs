//! Memory: device, pinned, registered, and what a pointer is.

use super::device::synchronize;
use crate::abi::Out;
use crate::call::runtime;
use crate::code::{Code, Outcome};
use crate::memory::{Kind, Range};
use crate::model::{Counter, lock, now};
use crate::note;
use crate::stream::Key;

/// Free and total bytes of the thread's device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemGetInfo(free: Out<usize>, total: Out<usize>) -> Code {
    runtime("cudaMemGetInfo", || mem_get_info(free, total))
}

/// The same for the driver.
pub fn mem_get_info(free: Out<usize>, total: Out<usize>) -> Outcome {
    let mut model = lock();
    let current = model.current()?;
    model.enter(current)?;
    let device = model.device(current)?;
    let bytes = device.free();
    note!("free {bytes} total {}", device.total);
    free.set(bytes as usize)?;
    total.set(device.total as usize)
}

/// Allocates on the thread's device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMalloc(address: Out<usize>, size: usize) -> Code {
    runtime("cudaMalloc", || allocate(address, size, Kind::Device))
}

/// Allocates memory that host and device share; here that is device memory.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMallocManaged(address: Out<usize>, size: usize, _flags: u32) -> Code {
    runtime("cudaMallocManaged", || allocate(address, size, Kind::Managed))
}

/// Allocates on the thread's device, for the runtime and the driver.
pub fn allocate(address: Out<usize>, size: usize, kind: Kind) -> Outcome {
    address.set(0)?;
    let mut model = lock();
    let model = &mut *model;
    let device = model.current()?;
    note!("device {device} size {size}");
    model.captures.potentially_unsafe()?;
    if size == 0 {
        return Ok(());
    }
    let base = model.memory.allocate(&mut model.devices, device, size, kind)?;
    note!("device {device} size {size} at {base:#x}");
    if kind != Kind::Pinned {
        model.count(Counter::Malloc);
    }
    address.set(base)
}

/// Frees device memory, once the device is done with everything.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaFree(address: usize) -> Code {
    runtime("cudaFree", || free(address))
}

/// The same for the driver.
pub fn free(address: usize) -> Outcome {
    note!("at {address:#x}");
    if address == 0 {
        return lock().current().map(drop);
    }
    let range = lock().memory.find(address).copied().ok_or(Code::INVALID_VALUE)?;
    if range.base != address || !matches!(range.kind, Kind::Device | Kind::Managed | Kind::Pooled(_)) {
        return Err(Code::INVALID_VALUE);
    }
    synchronize(range.device)?;
    if let Kind::Pooled(_) = range.kind {
        return lock().free_async(address, Key::of(0, range.device), now());
    }
    let mut model = lock();
    let model = &mut *model;
    model.memory.free(&mut model.devices, address, |kind| matches!(kind, Kind::Device | Kind::Managed))?;
    model.count(Counter::Free);
    Ok(())
}

/// Allocates pinned host memory.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaHostAlloc(address: Out<usize>, size: usize, _flags: u32) -> Code {
    runtime("cudaHostAlloc", || allocate(address, size, Kind::Pinned))
}

/// Allocates pinned host memory.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMallocHost(address: Out<usize>, size: usize) -> Code {
    runtime("cudaMallocHost", || allocate(address, size, Kind::Pinned))
}

/// Frees pinned host memory, once the device is done with everything.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaFreeHost(address: usize) -> Code {
    runtime("cudaFreeHost", || {
        note!("at {address:#x}");
        if address == 0 {
            return Ok(());
        }
        let device = lock().current()?;
        synchronize(device)?;
        let mut model = lock();
        let model = &mut *model;
        model.memory.free(&mut model.devices, address, |kind| kind == Kind::Pinned).map(drop)
    })
}

/// Pins memory of the program.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaHostRegister(address: usize, size: usize, _flags: u32) -> Code {
    runtime("cudaHostRegister", || {
        note!("at {address:#x} size {size}");
        let mut model = lock();
        let device = model.current()?;
        if address == 0 || size == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if model.memory.overlaps(address, size) {
            return Err(Code::HOST_ALREADY_REGISTERED);
        }
        model.memory.insert(Range { base: address, size, extent: size, kind: Kind::Registered, device });
        Ok(())
    })
}

/// Unpins it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaHostUnregister(address: usize) -> Code {
    runtime("cudaHostUnregister", || {
        note!("at {address:#x}");
        let mut model = lock();
        match model.memory.at_mut(address) {
            Some(range) if range.kind == Kind::Registered => {
                model.memory.forget(address);
                Ok(())
            }
            _ => Err(Code::HOST_NOT_REGISTERED),
        }
    })
}

/// The device's address of pinned memory, which is the host's.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaHostGetDevicePointer(
    device_address: Out<usize>,
    address: usize,
    _flags: u32,
) -> Code {
    runtime("cudaHostGetDevicePointer", || match lock().memory.find(address) {
        Some(range) if !range.on_device() => device_address.set(address),
        _ => Err(Code::INVALID_VALUE),
    })
}

/// `cudaPointerAttributes` as CUDA 13 lays it out: 88 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PointerAttributes {
    memory_type: i32,
    device: i32,
    device_address: usize,
    host_address: usize,
    reserved: [i64; 8],
}

const _: () = assert!(size_of::<PointerAttributes>() == 88);

/// What a pointer is. One that CUDA does not know is no error: its type is "unregistered".
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaPointerGetAttributes(attributes: Out<PointerAttributes>, address: usize) -> Code {
    runtime("cudaPointerGetAttributes", || {
        let model = lock();
        model.current()?;
        let unknown = PointerAttributes {
            memory_type: 0,
            device: -2,
            device_address: 0,
            host_address: address,
            reserved: [0; 8],
        };
        attributes.set(model.memory.find(address).map_or(unknown, |range| PointerAttributes {
            memory_type: range.memory_type(),
            device: range.device as i32,
            device_address: address,
            host_address: if range.memory_type() == 2 { 0 } else { address },
            reserved: [0; 8],
        }))
    })
}

/// The address of a variable of a module. Kernels do not run, so one zeroed area serves for all of them.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetSymbolAddress(address: Out<usize>, _symbol: usize) -> Code {
    runtime("cudaGetSymbolAddress", || {
        static VARIABLES: [std::sync::atomic::AtomicU8; 1 << 16] =
            [const { std::sync::atomic::AtomicU8::new(0) }; 1 << 16];
        address.set(VARIABLES.as_ptr() as usize)
    })
}
