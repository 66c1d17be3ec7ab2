//! Blocks of a pool that a framework keeps itself, told by the framework: CuPy calls hooks of the Python package
//! (`strandline.start()`) for each block that its pool hands out and takes back. What the pool asks CUDA for is no block then.

use super::functions::P;
use super::{attribution, blocks};
use crate::recorder::guard::enter;
use crate::{recorder, stacks};
use serde_json::json;
use std::ffi::c_int;
use strandline_core::event::HookId;

/// What the shared memory calls both.
const BLOCK: HookId = HookId::of("strandline_block");

/// CuPy's hooks are on: its pool's blocks are told from now on. 0: they are recorded; 1: this process does not record.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_cupy() -> c_int {
    if !recorder::is_recording() {
        return 1;
    }
    if attribution::cupy_hooks_begin() {
        attribution::begin_stacks();
        let reason = "arrays allocated before the hooks were installed, and what threads that were already running allocate: CuPy has separate hooks for each thread";
        recorder::record_metadata(json!({
            "allocator": "CuPy", "framework": "CuPy", "inside_pool": true,
            "coverage": { "level": "blocks", "reason": reason },
        }));
    }
    0
}

/// The pool of a device has handed out a block.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_block(device: c_int, addr: u64, size: u64, stream: u64) {
    let Ok(device) = u8::try_from(device) else { return };
    let Some(mut t) = enter(BLOCK) else { return };
    let phase = t.phase(false);
    let stack = if attribution::have_stacks() { stacks::current(&mut t) } else { 0 };
    blocks::record(&mut t, device, addr, size as usize, stream as P, (phase, stack));
}

/// It takes one back, and may hand it out again at once.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_block_gone(device: c_int, addr: u64) {
    if let Ok(device) = u8::try_from(device)
        && addr != 0
        && let Some(mut t) = enter(BLOCK)
    {
        blocks::record_free_on(&mut t, device, addr, 0);
    }
}
