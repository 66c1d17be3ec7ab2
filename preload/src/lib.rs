//! `libstrandline.so`: what is loaded into the job.
//!
//! ```text
//! lifecycle                 how a recording begins, the writing thread, how it ends
//! late                      a start while the job runs
//! hooks                     one list of functions
//! steps, pluggable          optimizers; the allocator of ours
//! torch, probe, control     attach and tracker; who holds what; the C interface
//! stacks, tail              frames; where the rings lie
//! recorder, python          the state, the guard of a hook, a thread's ring; the interpreter
//! platform                  the kernel, the C library, the processor
//! ```
//!
//! A room uses those below it and none beside it (`tests/laws/floors.rs`).
//!
//! Rules of this crate, beyond those of ARCHITECTURE.md:
//! - Whatever a hook calls is hot unless it is marked `#[cold]`, and cold things happen once.
//! - C++ crosses hooks: all of them are `extern "C-unwind"`, and nothing of ours panics in them.
//! - The first failure is one line on stderr; after it every hook only forwards.

#![warn(missing_docs)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!("libstrandline.so is for Linux on x86-64 with glibc");

mod control;
mod hooks;
mod late;
mod lifecycle;
mod platform;
mod pluggable;
mod probe;
mod python;
mod recorder;
mod stacks;
mod steps;
mod tail;
mod torch;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

/// Runs before `main`, in every process that is started with the preload.
#[cfg(not(test))]
extern "C" fn load() {
    platform::heap::prepare();
    lifecycle::load();
}
