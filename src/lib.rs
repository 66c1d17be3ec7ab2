//! What is true of a recording of GPU memory.
//!
//! Ten rooms; who may import whom is a law that `tests/laws.rs` reads from the source:
//!
//! ```text
//! event ← nothing            format ← event                 buffer ← event, format
//! writer ← event, format, buffer                            reader ← event, format
//! replay ← event             detect ← event, replay         advise ← event, replay
//! report ← event, replay, detect, advise
//! ```
//!
//! The first four run inside somebody else's training job (through the crate `strandline-preload`); the last five
//! run in the analyser and are compiled only with the feature `analyze`. There is no CUDA here, no FFI and no
//! process: bytes in, facts out.

#![deny(unsafe_code)]

pub mod buffer;
pub mod event;
pub mod format;
pub mod writer;

#[cfg(feature = "analyze")]
pub mod advise;
#[cfg(feature = "analyze")]
pub mod detect;
#[cfg(feature = "analyze")]
pub mod reader;
#[cfg(feature = "analyze")]
pub mod replay;
#[cfg(feature = "analyze")]
pub mod report;

/// Version of strandline, as printed in recordings and reports.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit this build was made from, or `unknown` outside a checkout.
pub const SOURCE: &str = env!("STRANDLINE_SOURCE");
