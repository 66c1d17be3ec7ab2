//! What a call of the job's wrote for it.

use super::functions::{SUCCESS, Status};

/// The value that a successful call wrote to a place of its caller's. `None`: the call failed, or was given no place.
///
/// # Safety
/// `place` must be an argument of the call that returned `status`, by which that call hands out a `T`.
#[inline(always)]
pub(super) unsafe fn filled<T: Copy>(status: Status, place: *const T) -> Option<T> {
    // SAFETY: not null, and written by the call that succeeded.
    (status == SUCCESS && !place.is_null()).then(|| unsafe { place.read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_successful_call_wrote_is_read() {
        let place = 7u64;
        // SAFETY: a place of ours; where none is readable, nothing is read.
        unsafe {
            assert_eq!(filled(SUCCESS, &raw const place), Some(7));
            assert_eq!(filled(2, &raw const place), None);
            assert_eq!(filled(SUCCESS, core::ptr::null::<u64>()), None);
            assert_eq!(filled(2, core::ptr::dangling::<u64>()), None);
        }
    }
}
