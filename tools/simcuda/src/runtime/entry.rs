//! The runtime's way to the driver's functions: the simulator's own, as a real runtime hands out the real driver's.
//! So a preloaded `cuMemCreate` is not seen by a program that asks here.

use crate::abi::{Out, Text};
use crate::call::runtime;
use crate::code::Code;
use crate::driver::table;
use crate::note;

fn look_up(name: Text, function: Out<usize>, version: i32, status: Out<i32>) -> Result<(), Code> {
    note!("{} version {version}", name.as_str());
    let found = table::find(name.as_str(), version);
    status.offer(if found.is_some() { 0 } else { 1 });
    function.set(found.unwrap_or(0))
}

/// A driver function by name, in the form that a version of CUDA has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetDriverEntryPointByVersion(
    name: Text,
    function: Out<usize>,
    version: u32,
    _flags: u64,
    status: Out<i32>,
) -> Code {
    runtime("cudaGetDriverEntryPointByVersion", || {
        look_up(name, function, i32::try_from(version).unwrap_or(i32::MAX), status)
    })
}

/// A driver function by name.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetDriverEntryPoint(
    name: Text,
    function: Out<usize>,
    _flags: u64,
    status: Out<i32>,
) -> Code {
    runtime("cudaGetDriverEntryPoint", || look_up(name, function, super::VERSION, status))
}
