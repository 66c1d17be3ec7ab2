//! What a pickle holds.

/// A value: small, copied freely; containers are named by number within their [`super::Tree`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer that fits 128 bits.
    Int(i128),
    /// A float.
    Float(f64),
    /// A text of the tree.
    Text(u32),
    /// A list of the tree.
    List(u32),
    /// A dict of the tree.
    Dict(u32),
    /// A tuple of the tree.
    Tuple(u32),
}
