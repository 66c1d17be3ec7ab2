//! Batch norms, which PyTorch leaves to cuDNN for 32 bits with channels last, and the descriptions of tensors that they have.

use super::{run, status};
use crate::abi::{In, Out};
use crate::handle::Handles;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Elements of each tensor that is described.
fn tensors() -> MutexGuard<'static, Handles<u64>> {
    static TENSORS: LazyLock<Mutex<Handles<u64>>> = LazyLock::new(|| Mutex::new(Handles::new(7)));
    TENSORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a description.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnCreateTensorDescriptor(tensor: Out<usize>) -> i32 {
    status(tensor.set(tensors().insert(0)))
}

/// It goes away.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnDestroyTensorDescriptor(tensor: usize) -> i32 {
    status(tensors().remove(tensor))
}

/// How many elements it has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnSetTensorNdDescriptor(
    tensor: usize,
    _kind: i32,
    sides: i32,
    dimensions: In<i32>,
    _strides: In<i32>,
) -> i32 {
    let sides = (0..usize::try_from(sides).unwrap_or(0)).map(|at| dimensions.at(at).map(i32::unsigned_abs));
    let elements = sides.map(|side| side.map(u64::from)).product::<Result<u64, _>>();
    status(elements.and_then(|elements| tensors().get_mut(tensor).map(|kept| *kept = elements)))
}

/// A forward takes nothing beside its results.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    _handle: usize,
    _mode: i32,
    _operations: i32,
    _x: usize,
    _z: usize,
    _y: usize,
    _parameters: usize,
    _activation: usize,
    size: Out<usize>,
) -> i32 {
    status(size.set(0))
}

/// Nor does a backward.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    _handle: usize,
    _mode: i32,
    _operations: i32,
    _x: usize,
    _y: usize,
    _dy: usize,
    _dz: usize,
    _dx: usize,
    _parameters: usize,
    _activation: usize,
    size: Out<usize>,
) -> i32 {
    status(size.set(0))
}

/// `cudnnBatchNormMode_t`: what PyTorch asks for where channels are last.
const PERSISTENT: i32 = 2;

/// Where channels are last, a bit for each element is kept for the backward.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    _handle: usize,
    mode: i32,
    _operations: i32,
    _activation: usize,
    x: usize,
    size: Out<usize>,
) -> i32 {
    let bits = tensors().get(x).map(|&elements| if mode == PERSISTENT { elements } else { 0 });
    status(bits.and_then(|bits| size.set(usize::try_from(bits.div_ceil(8)).unwrap_or(0))))
}

/// Occupies the handle's stream; the further arguments are not read.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBatchNormalizationForwardTrainingEx(handle: usize) -> i32 {
    run(handle, None)
}

/// Likewise.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBatchNormalizationForwardInference(handle: usize) -> i32 {
    run(handle, None)
}

/// Likewise.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBatchNormalizationBackwardEx(handle: usize) -> i32 {
    run(handle, None)
}
