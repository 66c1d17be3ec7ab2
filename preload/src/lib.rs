//! `libstrandline.so`: what is loaded into the job.
//!
//! ```text
//! lifecycle: how a recording begins, the writing thread, how it ends
//! late, pluggable, control: other ways in, and the C interface
//! hooks (one list) ─ steps ─ torch (attach, tracker) ─ probe
//! stacks
//! recorder: the state, the token of a hook, a thread's ring
//! platform: the kernel, the C library, the processor
//! ```
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
    lifecycle::load();
}
