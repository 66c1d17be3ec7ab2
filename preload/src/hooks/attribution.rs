//! Whose memory a CUDA call handed out: a block of the program, or what a library keeps for itself.
//!
//! Where PyTorch's allocator works, blocks come from it, and whatever else asks CUDA is a library beside it. Without it, what
//! CUDA hands out are the blocks: of a program in C or C++, of CuPy, of JAX when it has no pool. CUDA's own libraries are
//! libraries everywhere, and so is who takes the memory of a device at once and divides it out of anybody's sight.

use crate::platform::config::Stacks;
use crate::platform::own_stack::with_room;
use crate::python::version;
use crate::stacks::native::modules::{self, Role};
use crate::torch::attach;
use crate::{recorder, stacks};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// A block was seen; what that needs is ready.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Blocks have stacks.
static STACKS: AtomicBool = AtomicBool::new(false);
/// What was seen of pools, to be told once each: that of JAX, CuPy's.
static JAX: AtomicBool = AtomicBool::new(false);
static CUPY: AtomicBool = AtomicBool::new(false);
/// CuPy's memory hooks tell of its blocks: what its pool asks CUDA for is no block then.
static CUPY_HOOKS: AtomicBool = AtomicBool::new(false);

/// Whether CuPy's memory hooks tell of its blocks.
#[inline(always)]
pub(super) fn cupy_hooks_active() -> bool {
    CUPY_HOOKS.load(Relaxed)
}

/// CuPy's memory hooks are on. `true`: they were not before.
pub(super) fn cupy_hooks_begin() -> bool {
    !CUPY_HOOKS.swap(true, Relaxed)
}

/// Whether device memory that a call returning to `caller` was given is a block.
#[inline]
pub(super) fn is_block(caller: u64) -> bool {
    if attach::is_settled() {
        return false;
    }
    match modules::role(caller as usize) {
        Role::Library => return false,
        Role::Pool => {
            if !JAX.swap(true, Relaxed) {
                tell_pool();
            }
            return false;
        }
        Role::CuPy if cupy_hooks_active() => return false,
        Role::CuPy if !CUPY.load(Relaxed) => {
            CUPY.store(true, Relaxed);
            begin();
        }
        _ if !BEGUN.load(Relaxed) => begin(),
        _ => {}
    }
    true
}

/// Whether blocks are recorded with the lines that asked for them.
#[inline(always)]
pub(super) fn have_stacks() -> bool {
    STACKS.load(Relaxed)
}

/// The first block: from now on stacks are read, and the recording says what it shows.
#[cold]
#[inline(never)]
fn begin() {
    if recorder::is_recording() || recorder::arm() {
        // Whoever allocates first may have little stack left.
        let _ = with_room(begin_blocks);
    }
}

fn begin_blocks() {
    begin_stacks();
    let cupy = CUPY.load(Relaxed);
    recorder::record_metadata(json!({
        "allocator": if cupy { "CuPy" } else { "CUDA" },
        "framework": cupy.then_some("CuPy"),
        "coverage": { "level": "blocks", "reason": "the inside of the program's own memory pools: each block in this recording is one CUDA allocation" },
    }));
}

/// Makes ready what stacks of blocks need, once.
#[cold]
pub(super) fn begin_stacks() {
    if !BEGUN.swap(true, AcqRel) {
        let wanted = recorder::config().map_or(Stacks::None, |c| c.stacks);
        // A program without Python has native frames or none.
        let wanted = match wanted {
            Stacks::Python if version::python_version().is_none() => Stacks::Native,
            w => w,
        };
        STACKS.store(stacks::begin(wanted), Relaxed);
    }
}

/// JAX keeps what it allocates in a pool of its own, unless it is told not to.
#[cold]
#[inline(never)]
fn tell_pool() {
    if !recorder::is_recording() && !recorder::arm() {
        return;
    }
    recorder::record_metadata(json!({
        "allocator": "XLA",
        "framework": "JAX",
        "coverage": { "level": "segments", "reason": "JAX allocates most of the GPU at once and divides this memory itself, which strandline cannot see" },
        "pool": {
            "of": "JAX",
            "setting": modules::JAX_SETTING,
        },
    }));
}
