//! Memory through the driver.

use super::context;
use crate::abi::Out;
use crate::call::{alike, driver};
use crate::code::Code;
use crate::memory::Kind;
use crate::model::lock;
use crate::runtime::memory::{allocate, free, mem_get_info};
use crate::runtime::memory::{sim_cudaFreeHost, sim_cudaHostAlloc, sim_cudaMallocHost};
use crate::runtime::pool as pools;

alike! {
    /// Allocates pinned host memory.
    cuMemHostAlloc(address: Out<usize>, size: usize, flags: u32) = sim_cudaHostAlloc;
    /// Allocates pinned host memory.
    cuMemAllocHost_v2(address: Out<usize>, size: usize) = sim_cudaMallocHost;
    /// Frees pinned host memory.
    cuMemFreeHost(address: usize) = sim_cudaFreeHost;
    /// Allocates in a stream's order.
    cuMemAllocAsync(address: Out<usize>, size: usize, stream: usize) = pools::sim_cudaMallocAsync;
    /// Frees in a stream's order.
    cuMemFreeAsync(address: usize, stream: usize) = pools::sim_cudaFreeAsync;
}

/// Free and total bytes of the thread's device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Code {
    driver("cuMemGetInfo_v2", || mem_get_info(free, total))
}

/// Allocates on the thread's device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAlloc_v2(address: Out<usize>, size: usize) -> Code {
    driver("cuMemAlloc_v2", || match size {
        0 => Err(Code::INVALID_VALUE),
        _ => allocate(address, size, Kind::Device),
    })
}

/// Rows are this far apart, at least.
const PITCH: usize = 512;

/// Allocates rows, each aligned.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAllocPitch_v2(
    address: Out<usize>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    _element: u32,
) -> Code {
    driver("cuMemAllocPitch_v2", || {
        let row = width.checked_next_multiple_of(PITCH).ok_or(Code::INVALID_VALUE)?;
        let size = row.checked_mul(height).filter(|&n| n > 0).ok_or(Code::INVALID_VALUE)?;
        allocate(address, size, Kind::Device)?;
        pitch.set(row)
    })
}

/// As [`cuMemAllocAsync`], for threads with a default stream of their own. Here they share one.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAllocAsync_ptsz(address: Out<usize>, size: usize, stream: usize) -> Code {
    cuMemAllocAsync(address, size, stream)
}

/// As [`cuMemFreeAsync`], likewise.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemFreeAsync_ptsz(address: usize, stream: usize) -> Code {
    cuMemFreeAsync(address, stream)
}

/// Allocates memory that host and device share.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAllocManaged(address: Out<usize>, size: usize, _flags: u32) -> Code {
    driver("cuMemAllocManaged", || allocate(address, size, Kind::Managed))
}

/// Frees device memory.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemFree_v2(address: usize) -> Code {
    driver("cuMemFree_v2", || free(address))
}

/// The allocation that an address lies in.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemGetAddressRange_v2(base: Out<usize>, size: Out<usize>, address: usize) -> Code {
    driver("cuMemGetAddressRange_v2", || {
        let range = lock().memory.find(address).copied().ok_or(Code::NOT_FOUND)?;
        base.offer(range.base);
        size.offer(range.size);
        Ok(())
    })
}

/// What a pointer is, by `CUpointer_attribute`; the attribute's number says how wide the value is.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuPointerGetAttribute(value: Out<u64>, attribute: i32, address: usize) -> Code {
    driver("cuPointerGetAttribute", || {
        let range = lock().memory.find(address).copied().ok_or(Code::INVALID_VALUE)?;
        let word = value.cast::<i32>();
        let on_device = range.memory_type() != 1;
        match attribute {
            1 => value.set(context::handle(range.device) as u64),
            2 => word.set(if on_device { 2 } else { 1 }),
            3 => value.set(address as u64),
            4 if range.memory_type() == 2 => Err(Code::INVALID_VALUE),
            4 => value.set(address as u64),
            7 => value.set(range.base as u64),
            8 => value.cast::<u8>().set((range.memory_type() == 3).into()),
            9 => word.set(range.device as i32),
            10 | 13 => value.cast::<u8>().set(0),
            11 => value.set(range.base as u64),
            12 => value.set(range.size as u64),
            _ => word.set(0),
        }
    })
}
