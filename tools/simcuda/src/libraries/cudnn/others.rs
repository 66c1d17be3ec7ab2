//! Sampling on a grid, making such grids, and the CTC loss. What these take is not measured, so they take nothing, and nobody reads their descriptions.

use super::{run, status};
use crate::abi::Out;
use crate::handle::Handles;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

fn unread() -> MutexGuard<'static, Handles<()>> {
    static UNREAD: LazyLock<Mutex<Handles<()>>> = LazyLock::new(|| Mutex::new(Handles::new(10)));
    UNREAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Functions that make descriptions, destroy them, set them (further arguments are not read), and occupy the handle's stream.
macro_rules! functions {
    (make $($make:ident)*; destroy $($destroy:ident)*; set $($set:ident)*; run $($run:ident)*;) => {
        $(
            /// Makes a description.
            #[unsafe(no_mangle)]
            pub extern "C" fn $make(made: Out<usize>) -> i32 {
                status(made.set(unread().insert(())))
            }
        )*
        $(
            /// It goes away.
            #[unsafe(no_mangle)]
            pub extern "C" fn $destroy(description: usize) -> i32 {
                status(unread().remove(description))
            }
        )*
        $(
            /// What is described is not read.
            #[unsafe(no_mangle)]
            pub extern "C" fn $set(description: usize) -> i32 {
                status(unread().get(description))
            }
        )*
        $(
            /// Occupies the handle's stream.
            #[unsafe(no_mangle)]
            pub extern "C" fn $run(handle: usize) -> i32 {
                run(handle, None)
            }
        )*
    };
}

functions! {
    make sim_cudnnCreateSpatialTransformerDescriptor sim_cudnnCreateCTCLossDescriptor;
    destroy sim_cudnnDestroySpatialTransformerDescriptor sim_cudnnDestroyCTCLossDescriptor;
    set sim_cudnnSetSpatialTransformerNdDescriptor sim_cudnnSetCTCLossDescriptorEx sim_cudnnSetCTCLossDescriptor_v8
        sim_cudnnSetCTCLossDescriptor_v9;
    run sim_cudnnSpatialTfGridGeneratorForward sim_cudnnSpatialTfGridGeneratorBackward sim_cudnnSpatialTfSamplerForward
        sim_cudnnSpatialTfSamplerBackward sim_cudnnCTCLoss sim_cudnnCTCLoss_v8;
}

/// A CTC loss takes nothing beside its results.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetCTCLossWorkspaceSize(
    _handle: usize,
    _probabilities: usize,
    _gradients: usize,
    _labels: usize,
    _lengths_of_labels: usize,
    _lengths_of_inputs: usize,
    _algorithm: i32,
    _description: usize,
    size: Out<usize>,
) -> i32 {
    status(size.set(0))
}

/// Likewise.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetCTCLossWorkspaceSize_v8(
    _handle: usize,
    _algorithm: i32,
    _description: usize,
    _probabilities: usize,
    _gradients: usize,
    size: Out<usize>,
) -> i32 {
    status(size.set(0))
}
