//! Kernels: what the compiler's registration code and the launches call.

use super::stream::named;
use crate::abi::{In, Out, Text};
use crate::call::runtime;
use crate::code::{Code, Outcome};
use crate::kernel::{self, Configuration, Dim3};
use crate::model::{lock, now};
use crate::note;
use std::ffi::c_void;

/// A module is registered; nothing of it is looked at.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaRegisterFatBinary(_module: *const c_void) -> usize {
    static HANDLE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    HANDLE.as_ptr() as usize
}

/// Its registration ends.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaRegisterFatBinaryEnd(_module: usize) {}

/// It goes away.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaUnregisterFatBinary(_module: usize) {}

/// A kernel is registered. Called a hundred thousand times while torch is imported.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaRegisterFunction(
    _module: usize,
    host_function: usize,
    _device_function: usize,
    name: Text,
    _thread_limit: i32,
    _thread: usize,
    _block: usize,
    _block_dim: usize,
    _grid_dim: usize,
    _warp_size: usize,
) {
    kernel::register(host_function, name.bytes());
}

/// A variable is registered.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaRegisterVar(
    _module: usize,
    _variable: usize,
    _address: usize,
    _name: usize,
    _external: i32,
    _size: usize,
    _constant: i32,
    _global: i32,
) {
}

/// A module is made ready.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaInitModule(_module: usize) -> i8 {
    1
}

/// The first half of `kernel<<<…>>>`.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
) -> u32 {
    kernel::push(Configuration { grid, block, shared, stream });
    0
}

/// The second half.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaPopCallConfiguration(
    grid: Out<Dim3>,
    block: Out<Dim3>,
    shared: Out<usize>,
    stream: Out<usize>,
) -> Code {
    runtime("__cudaPopCallConfiguration", || {
        let configuration = kernel::pop().ok_or(Code::INVALID_VALUE)?;
        grid.set(configuration.grid)?;
        block.set(configuration.block)?;
        shared.set(configuration.shared)?;
        stream.set(configuration.stream)
    })
}

/// A kernel's handle: the address of its function in the program.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaGetKernel(handle: Out<usize>, function: usize) -> Code {
    runtime("__cudaGetKernel", || handle.set(function))
}

/// Occupies the stream: for the ordinary time, or for the cycles that a spinning kernel is given.
fn launch(function: usize, grid: Dim3, arguments: In<In<i64>>, stream: usize) -> Outcome {
    note!("kernel {function:#x} grid {} {} {} stream {stream:#x}", grid.x, grid.y, grid.z);
    let key = named(stream)?;
    kernel::launched(function);
    let cost = match kernel::spins(function) {
        true => Some(kernel::nanoseconds(arguments.get()?.get()?)),
        false => None,
    };
    lock().work(key, cost, now())
}

/// Launches a kernel.
#[unsafe(no_mangle)]
pub extern "C" fn sim___cudaLaunchKernel(
    function: usize,
    grid: Dim3,
    _block: Dim3,
    arguments: In<In<i64>>,
    _shared: usize,
    stream: usize,
) -> Code {
    runtime("__cudaLaunchKernel", || launch(function, grid, arguments, stream))
}

/// Launches a kernel.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaLaunchKernel(
    function: usize,
    grid: Dim3,
    _block: Dim3,
    arguments: In<In<i64>>,
    _shared: usize,
    stream: usize,
) -> Code {
    runtime("cudaLaunchKernel", || launch(function, grid, arguments, stream))
}

/// Launches a kernel whose blocks may wait for each other.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaLaunchCooperativeKernel(
    function: usize,
    grid: Dim3,
    _block: Dim3,
    arguments: In<In<i64>>,
    _shared: usize,
    stream: usize,
) -> Code {
    runtime("cudaLaunchCooperativeKernel", || launch(function, grid, arguments, stream))
}

/// `cudaLaunchConfig_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LaunchConfiguration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
    attributes: usize,
    attribute_count: u32,
}

/// Launches a kernel with attributes, none of which matter here.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaLaunchKernelExC(
    configuration: In<LaunchConfiguration>,
    function: usize,
    arguments: In<In<i64>>,
) -> Code {
    runtime("cudaLaunchKernelExC", || {
        let configuration = configuration.get()?;
        launch(function, configuration.grid, arguments, configuration.stream)
    })
}

/// `cudaFuncAttributes` as CUDA 13 lays it out: 144 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FunctionAttributes {
    shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    threads: i32,
    registers: i32,
    ptx_version: i32,
    binary_version: i32,
    cache_mode: i32,
    dynamic_shared_bytes: i32,
    rest: [i32; 24],
}

const _: () = assert!(size_of::<FunctionAttributes>() == 144);

/// A kernel's attributes: one set for all.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaFuncGetAttributes(attributes: Out<FunctionAttributes>, _function: usize) -> Code {
    runtime("cudaFuncGetAttributes", || {
        let (major, minor) = lock().config.capability;
        let version = major * 10 + minor;
        attributes.set(FunctionAttributes {
            shared_bytes: 0,
            constant_bytes: 0,
            local_bytes: 0,
            threads: 1024,
            registers: 32,
            ptx_version: version,
            binary_version: version,
            cache_mode: 0,
            dynamic_shared_bytes: 48 << 10,
            rest: [0; 24],
        })
    })
}

/// Attributes can be set and matter nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaFuncSetAttribute(_function: usize, _attribute: i32, _value: i32) -> Code {
    runtime("cudaFuncSetAttribute", || Ok(()))
}

/// Two blocks of any kernel fit on a multiprocessor.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<i32>,
    _function: usize,
    _block_size: i32,
    _shared: usize,
) -> Code {
    runtime("cudaOccupancyMaxActiveBlocksPerMultiprocessor", || blocks.set(2))
}

/// Two blocks of any kernel fit on a multiprocessor.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<i32>,
    _function: usize,
    _block_size: i32,
    _shared: usize,
    _flags: u32,
) -> Code {
    runtime("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", || blocks.set(2))
}
