//! The CUDA runtime (`libcudart`), version 13.
//!
//! Functions are named as CUDA's behind `sim_`; what each does is CUDA's documentation, so their own comments say
//! only what is particular here.

pub mod device;
pub mod entry;
pub mod error;
pub mod event;
pub mod graph;
pub mod kernel;
pub mod memory;
pub mod pool;
pub mod properties;
pub mod stream;
pub mod transfer;

/// The version that this runtime and driver claim: 13.0.
pub const VERSION: i32 = 13_000;
