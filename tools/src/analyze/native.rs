//! Native frames of a recording, as functions.

use crate::share::Share;
use crate::symbols::Symbols;
use strandline::event::NativeFrame;
use strandline::replay::reached;
use strandline::report::Native;

/// The native frames of a stack, looked up.
pub(crate) fn symbolized(native: &[NativeFrame], share: Option<&Share>, symbols: &mut Symbols) -> Native {
    let mut known = Native::default();
    for (i, f) in native.iter().enumerate() {
        known.frames.extend(match share {
            Some(share) => share.native(f, |real| symbols.frames(real)),
            None => symbols.frames(f),
        });
        if reached(native) == Some(i) {
            // The function that the place is in, not what was inlined into it.
            known.reached = known.frames.len() - 1;
        }
    }
    known
}
