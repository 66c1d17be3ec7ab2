//! Several CUDA runtimes in one process: PyTorch on one major version, another library linked to the other. Each library's
//! calls must reach its own: a runtime keeps the error of a failed launch, and the layout of structures is that of its version.
//!
//! A hook stands before all of them. It tells them apart by the code that a call returns to ([`tls::caller`]).

use super::tls;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// What calls another runtime than the one whose addresses hooks have, and that runtime's functions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// Code that calls another runtime, sorted by address, and which of `runtimes` that is.
    pub(crate) callers: Vec<(Range<usize>, usize)>,
    /// Each runtime's functions, by where [`Real`](super::real::Real) keeps the usual address of each; sorted.
    pub(crate) runtimes: Vec<Vec<(usize, usize)>>,
}

/// Null: all calls go to one runtime. Never freed: a hook may be reading it.
#[unsafe(link_section = ".data.strandline_hot")]
static OTHERS: AtomicPtr<Others> = AtomicPtr::new(core::ptr::null_mut());

/// Replaces what is known. Each is kept for ever, so it is called only where something has changed.
#[cold]
pub(crate) fn set(others: Option<Others>) {
    let new = others.map_or(core::ptr::null_mut(), |o| Box::into_raw(Box::new(o)));
    OTHERS.store(new, Release);
}

/// What is known.
pub(crate) fn known() -> Option<&'static Others> {
    // SAFETY: null, or a table that `set` has leaked.
    unsafe { OTHERS.load(Acquire).as_ref() }
}

/// The function that the caller of this hook means; `None`: the usual one, whose address is kept at `place`.
#[inline(always)]
pub(super) fn meant(place: usize) -> Option<usize> {
    if OTHERS.load(Relaxed).is_null() { None } else { meant_of_several(place) }
}

#[cold]
fn meant_of_several(place: usize) -> Option<usize> {
    known()?.find(place, tls::caller() as usize)
}

impl Others {
    fn find(&self, place: usize, caller: usize) -> Option<usize> {
        let i = self.callers.partition_point(|(code, _)| code.start <= caller).checked_sub(1)?;
        let (_, runtime) = self.callers.get(i).filter(|(code, _)| code.contains(&caller))?;
        let functions = self.runtimes.get(*runtime)?;
        let i = functions.binary_search_by_key(&place, |f| f.0).ok()?;
        functions.get(i).map(|f| f.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_given_the_function_of_its_own_runtime() {
        let others = Others {
            callers: vec![(100..200, 0), (200..250, 1), (400..500, 0)],
            runtimes: vec![vec![(1, 11), (3, 13)], vec![(1, 21)]],
        };
        let found = [(1, 150), (3, 499), (1, 200), (3, 200), (2, 150), (1, 99), (1, 250), (1, 500)];
        let functions = found.map(|(place, caller)| others.find(place, caller));
        assert_eq!(functions, [Some(11), Some(13), Some(21), None, None, None, None, None]);
    }
}
