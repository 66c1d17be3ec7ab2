//! Handles: opaque numbers given to the program instead of addresses.
//!
//! They look like pointers (aligned, large) but are never dereferenced, so a stale or invented handle is an error and
//! not a crash. A destroyed handle's number is used again, the latest first, as the heap of the real library does.

use crate::code::{Code, Outcome};
use std::collections::HashMap;

const STRIDE: usize = 0x100;

/// Live objects of one kind by their handles.
pub struct Handles<T> {
    first: usize,
    issued: usize,
    vacant: Vec<usize>,
    live: HashMap<usize, T>,
}

impl<T> Handles<T> {
    /// An empty table; `kind` keeps the numbers of different tables apart.
    pub fn new(kind: usize) -> Self {
        Handles { first: (0x51 + kind) << 36, issued: 0, vacant: Vec::new(), live: HashMap::new() }
    }

    /// Gives `object` a handle.
    pub fn insert(&mut self, object: T) -> usize {
        let handle = self.vacant.pop().unwrap_or_else(|| {
            self.issued += 1;
            self.first + self.issued * STRIDE
        });
        self.live.insert(handle, object);
        handle
    }

    /// The object of a handle.
    pub fn get(&self, handle: usize) -> Outcome<&T> {
        self.live.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// The object of a handle, to change it.
    pub fn get_mut(&mut self, handle: usize) -> Outcome<&mut T> {
        self.live.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Takes the object away; its number may be used again.
    pub fn remove(&mut self, handle: usize) -> Outcome<T> {
        let object = self.live.remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        self.vacant.push(handle);
        Ok(object)
    }

    /// All live objects.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.live.values()
    }

    /// All live objects, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.live.values_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destroyed_handle_is_refused_and_then_used_again() {
        let mut table = Handles::new(0);
        let a = table.insert(1);
        let b = table.insert(2);
        assert_ne!(a, b);
        assert_eq!(table.remove(a), Ok(1));
        assert_eq!(table.get(a), Err(Code::INVALID_HANDLE));
        assert_eq!(table.insert(3), a);
    }
}
