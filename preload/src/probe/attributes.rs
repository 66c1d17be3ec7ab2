//! Attributes of an instance: in its dictionary, without one, and in slots. Read where they lie: no descriptor runs.

use super::objects::{
    BASIC_SIZE, DICT, HEAP_TYPE, INLINE_VALUES, MANAGED_DICT, Python, TYPE_BASE, TYPE_DICT, TYPE_DICT_OFFSET,
    TYPE_FLAGS, type_of,
};
use crate::platform::memory::is_address;
use crate::platform::memory::read;
use crate::python::tracked::is_tracked;
use std::cell::Cell;

/// Bases of a class that are looked at.
const BASES: usize = 16;

impl Python {
    /// The dictionary of an instance, where it has one of its own; 0 where it has none.
    ///
    /// # Safety
    /// `object` must be an instance that is alive.
    pub(super) unsafe fn own_dict(&self, object: u64) -> u64 {
        const MANAGED: u64 = 24;
        // SAFETY: where the dictionary lies is what the type says of its objects.
        unsafe {
            let kind = type_of(object);
            if self.minor >= 11 && read(kind + TYPE_FLAGS) & MANAGED_DICT != 0 {
                let word = read(object - MANAGED);
                return if self.minor == 12 && word & 1 == 1 { 0 } else { word };
            }
            match read(kind + TYPE_DICT_OFFSET) as i64 {
                offset if offset > 0 => read(object + offset as u64),
                _ => 0,
            }
        }
    }

    /// The dictionaries of hooks of a tensor (`Tensor.register_hook`, `register_post_accumulate_grad_hook`), each with the attribute that it is.
    ///
    /// # Safety
    /// `tensor` must be a tensor that is alive; with the GIL held and the collector not at work.
    pub(super) unsafe fn hooks(&self, tensor: u64) -> impl Iterator<Item = (&'static str, u64)> {
        const NAMES: [&str; 2] = ["_backward_hooks", "_post_accumulate_grad_hooks"];
        // SAFETY: the class that torch wrote in C is the base of the one that scripts see, and its objects end with these two; one that the
        // collector tracks is alive.
        unsafe {
            let base = read(self.tensor + TYPE_BASE);
            let first = tensor + read(base + BASIC_SIZE).max(32) - 16;
            let dicts = [read(first), read(first + 8)];
            let is_one = |dict: u64| is_address(dict) && is_tracked(dict) && self.is_dict(dict);
            NAMES
                .into_iter()
                .zip(dicts)
                .filter(move |(_, dict)| is_one(*dict))
                .collect::<Vec<_>>()
                .into_iter()
        }
    }

    /// Hands out what an instance's own attributes are in: its dictionary, and the values that it keeps without one.
    ///
    /// # Safety
    /// As [`Python::inline_values`].
    pub(super) unsafe fn own_parts(&self, object: u64, mut each: impl FnMut(u64)) {
        // SAFETY: the caller's promise.
        unsafe {
            Some(self.own_dict(object)).filter(|dict| is_address(*dict)).into_iter().for_each(&mut each);
            self.inline_values(object, |_, value| {
                Some(value).filter(|v| *v != 0).into_iter().for_each(&mut each);
                true
            });
        }
    }

    /// Hands out what scripts put on a tensor: its hooks' dictionaries, and what its attributes are in.
    ///
    /// # Safety
    /// As [`Python::hooks`].
    pub(super) unsafe fn put_on_tensor(&self, tensor: u64, mut each: impl FnMut(u64)) {
        // SAFETY: the caller's promise.
        unsafe {
            self.hooks(tensor).for_each(|(_, dict)| each(dict));
            self.own_parts(tensor, each);
        }
    }

    /// Hands out the attributes that an instance keeps without a dictionary, each as the string that names it and its value (0: not
    /// set), until `each` says `false`.
    ///
    /// # Safety
    /// `object` must be an instance that is alive; with the GIL held.
    unsafe fn inline_values(&self, object: u64, mut each: impl FnMut(u64, u64) -> bool) {
        const UNICODE_KEYS: [u64; 2] = [1, 2];
        // SAFETY: as above; an instance's values are as many as the keys that its class shares among its instances.
        unsafe {
            let kind = type_of(object);
            let flags = read(kind + TYPE_FLAGS);
            if self.minor < 11 || flags & (MANAGED_DICT | HEAP_TYPE) != MANAGED_DICT | HEAP_TYPE {
                return;
            }
            // Where an object has them at its end, they begin with four bytes, of which the last says that they are in use (3.13 and newer).
            let end = object + read(kind + BASIC_SIZE);
            let (values, shared) = match self.minor {
                11 => (read(object - 32), 872),
                12 if read(object - 24) & 1 == 1 => (read(object - 24) + 1, 880),
                13.. if flags & INLINE_VALUES != 0 && read(end) >> 24 & 0xff == 1 => {
                    (end + 8, if self.minor >= 15 { 888 } else { 880 })
                }
                _ => return,
            };
            let keys = read(kind + shared);
            if values == 0 || keys == 0 {
                return;
            }
            let (head, entries) = (read(keys + 8), read(keys + 24).min(64));
            if !UNICODE_KEYS.contains(&(head >> 16 & 0xff)) {
                return;
            }
            let first = keys + 32 + (1 << (head >> 8 & 0x1f));
            for i in 0..entries {
                if !each(read(first + 16 * i), read(values + 8 * i)) {
                    return;
                }
            }
        }
    }

    /// Hands out the slots of an instance (`__slots__`), each as the string that names it and its value (0: not set), until `each` says
    /// `false`.
    ///
    /// # Safety
    /// As [`Python::inline_values`].
    unsafe fn slots(&self, object: u64, mut each: impl FnMut(u64, u64) -> bool) {
        /// `T_OBJECT_EX`, which is what `__slots__` makes.
        const OBJECT: u32 = 16;
        // SAFETY: a class of a script has its dictionary; what finds a slot has its name, and says where the slot lies in an instance.
        unsafe {
            let (mut class, mut goes_on) = (type_of(object), true);
            for _ in 0..BASES {
                if class == 0 || read(class + TYPE_FLAGS) & HEAP_TYPE == 0 {
                    return;
                }
                let dict = read(class + TYPE_DICT);
                if is_address(dict) {
                    self.items(dict, |_, found| {
                        if type_of(found) == self.member && read(found + 16) == class {
                            let member = read(found + 40);
                            if is_address(member) && read(member + 8) as u32 == OBJECT {
                                goes_on = each(read(found + 24), read(object + read(member + 16)));
                            }
                        }
                        goes_on
                    });
                }
                if !goes_on {
                    return;
                }
                class = read(class + TYPE_BASE);
            }
        }
    }

    /// Hands out every attribute of an instance, each as the object that names it and its value, until `each` says `false`.
    ///
    /// # Safety
    /// As [`Python::inline_values`].
    pub(super) unsafe fn attributes(&self, object: u64, mut each: impl FnMut(u64, u64) -> bool) {
        let goes_on = Cell::new(true);
        let mut told = |name: u64, value: u64| {
            goes_on.set(value == 0 || each(name, value));
            goes_on.get()
        };
        // SAFETY: the caller's promise; the dictionary is the instance's own.
        unsafe {
            self.inline_values(object, &mut told);
            self.slots(object, &mut told);
            let dict = self.own_dict(object);
            if goes_on.get() && is_address(dict) && self.is_dict(dict) {
                self.items(dict, &mut told);
            }
        }
    }

    /// The attribute of an instance that refers to the child that `is` one, and that, where the instance keeps it without a dictionary.
    ///
    /// # Safety
    /// As [`Python::inline_values`].
    pub(super) unsafe fn own_attribute(
        &self,
        object: u64,
        is: impl Fn(u64) -> bool,
    ) -> Option<(String, u64)> {
        let mut found = None;
        let mut look = |key: u64, value: u64| {
            if is(value) {
                found = Some((key, value));
            }
            found.is_none()
        };
        // SAFETY: the caller's promise; a name is a string.
        unsafe {
            self.inline_values(object, &mut look);
            self.slots(object, &mut look);
            found.map(|(name, value)| (self.text(name), value))
        }
    }

    /// Whether an object is a dictionary, or of a class made from that.
    ///
    /// # Safety
    /// `object` must be alive.
    pub(super) unsafe fn is_dict(&self, object: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { read(type_of(object) + TYPE_FLAGS) & DICT != 0 }
    }

    /// Whether an object is a function that was written in Python.
    ///
    /// # Safety
    /// `object` must be alive.
    pub(super) unsafe fn is_function(&self, object: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { type_of(object) == self.function }
    }

    /// Whether an object is a module.
    ///
    /// # Safety
    /// `object` must be alive.
    pub(super) unsafe fn is_module(&self, object: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { type_of(object) == self.module }
    }
}
