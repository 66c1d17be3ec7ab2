//! Hooks on optimizers that run without a frame: a tracer or a profiler of the job's does not see them.

use super::record::{begun, end};
use crate::platform::real;
use crate::python::interpreter::{MethodDef, api, none};
use crate::python::object::Object;
use std::ffi::{CStr, c_int};

/// One argument, any object.
const METH_O: c_int = 8;
/// Has calls of the function that it is given run what begins an optimizer's step; whether it could.
pub(super) static OWN_BEGIN: MethodDef = MethodDef::new(c"own_begin", own_begin, METH_O);
/// The same for its end.
pub(super) static OWN_END: MethodDef = MethodDef::new(c"own_end", own_end, METH_O);

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
    // SAFETY: a live object, as Python passes it with a reference of its caller's; its second word is its type.
    if unsafe { *function.cast::<Object>().add(1) } != kind {
        return None;
    }
    if let Some(set) = find(c"PyFunction_SetVectorcall") {
        // SAFETY: part of the C API from 3.12 on, with this type; it takes any function of Python's, which this one is.
        unsafe { core::mem::transmute::<Object, extern "C" fn(Object, Vectorcall)>(set)(function, ours) }
        return Some(());
    }
    let usual = find(c"_PyFunction_Vectorcall")?;
    // SAFETY: the type of functions is a static object of CPython's whose layout is in the stable headers since 3.9, and says where a function keeps
    // what its calls run: a word of the function, which is changed only where it is what it always is.
    unsafe {
        let offset = *kind.byte_add(OFFSET_AT).cast::<usize>();
        let place = function.byte_add(offset).cast::<Object>();
        if !LIKELY.contains(&offset) || offset % 8 != 0 || *place != usual {
            return None;
        }
        *place = ours as Object;
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
    // A hook of the job's may have made something else of them, of which PyTorch asks no more than that it can be gone through.
    let size = (a.tuple_size)(args);
    if size < 0 {
        (a.clear)();
    }
    let second = if size > 1 { (a.tuple_item)(args, 1) } else { core::ptr::null_mut() };
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
