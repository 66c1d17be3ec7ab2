//! Enumerations of which each variant has a stable name.

/// Declares an enumeration with the name of each variant beside it, and the method `name` that tells it.
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])*
        $vis:vis enum $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }
    ) => {
        $(#[$about])*
        $vis enum $enum { $($(#[$doc])* $variant,)* }

        impl $enum {
            /// Its name, for programs and people: it stays the same from version to version.
            $vis fn name(self) -> &'static str {
                match self { $($enum::$variant => $name,)* }
            }

            /// All of them, in their order.
            #[allow(dead_code, reason = "not every enumeration is gone through")]
            $vis const ALL: [$enum; [$($name),*].len()] = [$($enum::$variant),*];
        }
    };
}
pub use named;
