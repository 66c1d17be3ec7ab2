//! Stream-ordered allocation.

use super::stream::named;
use crate::abi::{In, Out};
use crate::call::runtime;
use crate::code::{Code, Outcome};
use crate::model::{Model, lock, now};
use crate::note;
use crate::pool::Pool;

/// Pools' handles: their index behind this number.
const FIRST: usize = 0x61 << 36;

fn handle(index: usize) -> usize {
    FIRST + index * 0x100
}

fn index(handle: usize) -> Outcome<usize> {
    match handle.checked_sub(FIRST) {
        Some(offset) if offset % 0x100 == 0 => Ok(offset / 0x100),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn with_pool<T>(pool: usize, act: impl FnOnce(&mut Pool) -> Outcome<T>) -> Outcome<T> {
    let index = index(pool)?;
    let mut model = lock();
    act(model.pools.get_mut(index).and_then(Option::as_mut).ok_or(Code::INVALID_VALUE)?)
}

/// A device's own pool.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) -> Code {
    runtime("cudaDeviceGetDefaultMemPool", || pool.set(handle(lock().numbered(device)?)))
}

/// The pool that `cudaMallocAsync` takes from.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceGetMemPool(pool: Out<usize>, device: i32) -> Code {
    runtime("cudaDeviceGetMemPool", || {
        let model = lock();
        let device = model.numbered(device)?;
        pool.set(handle(model.current_pools.get(device).copied().unwrap_or(device)))
    })
}

/// Sets it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceSetMemPool(device: i32, pool: usize) -> Code {
    runtime("cudaDeviceSetMemPool", || {
        let index = index(pool)?;
        let mut model = lock();
        let device = model.numbered(device)?;
        if model.pools.get(index).and_then(Option::as_ref).is_none_or(|pool| pool.device != device) {
            return Err(Code::INVALID_VALUE);
        }
        if let Some(current) = model.current_pools.get_mut(device) {
            *current = index;
        }
        Ok(())
    })
}

/// The start of `cudaMemPoolProps`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolProperties {
    allocation_type: i32,
    handle_types: i32,
    location_type: i32,
    location: i32,
}

/// Makes a pool.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemPoolCreate(pool: Out<usize>, properties: In<PoolProperties>) -> Code {
    runtime("cudaMemPoolCreate", || {
        let mut model = lock();
        let device = model.numbered(properties.get()?.location)?;
        model.pools.push(Some(Pool::new(device)));
        pool.set(handle(model.pools.len() - 1))
    })
}

/// Destroys a pool; what it still holds goes back to the device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemPoolDestroy(pool: usize) -> Code {
    runtime("cudaMemPoolDestroy", || {
        let index = index(pool)?;
        let mut model = lock();
        let model = &mut *model;
        if index < model.devices.len() {
            return Err(Code::INVALID_VALUE);
        }
        let gone = model.pools.get_mut(index).and_then(Option::take).ok_or(Code::INVALID_VALUE)?;
        if let Some(device) = model.devices.get_mut(gone.device) {
            device.refund(gone.reserved);
        }
        for (device, current) in model.current_pools.iter_mut().enumerate() {
            if *current == index {
                *current = device;
            }
        }
        Ok(())
    })
}

fn allocate(address: Out<usize>, size: usize, stream: usize, pool: Option<usize>) -> Outcome {
    note!("size {size} stream {stream:#x}");
    address.set(0)?;
    let key = named(stream)?;
    let mut model = lock();
    let model: &mut Model = &mut model;
    let device = model.streams.get(key)?.device;
    let pool = pool.or_else(|| model.current_pools.get(device).copied()).ok_or(Code::INVALID_DEVICE)?;
    if size == 0 {
        return Ok(());
    }
    let base = model.allocate_async(pool, size, key, now())?;
    note!("size {size} stream {stream:#x} at {base:#x}");
    address.set(base)
}

/// Allocates in a stream's order.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMallocAsync(address: Out<usize>, size: usize, stream: usize) -> Code {
    runtime("cudaMallocAsync", || allocate(address, size, stream, None))
}

/// Allocates in a stream's order from a pool.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMallocFromPoolAsync(
    address: Out<usize>,
    size: usize,
    pool: usize,
    stream: usize,
) -> Code {
    runtime("cudaMallocFromPoolAsync", || allocate(address, size, stream, Some(index(pool)?)))
}

/// Frees in a stream's order.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaFreeAsync(address: usize, stream: usize) -> Code {
    runtime("cudaFreeAsync", || {
        note!("at {address:#x} stream {stream:#x}");
        let key = named(stream)?;
        lock().free_async(address, key, now())
    })
}

/// An attribute of a pool: 1 to 3 are four bytes wide, 4 to 8 eight.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemPoolGetAttribute(pool: usize, attribute: i32, value: Out<u64>) -> Code {
    runtime("cudaMemPoolGetAttribute", || {
        with_pool(pool, |pool| match attribute {
            1 => value.cast().set(pool.reuse[0]),
            2 => value.cast().set(pool.reuse[1]),
            3 => value.cast().set(pool.reuse[2]),
            4 => value.set(pool.threshold),
            5 => value.set(pool.reserved),
            6 => value.set(pool.reserved_high),
            7 => value.set(pool.used),
            8 => value.set(pool.used_high),
            _ => Err(Code::INVALID_VALUE),
        })
    })
}

/// Sets an attribute; the two high marks can only be reset.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemPoolSetAttribute(pool: usize, attribute: i32, value: Out<u64>) -> Code {
    runtime("cudaMemPoolSetAttribute", || {
        with_pool(pool, |pool| {
            match attribute {
                1 => pool.reuse[0] = value.cast().get()?,
                2 => pool.reuse[1] = value.cast().get()?,
                3 => pool.reuse[2] = value.cast().get()?,
                4 => pool.threshold = value.get()?,
                6 if value.get()? == 0 => pool.reserved_high = pool.reserved,
                8 if value.get()? == 0 => pool.used_high = pool.used,
                _ => return Err(Code::INVALID_VALUE),
            }
            Ok(())
        })
    })
}

/// Lets other devices reach a pool's memory, which they can anyway.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemPoolSetAccess(pool: usize, _access: usize, _count: usize) -> Code {
    runtime("cudaMemPoolSetAccess", || with_pool(pool, |_| Ok(())))
}

/// Gives free memory back to the device, but keeps some.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemPoolTrimTo(pool: usize, keep: usize) -> Code {
    runtime("cudaMemPoolTrimTo", || {
        let index = index(pool)?;
        let mut model = lock();
        model.captures.potentially_unsafe()?;
        let model = &mut *model;
        let pool = model.pools.get_mut(index).and_then(Option::as_mut).ok_or(Code::INVALID_VALUE)?;
        pool.trim(&mut model.devices, keep as u64, now());
        Ok(())
    })
}
