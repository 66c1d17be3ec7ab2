//! cuBLASLt: descriptions are accepted unread, one algorithm is offered, a product occupies its stream.

use super::cublas::occupy;
use crate::abi::Out;
use crate::handle::Handles;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

const SUCCESS: i32 = 0;
const INVALID_VALUE: i32 = 7;

/// `cublasLtMatmulHeuristicResult_t`: 96 bytes, of which zeros mean "succeeds, needs no workspace".
type Heuristic = [u64; 12];

fn descriptions() -> MutexGuard<'static, Handles<()>> {
    static DESCRIPTIONS: LazyLock<Mutex<Handles<()>>> = LazyLock::new(|| Mutex::new(Handles::new(4)));
    DESCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn create(description: Out<usize>) -> i32 {
    if description.set(descriptions().insert(())).is_ok() { SUCCESS } else { INVALID_VALUE }
}

fn destroy(description: usize) -> i32 {
    if descriptions().remove(description).is_ok() { SUCCESS } else { INVALID_VALUE }
}

/// A handle, for programs that do not use cuBLAS's.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtCreate(handle: Out<usize>) -> i32 {
    create(handle)
}

/// It goes away.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtDestroy(handle: usize) -> i32 {
    destroy(handle)
}

/// The version.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtGetVersion() -> usize {
    130_100
}

/// Describes a product.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatmulDescCreate(description: Out<usize>, _compute: i32, _scale: i32) -> i32 {
    create(description)
}

/// The description goes away.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatmulDescDestroy(description: usize) -> i32 {
    destroy(description)
}

/// An attribute of it, unread.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatmulDescSetAttribute(_: usize, _: i32, _: usize, _: usize) -> i32 {
    SUCCESS
}

/// Describes a matrix.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatrixLayoutCreate(
    description: Out<usize>,
    _element: i32,
    _rows: u64,
    _columns: u64,
    _leading: i64,
) -> i32 {
    create(description)
}

/// The description goes away.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatrixLayoutDestroy(description: usize) -> i32 {
    destroy(description)
}

/// An attribute of it, unread.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatrixLayoutSetAttribute(_: usize, _: i32, _: usize, _: usize) -> i32 {
    SUCCESS
}

/// Describes a preference.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatmulPreferenceCreate(description: Out<usize>) -> i32 {
    create(description)
}

/// The description goes away.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatmulPreferenceDestroy(description: usize) -> i32 {
    destroy(description)
}

/// An attribute of it, unread.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatmulPreferenceSetAttribute(_: usize, _: i32, _: usize, _: usize) -> i32 {
    SUCCESS
}

/// Offers one algorithm.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatmulAlgoGetHeuristic(
    _handle: usize,
    _operation: usize,
    _a: usize,
    _b: usize,
    _c: usize,
    _d: usize,
    _preference: usize,
    wanted: i32,
    results: Out<Heuristic>,
    found: Out<i32>,
) -> i32 {
    let offered = i32::from(wanted > 0);
    if offered == 1 {
        results.offer([0; 12]);
    }
    if found.set(offered).is_ok() { SUCCESS } else { INVALID_VALUE }
}

/// A product: occupies the stream and computes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasLtMatmul(
    _handle: usize,
    _operation: usize,
    _alpha: usize,
    _a: usize,
    _a_layout: usize,
    _b: usize,
    _b_layout: usize,
    _beta: usize,
    _c: usize,
    _c_layout: usize,
    _d: usize,
    _d_layout: usize,
    _algorithm: usize,
    _workspace: usize,
    _workspace_size: usize,
    stream: usize,
) -> i32 {
    occupy(stream)
}
