//! Versions and error texts of libraries that are otherwise not simulated. torch asks for them without using
//! the library, and refuses to start on strange answers.

use crate::abi::{Out, write_text};
use crate::code::{self, Outcome};
use std::ffi::c_char;

fn done(outcome: Outcome) -> i32 {
    code::of(outcome).0
}

/// The text of every error of every such library.
#[unsafe(no_mangle)]
pub extern "C" fn sim_text() -> *const c_char {
    c"not simulated".as_ptr()
}

/// cuDNN 9.99: PyTorch refuses one that is older than what it was built with.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetVersion() -> usize {
    99_900
}

/// Built for CUDA 13.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetCudartVersion() -> usize {
    13_000
}

/// The same by part: 0 major, 1 minor, 2 patch.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetProperty(part: i32, value: Out<i32>) -> i32 {
    done(value.set(match part {
        0 => 9,
        1 => 99,
        _ => 0,
    }))
}

/// Nothing to say.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetLastErrorString(text: Out<u8>, length: usize) {
    let _ = write_text(text, i64::try_from(length).unwrap_or(i64::MAX), "not simulated");
}

/// NCCL 2.28.9.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclGetVersion(version: Out<i32>) -> i32 {
    done(version.set(22_809))
}

/// CUPTI of CUDA 13.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuptiGetVersion(version: Out<u32>) -> i32 {
    done(version.set(130_000))
}

/// The text of its errors.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuptiGetResultString(_result: i32, text: Out<*const c_char>) -> i32 {
    done(text.set(sim_text()))
}

/// NVRTC of CUDA 13.0.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvrtcVersion(major: Out<i32>, minor: Out<i32>) -> i32 {
    done(major.set(13).and_then(|()| minor.set(0)))
}
