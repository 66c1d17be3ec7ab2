//! Stream-ordered pools through the driver, which shares their handles, properties and attributes with the runtime.

use crate::abi::{In, Out};
use crate::call::known_as;
use crate::code::Code;
use crate::runtime::pool as pools;

/// Allocates in a stream's order from a pool.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAllocFromPoolAsync(
    address: Out<usize>,
    size: usize,
    pool: usize,
    stream: usize,
) -> Code {
    known_as("cuMemAllocFromPoolAsync", || pools::sim_cudaMallocFromPoolAsync(address, size, pool, stream))
}

/// The same for threads with a default stream of their own. Here they share one.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAllocFromPoolAsync_ptsz(
    address: Out<usize>,
    size: usize,
    pool: usize,
    stream: usize,
) -> Code {
    sim_cuMemAllocFromPoolAsync(address, size, pool, stream)
}

/// A device's own pool.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) -> Code {
    known_as("cuDeviceGetDefaultMemPool", || pools::sim_cudaDeviceGetDefaultMemPool(pool, device))
}

/// The pool that `cuMemAllocAsync` takes from.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetMemPool(pool: Out<usize>, device: i32) -> Code {
    known_as("cuDeviceGetMemPool", || pools::sim_cudaDeviceGetMemPool(pool, device))
}

/// Sets it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceSetMemPool(device: i32, pool: usize) -> Code {
    known_as("cuDeviceSetMemPool", || pools::sim_cudaDeviceSetMemPool(device, pool))
}

/// Makes a pool.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemPoolCreate(pool: Out<usize>, properties: In<pools::PoolProperties>) -> Code {
    known_as("cuMemPoolCreate", || pools::sim_cudaMemPoolCreate(pool, properties))
}

/// Destroys a pool.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemPoolDestroy(pool: usize) -> Code {
    known_as("cuMemPoolDestroy", || pools::sim_cudaMemPoolDestroy(pool))
}

/// An attribute of a pool; the driver numbers them as the runtime does.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemPoolGetAttribute(pool: usize, attribute: i32, value: Out<u64>) -> Code {
    known_as("cuMemPoolGetAttribute", || pools::sim_cudaMemPoolGetAttribute(pool, attribute, value))
}

/// Sets an attribute.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemPoolSetAttribute(pool: usize, attribute: i32, value: Out<u64>) -> Code {
    known_as("cuMemPoolSetAttribute", || pools::sim_cudaMemPoolSetAttribute(pool, attribute, value))
}

/// Lets other devices reach a pool's memory.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemPoolSetAccess(pool: usize, access: usize, count: usize) -> Code {
    known_as("cuMemPoolSetAccess", || pools::sim_cudaMemPoolSetAccess(pool, access, count))
}

/// Gives free memory back to the device, but keeps some.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemPoolTrimTo(pool: usize, keep: usize) -> Code {
    known_as("cuMemPoolTrimTo", || pools::sim_cudaMemPoolTrimTo(pool, keep))
}
