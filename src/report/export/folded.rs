//! Folded stacks, a line each: `outermost;…;innermost bytes`. Flame graph tools read them (flamegraph.pl, inferno, speedscope).

use super::profile::{Column, Profile};
use crate::event::add;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Prints one figure of all profiles. Stacks that hold nothing are left out.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, profiles: &[Profile<'_>], column: Column) -> io::Result<()> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for sample in profiles.iter().flat_map(Profile::samples) {
        // What separates frames cannot be in one.
        let words: Vec<String> = sample.path.iter().map(|c| c.label.replace(';', ":")).collect();
        add(lines.entry(words.join(";")).or_default(), sample.sum(column).bytes);
    }
    lines
        .iter()
        .filter(|(_, bytes)| **bytes > 0)
        .try_for_each(|(path, bytes)| writeln!(out, "{path} {bytes}"))
}
