//! What differs between PyTorch versions and cannot be read from the library itself.
//!
//! Slots were taken from the relocations of the shipped libraries and cross-checked with the compiler's own listing of
//! the class. The table is only asked where the library is stripped: otherwise the slot is found in its symbols.

/// A PyTorch version, as far as the table distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// Always 2 so far.
    pub(crate) major: u32,
    /// The minor version.
    pub(crate) minor: u32,
}

impl Version {
    /// Reads `2.11.0+cu130`.
    pub(crate) fn parse(text: &str) -> Option<Version> {
        let mut parts = text.split(['.', '+', 'a', 'b', 'r']);
        Some(Version { major: parts.next()?.parse().ok()?, minor: parts.next()?.parse().ok()? })
    }
}

/// Minor version of PyTorch 2, slot of `attachAllocatorTraceTracker`, slot of `initialized`, after the vtable's two header words.
const SLOTS: [(u32, usize, usize); 12] = [
    (4, 28, 10),
    (5, 30, 10),
    (6, 35, 10),
    (7, 35, 10),
    (8, 38, 10),
    (9, 39, 6),
    (10, 44, 6),
    (11, 44, 6),
    (12, 46, 6),
    (13, 48, 6),
    (14, 50, 6),
    (15, 50, 6),
];

/// Slots of a stripped library: attach, initialized. `None`: a version nobody has looked at.
pub(crate) fn slots(v: Version) -> Option<(usize, usize)> {
    SLOTS.iter().find(|s| v.major == 2 && s.0 == v.minor).map(|s| (s.1, s.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_torch_writes() {
        for (text, minor) in
            [("2.11.0+cu130", 11), ("2.4.1", 4), ("2.9.0a0+git1234", 9), ("2.15.0.dev2026", 15)]
        {
            assert_eq!(Version::parse(text), Some(Version { major: 2, minor }), "{text}");
        }
        assert_eq!(Version::parse("nightly"), None);
    }

    #[test]
    fn unknown_versions_have_no_slots() {
        assert_eq!(slots(Version { major: 2, minor: 11 }), Some((44, 6)));
        assert_eq!(slots(Version { major: 2, minor: 3 }), None);
        assert_eq!(slots(Version { major: 3, minor: 11 }), None);
    }
}
