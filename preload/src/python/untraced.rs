//! Python of ours that a tracer or a profiler of the job's does not see.

use super::object::Object;
use crate::platform::real;
use std::sync::OnceLock;

type Tracing = extern "C" fn(Object);

/// What switches a thread's tracer and profiler off and on: 3.11 and newer.
struct Switch {
    current: extern "C" fn() -> Object,
    enter: Tracing,
    leave: Tracing,
}

/// Looked up once: the loader's lock may be another thread's that waits for the GIL.
fn switch() -> Option<&'static Switch> {
    static SWITCH: OnceLock<Option<Switch>> = OnceLock::new();
    let look_up = || {
        let names = [c"PyThreadState_Get", c"PyThreadState_EnterTracing", c"PyThreadState_LeaveTracing"];
        let [current, enter, leave] = names.map(real::python);
        if [current, enter, leave].contains(&core::ptr::null_mut()) {
            return None;
        }
        // SAFETY: all three are part of the C API with these types.
        unsafe {
            Some(Switch {
                current: core::mem::transmute::<Object, extern "C" fn() -> Object>(current),
                enter: core::mem::transmute::<Object, Tracing>(enter),
                leave: core::mem::transmute::<Object, Tracing>(leave),
            })
        }
    };
    SWITCH.get_or_init(look_up).as_ref()
}

/// While this lives the thread's tracer and profiler are not called: a tracer that raises at a frame of ours would be taken off the
/// thread. Made and dropped with the GIL.
pub(crate) struct Untraced(Option<(&'static Switch, Object)>);

impl Untraced {
    pub(crate) fn begin() -> Untraced {
        Untraced(switch().map(|s| {
            let state = (s.current)();
            (s.enter)(state);
            (s, state)
        }))
    }
}

impl Drop for Untraced {
    fn drop(&mut self) {
        if let Some((s, state)) = self.0 {
            (s.leave)(state);
        }
    }
}
