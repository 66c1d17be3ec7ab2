//! Where CPython keeps what of modules and functions, and whether an object still is what it was.

use super::objects::{TYPE, Types, references};
use crate::platform::memory;
use crate::python::collector;

/// Module: its dictionary, its name.
pub(super) const MODULE_DICT: u64 = 16;
pub(super) const MODULE_NAME: u64 = 48;

/// Where a function keeps what.
pub(super) struct InFunction {
    /// Its qualified name.
    pub(super) name: u64,
    /// The tuple of the cells that it has closed over.
    pub(super) closure: u64,
    /// The tuple of its arguments' defaults, and the dictionary of those that are given by name.
    pub(super) defaults: u64,
    pub(super) keywords: u64,
    /// Its attributes.
    pub(super) dict: u64,
}

/// Of a function of a version.
pub(super) fn in_function(minor: u32) -> InFunction {
    match minor {
        ..=9 => InFunction { name: 104, closure: 48, defaults: 32, keywords: 40, dict: 72 },
        _ => InFunction { name: 40, closure: 72, defaults: 56, keywords: 64, dict: 88 },
    }
}

/// Whether an object of this type, which the collector tracks, is at that address. With the GIL held, while the collector is not
/// at work.
pub(super) fn is_still(object: u64, kind: u64) -> bool {
    kind != 0 && collector::is_tracked(object) && memory::at::<1>(object + TYPE) == Some([kind])
}

/// Hands out what an object refers to, where it is one of these: whether `to` is among it.
///
/// # Safety
/// `from` must be alive; with the GIL held and the collector not at work.
pub(super) unsafe fn refers(types: &mut Types<'_>, from: u64, to: u64) -> bool {
    let mut found = false;
    // SAFETY: the caller's promise.
    unsafe {
        let kind = types.of(from);
        references(from, kind, &mut |child| found |= child == to);
    }
    found
}
