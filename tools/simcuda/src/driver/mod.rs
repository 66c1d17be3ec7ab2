//! The CUDA driver (`libcuda`): what torch, and a tool that asks the driver, need of it.

pub mod absent;
pub mod context;
pub mod device;
pub mod memory;
pub mod pool;
pub mod stream;
pub mod table;
pub mod vmm;
