//! Stream-ordered pools through the driver, which shares their handles, properties and attributes with the runtime.

use crate::abi::{In, Out};
use crate::call::alike;
use crate::code::Code;
use crate::runtime::pool as pools;

alike! {
    /// Allocates in a stream's order from a pool.
    cuMemAllocFromPoolAsync(address: Out<usize>, size: usize, pool: usize, stream: usize)
        = pools::sim_cudaMallocFromPoolAsync;
    /// A device's own pool.
    cuDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) = pools::sim_cudaDeviceGetDefaultMemPool;
    /// The pool that `cuMemAllocAsync` takes from.
    cuDeviceGetMemPool(pool: Out<usize>, device: i32) = pools::sim_cudaDeviceGetMemPool;
    /// Sets it.
    cuDeviceSetMemPool(device: i32, pool: usize) = pools::sim_cudaDeviceSetMemPool;
    /// Makes a pool.
    cuMemPoolCreate(pool: Out<usize>, properties: In<pools::PoolProperties>) = pools::sim_cudaMemPoolCreate;
    /// Destroys a pool.
    cuMemPoolDestroy(pool: usize) = pools::sim_cudaMemPoolDestroy;
    /// An attribute of a pool; the driver numbers them as the runtime does.
    cuMemPoolGetAttribute(pool: usize, attribute: i32, value: Out<u64>) = pools::sim_cudaMemPoolGetAttribute;
    /// Sets an attribute.
    cuMemPoolSetAttribute(pool: usize, attribute: i32, value: Out<u64>) = pools::sim_cudaMemPoolSetAttribute;
    /// Lets other devices reach a pool's memory.
    cuMemPoolSetAccess(pool: usize, access: usize, count: usize) = pools::sim_cudaMemPoolSetAccess;
    /// Gives free memory back to the device, but keeps some.
    cuMemPoolTrimTo(pool: usize, keep: usize) = pools::sim_cudaMemPoolTrimTo;
}

/// The same for threads with a default stream of their own. Here they share one.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemAllocFromPoolAsync_ptsz(
    address: Out<usize>,
    size: usize,
    pool: usize,
    stream: usize,
) -> Code {
    cuMemAllocFromPoolAsync(address, size, pool, stream)
}
