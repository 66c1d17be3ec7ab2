//! Structures as their fields, one after the other: one list says how they are written and how they are read.

use super::wire::{Cursor, Malformed, put};
use crate::event::{Addr, Bytes, DeviceId, Nanos, PoolId, StackId, StreamHandle};

/// What stands in a payload.
pub(super) trait Field: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads it. `what`: what it is, for who meets bytes that are none.
    ///
    /// # Errors
    /// [`Malformed`].
    fn take(c: &mut Cursor<'_>, what: &'static str) -> Result<Self, Malformed>;
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, *self);
    }
    fn take(c: &mut Cursor<'_>, what: &'static str) -> Result<u64, Malformed> {
        c.number(what)
    }
}

impl Field for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, u64::from(*self));
    }
    fn take(c: &mut Cursor<'_>, what: &'static str) -> Result<u32, Malformed> {
        c.number32(what)
    }
}

impl Field for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn take(c: &mut Cursor<'_>, what: &'static str) -> Result<u8, Malformed> {
        c.byte(what)
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(c: &mut Cursor<'_>, what: &'static str) -> Result<bool, Malformed> {
        Ok(c.byte(what)? != 0)
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(c: &mut Cursor<'_>, what: &'static str) -> Result<(A, B), Malformed> {
        Ok((A::take(c, what)?, B::take(c, what)?))
    }
}

/// A count, and so many.
impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.len() as u64);
        self.iter().for_each(|item| item.put(out));
    }
    fn take(c: &mut Cursor<'_>, what: &'static str) -> Result<Vec<T>, Malformed> {
        (0..c.count(what)?).map(|_| T::take(c, what)).collect()
    }
}

/// Structures: their fields in the order in which they stand in a payload.
macro_rules! fields {
    ($($name:ident { $($field:tt),* })*) => { $(
        impl crate::format::fields::Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $( crate::format::fields::Field::put(&self.$field, out); )*
            }
            fn take(
                c: &mut crate::format::wire::Cursor<'_>,
                _: &'static str,
            ) -> Result<$name, crate::format::wire::Malformed> {
                Ok($name { $( $field: crate::format::fields::Field::take(c, stringify!($field))? ),* })
            }
        }
    )* };
}
pub(super) use fields;

/// Enumerations that stand there as numbers, of which later versions may have more.
macro_rules! numbered {
    ($(#[$about:meta])* enum $enum:ident: $number:ident, $from:ident; $($(#[$doc:meta])* $name:ident = $n:literal,)*) => {
        $(#[$about])*
        #[repr($number)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $enum { $($(#[$doc])* $name = $n,)* }
        impl $enum {
            /// The one with this number, if this version knows it.
            #[inline]
            pub fn $from(n: $number) -> Option<$enum> {
                match n { $($n => Some($enum::$name),)* _ => None }
            }
        }
    };
}
pub(super) use numbered;

/// Numbers that have a unit stand there as the number.
macro_rules! units {
    ($($name:ident)*) => { $(
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(c: &mut Cursor<'_>, what: &'static str) -> Result<$name, Malformed> {
                Ok($name(Field::take(c, what)?))
            }
        }
    )* };
}

units! { Addr Bytes DeviceId Nanos StackId StreamHandle }
fields! { PoolId { 0, 1 } }
