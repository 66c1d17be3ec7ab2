//! The first call that fails because the device's context is broken: a kernel went wrong some time before, and from now on
//! every call of the process returns the same. Whoever sees the error then is rarely who caused it; the first one is nearest.

use super::Status;
use crate::entered::enter;
use crate::{session, stacks, tls};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static TOLD: AtomicBool = AtomicBool::new(false);

/// Whether a call returned what every later one will. Runtime and driver number these alike (cuda.h).
#[inline(always)]
fn is_for_ever(status: Status) -> bool {
    // An uncorrectable error of memory; illegal address; launch timeout; assert; hardware stack, illegal instruction,
    // misaligned address, address space, program counter, launch failure.
    matches!(status, 214 | 700 | 702 | 710 | 714..=719)
}

/// After `call` has returned.
#[inline(always)]
pub(super) fn look(status: Status, call: &'static str) {
    if is_for_ever(status) {
        first(status, call);
    }
}

#[cold]
#[inline(never)]
fn first(status: Status, call: &'static str) {
    if TOLD.swap(true, Relaxed) {
        return;
    }
    // The token goes before anything is told.
    let Some(stack) = enter().map(|mut t| stacks::current(&mut t)) else { return };
    session::tell(json!({
        "failed_call": { "call": call, "status": status, "device": tls::device(), "stack": stack },
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_stay_are_told() {
        let stay = [214, 700, 702, 710, 714, 716, 719];
        assert!(stay.into_iter().all(is_for_ever));
        // Success, invalid value, out of memory, not ready, out of resources, peer access, not supported, capture.
        assert!(![0, 1, 2, 600, 701, 704, 801, 900].into_iter().any(is_for_ever));
    }
}
