//! Python of ours that a tracer or a profiler of the job's does not see.

use super::object::{Object, c_api};
use super::version;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

c_api! {
    /// What switches a thread's tracer and profiler off and on: 3.11 and newer.
    struct Switch {
        current: c"PyThreadState_Get" = extern "C" fn() -> Object,
        enter: c"PyThreadState_EnterTracing" = extern "C" fn(Object),
        leave: c"PyThreadState_LeaveTracing" = extern "C" fn(Object),
    }
}

c_api! {
    /// What holds the place of [`Within`] against what the interpreter says.
    struct Older {
        current: c"PyThreadState_Get" = extern "C" fn() -> Object,
        frame: c"PyEval_GetFrame" = extern "C" fn() -> Object,
    }
}

/// Thread state of 3.8 to 3.10: the current frame.
const FRAME: usize = 24;
/// The same: how many tracers and profilers this thread is in (`int tracing`), which are not called while it is not 0. Neither place has
/// changed within these versions, nor between them.
const WITHIN: usize = 44;
/// No thread is in more.
const MOST: i32 = 1000;

impl Older {
    fn look_up_for(minor: Option<u32>) -> Option<Older> {
        minor.filter(|m| (8..=10).contains(m)).and_then(|_| Older::look_up())
    }

    /// That count of this thread, where the place of the frame beside it is what it is taken for.
    fn within(&self) -> Option<&'static AtomicI32> {
        let (state, frame) = ((self.current)(), (self.frame)());
        if state.is_null() || frame.is_null() {
            return None; // without a frame there is no tracer's either
        }
        // SAFETY: a thread state of these versions is longer than 200 bytes, and its frame lies there, aligned.
        let is_there = unsafe { state.cast::<Object>().byte_add(FRAME).read() } == frame;
        if !is_there {
            return None;
        }
        // SAFETY: within the same thread state, which is this thread's and lives while it runs Python; aligned. Only its own thread uses the
        // word, with the GIL.
        let count = unsafe { AtomicI32::from_ptr(state.cast::<i32>().byte_add(WITHIN)) };
        (0..MOST).contains(&count.load(Relaxed)).then_some(count)
    }
}

/// How a thread's tracer is switched off.
enum Way {
    Switch(Switch),
    Older(Older),
}

/// Looked up once: the loader's lock may be another thread's that waits for the GIL.
fn way() -> Option<&'static Way> {
    static WAY: OnceLock<Option<Way>> = OnceLock::new();
    let look_up = || {
        let older = || Older::look_up_for(version::python_minor()).map(Way::Older);
        Switch::look_up().map(Way::Switch).or_else(older)
    };
    WAY.get_or_init(look_up).as_ref()
}

/// What ends it.
enum Off {
    Entered(&'static Switch, Object),
    Counted(&'static AtomicI32),
}

/// While this lives the thread's tracer and profiler are not called: a tracer that raises at a frame of ours would be taken off the
/// thread. Made and dropped with the GIL.
pub(crate) struct Untraced(Option<Off>);

impl Untraced {
    pub(crate) fn begin() -> Untraced {
        Untraced(way().and_then(|way| match way {
            Way::Switch(s) => {
                let state = (s.current)();
                (s.enter)(state);
                Some(Off::Entered(s, state))
            }
            Way::Older(older) => older.within().map(|count| {
                count.fetch_add(1, Relaxed);
                Off::Counted(count)
            }),
        }))
    }
}

impl Drop for Untraced {
    fn drop(&mut self) {
        match self.0 {
            Some(Off::Entered(s, state)) => (s.leave)(state),
            Some(Off::Counted(count)) => _ = count.fetch_sub(1, Relaxed),
            None => {}
        }
    }
}
