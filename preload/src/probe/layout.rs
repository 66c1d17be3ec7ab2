//! Where CPython keeps what of modules, functions and containers.

/// Module: its dictionary.
pub(super) const MODULE_DICT: u64 = 16;
/// List: where it points to its entries.
pub(super) const LIST_ITEMS: u64 = 24;

/// Module: its name.
pub(super) fn module_name(minor: u32) -> u64 {
    if minor >= 15 { 40 } else { 48 }
}

/// Tuple: its first entry. From 3.14 on its hash lies before that.
pub(super) fn tuple_items(minor: u32) -> u64 {
    if minor >= 14 { 32 } else { 24 }
}

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
