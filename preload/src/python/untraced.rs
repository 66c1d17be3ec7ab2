//! Python of ours that a tracer or a profiler of the job's does not see.

use super::object::{Object, c_api};
use std::sync::OnceLock;

c_api! {
    /// What switches a thread's tracer and profiler off and on: 3.11 and newer.
    struct Switch {
        current: c"PyThreadState_Get" = extern "C" fn() -> Object,
        enter: c"PyThreadState_EnterTracing" = extern "C" fn(Object),
        leave: c"PyThreadState_LeaveTracing" = extern "C" fn(Object),
    }
}

/// Looked up once: the loader's lock may be another thread's that waits for the GIL.
fn switch() -> Option<&'static Switch> {
    static SWITCH: OnceLock<Option<Switch>> = OnceLock::new();
    SWITCH.get_or_init(Switch::look_up).as_ref()
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
