//! `libstrandline.so`: the door into the job.
//!
//! ```text
//! hooks (one list) ─ torch (attach, tracker) ─ stacks ─ steps ─ control (C ABI)
//!        │  each needs an `entered::Entered`
//!        ▼
//! thread (a ring, a cache, what it is doing) ──▶ region on tmpfs (`tail`) ──▶ drain ──▶ the recording (`place`)
//! session: Inert → Arming → Recording → PassThrough
//! ```
//!
//! Rules of this crate, beyond those of DESIGN §2:
//! - Whatever a hook calls is hot unless it is marked `#[cold]`, and cold things happen once.
//! - C++ crosses hooks: all of them are `extern "C-unwind"`, and nothing of ours panics in them.
//! - The first failure is one line on stderr; after it every hook only forwards.

#![warn(missing_docs)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!("libstrandline.so is for Linux on x86-64 with glibc");

mod at_work;
mod clock;
mod config;
mod control;
mod cost;
mod devices;
mod drain;
mod entered;
mod floor;
mod hooks;
mod late;
mod place;
mod pluggable;
mod probe;
mod real;
mod room;
mod say;
mod session;
mod stacks;
mod steps;
mod tail;
mod thread;
mod tls;
mod torch;
mod watcher;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

/// Runs before `main`, in every process that is started with the preload.
#[cfg(not(test))]
extern "C" fn load() {
    session::load();
}
