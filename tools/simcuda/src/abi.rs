//! Pointers that come from C, made into types whose use is safe inside this crate.
//!
//! CUDA's contract is that an out-parameter is null or points to storage of its type, an in-parameter to a
//! value, a name to a terminated string. These types carry that contract from the boundary inwards; in Rust they
//! can only be made by an `unsafe` constructor, so the functions that take them are safe.

use crate::code::{Code, Outcome};
use std::ffi::{CStr, c_char};

/// An out-parameter: null, or storage for one `T`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// # Safety
    /// * `pointer` is null, or valid for reads and writes of one `T` while the value is in use.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Out(pointer)
    }

    /// An out-parameter that the caller left out.
    pub fn absent() -> Self {
        Out(std::ptr::null_mut())
    }

    /// Whether the caller asked for this value.
    pub fn wanted(self) -> bool {
        !self.0.is_null()
    }

    /// Stores `value`; a null pointer is an invalid argument.
    pub fn set(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        self.offer(value);
        Ok(())
    }

    /// Stores `value` if the caller asked for it.
    pub fn offer(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so by the constructor's contract (in C: by the API's) storage for one `T`;
            // alignment is not assumed.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// What is stored now, for parameters that go both ways.
    pub fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: as in `offer`; only in-out parameters are read, which the caller has initialised.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The value at `index` of an array, for parameters that go both ways.
    pub fn at(self, index: usize) -> Outcome<T> {
        In(self.0.cast_const()).at(index)
    }

    /// Stores the leading values of an array of `capacity` elements.
    pub fn fill(self, capacity: usize, values: impl Iterator<Item = T>) {
        if self.0.is_null() {
            return;
        }
        for (index, value) in values.take(capacity).enumerate() {
            // SAFETY: the API gives an array of `capacity` elements and `index < capacity`.
            unsafe { self.0.add(index).write_unaligned(value) }
        }
    }

    /// The same storage seen as another type, for attributes whose type depends on their number.
    pub fn cast<U: Copy>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// An in-parameter: null, or one or more values of type `T`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// # Safety
    /// * `pointer` is null, or valid for reads of as many `T` as will be asked for.
    pub unsafe fn new(pointer: *const T) -> Self {
        In(pointer)
    }

    /// The value; a null pointer is an invalid argument.
    pub fn get(self) -> Outcome<T> {
        self.at(0)
    }

    /// The value at `index` of an array.
    pub fn at(self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so by the API's contract an array that holds `index`; alignment is not assumed.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// The same array seen as another type, for attributes whose type depends on their number.
    pub fn cast<U: Copy>(self) -> In<U> {
        In(self.0.cast())
    }
}

/// A name: null, or a terminated string.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// # Safety
    /// * `pointer` is null, or a terminated string that lives while the value is in use.
    pub unsafe fn new(pointer: *const c_char) -> Self {
        Text(pointer)
    }

    /// The bytes without the terminator; nothing for a null pointer.
    pub fn bytes(&self) -> &[u8] {
        if self.0.is_null() {
            return &[];
        }
        // SAFETY: not null, so by the API's contract terminated; it lives for the call, which outlives `self`.
        unsafe { CStr::from_ptr(self.0) }.to_bytes()
    }

    /// The name as text; nothing if it is not UTF-8.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or("")
    }
}

/// Writes `text` with a terminator into a caller's buffer of `capacity` bytes, cut to fit.
pub fn write_text(buffer: Out<u8>, capacity: i64, text: &str) -> Outcome {
    let Ok(capacity) = usize::try_from(capacity) else { return Err(Code::INVALID_VALUE) };
    if capacity == 0 || !buffer.wanted() {
        return Err(Code::INVALID_VALUE);
    }
    let kept = text.len().min(capacity - 1);
    buffer.fill(capacity, text.bytes().take(kept).chain(std::iter::once(0)));
    Ok(())
}
