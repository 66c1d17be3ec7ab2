//! Python of ours that a tracer or a profiler of the job's does not see: no events while our source runs, and hooks on optimizers that run
//! without a frame.

use super::python::{MethodDef, Object, api, begun, end, none};
use crate::platform::real;
use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

/// One argument, any object.
const METH_O: c_int = 8;
/// Has calls of the function that it is given run what begins an optimizer's step; whether it could.
pub(super) static OWN_BEGIN: MethodDef = MethodDef::new(c"own_begin", own_begin, METH_O);
/// The same for its end.
pub(super) static OWN_END: MethodDef = MethodDef::new(c"own_end", own_end, METH_O);

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
pub(super) struct Untraced(Option<(&'static Switch, Object)>);

impl Untraced {
    pub(super) fn begin() -> Untraced {
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

/// What a call of a Python object runs: `vectorcallfunc`.
type Vectorcall = extern "C" fn(Object, *const Object, usize, Object) -> Object;

/// Has calls of this Python function run `ours`, with no frame of its own. `None`: it is none, or this Python keeps what its calls
/// run elsewhere.
fn own(function: Object, ours: Vectorcall) -> Option<()> {
    /// `PyTypeObject.tp_vectorcall_offset`, and where it lies in functions.
    const OFFSET_AT: usize = 56;
    const LIKELY: core::ops::Range<usize> = 64..256;
    let find = |name: &CStr| Some(real::python(name)).filter(|p| !p.is_null());
    let kind = find(c"PyFunction_Type")?;
    let usual = find(c"_PyFunction_Vectorcall")?;
    // SAFETY: a live object, as Python passes it with a reference of its caller's; its second word is its type. The type of functions is a
    // static object of CPython's whose layout is in the stable headers since 3.9, and says where a function keeps what its calls run.
    unsafe {
        if *function.cast::<Object>().add(1) != kind {
            return None;
        }
        let offset = *kind.byte_add(OFFSET_AT).cast::<usize>();
        let place = function.byte_add(offset).cast::<Object>();
        if !LIKELY.contains(&offset) || offset % 8 != 0 || *place != usual {
            return None;
        }
        match find(c"PyFunction_SetVectorcall") {
            Some(set) => {
                core::mem::transmute::<Object, extern "C" fn(Object, Vectorcall)>(set)(function, ours)
            }
            None => *place = ours as Object,
        }
    }
    Some(())
}

fn truth(yes: bool) -> Object {
    api().map_or(core::ptr::null_mut(), |a| (a.boolean)(yes.into()))
}

extern "C" fn own_begin(_: Object, function: Object) -> Object {
    truth(own(function, begin_called).is_some())
}

extern "C" fn own_end(_: Object, function: Object) -> Object {
    truth(own(function, end_called).is_some())
}

/// The arguments of a hook: the optimizer, its step's arguments and its keyword arguments.
///
/// # Safety
/// As the interpreter calls a `vectorcallfunc`.
unsafe fn arguments<'a>(given: *const Object, count: usize) -> Option<&'a [Object; 3]> {
    // The highest bit only says that the word before may be written to.
    let count = count & (usize::MAX >> 1);
    // SAFETY: the caller's promise: so many objects lie there.
    (count == 3 && !given.is_null()).then(|| unsafe { &*given.cast::<[Object; 3]>() })
}

extern "C" fn begin_called(_: Object, given: *const Object, count: usize, _: Object) -> Object {
    // SAFETY: the interpreter calls us.
    let (Some(a), Some(&[optimizer, args, kwargs])) = (api(), unsafe { arguments(given, count) }) else {
        return none();
    };
    let second = if (a.tuple_size)(args) > 1 { (a.tuple_item)(args, 1) } else { core::ptr::null_mut() };
    let closure = if second.is_null() { (a.get_item)(kwargs, c"closure".as_ptr()) } else { second };
    begun(optimizer, u64::from(!closure.is_null() && closure != a.none))
}

extern "C" fn end_called(_: Object, given: *const Object, count: usize, _: Object) -> Object {
    // SAFETY: the interpreter calls us.
    match unsafe { arguments(given, count) } {
        Some(&[optimizer, ..]) => end(core::ptr::null_mut(), optimizer),
        None => none(),
    }
}
