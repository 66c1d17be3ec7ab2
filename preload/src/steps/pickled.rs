//! PyTorch's tables of hooks, pickled and copied as if ours were not there.
//!
//! A class of optimizers that a script defines is pickled by value by cloudpickle and dill (so by ray, dask and joblib), with all that its
//! `step` refers to. PyTorch has put a wrapper around that, which refers to both tables. Our hooks cannot be pickled, and belong to this process alone.
//! So each table has a `__reduce_ex__` of its own. It refers to its table weakly: a cycle of ours would be garbage for the collector one day.

use super::optimizers::{new_reference, referent};
use crate::python::interpreter::{MethodDef, api as interpreter, clear_error, none};
use crate::python::object::{Object, c_api};
use std::ffi::{c_char, c_int, c_long};
use std::sync::OnceLock;

/// One argument, any object.
const METH_O: c_int = 8;
/// The number of our hook in each table.
const OURS: c_long = -1;
/// Has the table that it is given pickle without our hook.
pub(super) static LEAVE_OUT: MethodDef = MethodDef::new(c"leave_out", leave_out, METH_O);
static REDUCE: MethodDef = MethodDef::new(c"__reduce_ex__", reduce, METH_O);

c_api! {
    /// What copying a table takes.
    struct Api {
        class: c"PyObject_Type" = extern "C" fn(Object) -> Object,
        call: c"PyObject_CallFunctionObjArgs" = unsafe extern "C" fn(Object, ...) -> Object,
        method: c"PyObject_CallMethodObjArgs" = unsafe extern "C" fn(Object, Object, ...) -> Object,
        long: c"PyLong_FromLong" = extern "C" fn(c_long) -> Object,
        text: c"PyUnicode_FromString" = extern "C" fn(*const c_char) -> Object,
        delete: c"PyObject_DelItem" = extern "C" fn(Object, Object) -> c_int,
        set: c"PyObject_SetAttrString" = extern "C" fn(Object, *const c_char, Object) -> c_int,
        release: c"Py_DecRef" = extern "C" fn(Object),
        retain: c"Py_IncRef" = extern "C" fn(Object),
    }
}

/// Looked up once: the loader's lock may be another thread's that waits for the GIL.
fn api() -> Option<&'static Api> {
    static API: OnceLock<Option<Api>> = OnceLock::new();
    API.get_or_init(Api::look_up).as_ref()
}

/// A table that allows no attributes, or no weak references, stays as it is.
extern "C" fn leave_out(_: Object, table: Object) -> Object {
    let null = core::ptr::null_mut();
    let known = api().zip(interpreter());
    if let Some((a, i)) = known
        && let Some(weak) = new_reference(table)
    {
        let function = (i.function)(&REDUCE, weak, null);
        if function.is_null() || (a.set)(table, c"__reduce_ex__".as_ptr(), function) != 0 {
            clear_error();
        }
        a.release_all([function, weak]);
    }
    none()
}

/// What the table's class says of a copy without our hook. Null: an exception is set.
extern "C" fn reduce(weak: Object, protocol: Object) -> Object {
    let (Some(a), Some(table)) = (api(), referent(weak)) else { return none() };
    (a.retain)(table);
    let null: Object = core::ptr::null_mut();
    let name = (a.text)(c"__reduce_ex__".as_ptr());
    let [class, number] = [(a.class)(table), (a.long)(OURS)];
    // SAFETY: live objects, the class not null; null ends them.
    let copy = if class.is_null() { null } else { unsafe { (a.call)(class, table, null) } };
    let mut result = null;
    if ![name, number, copy].contains(&null) {
        if (a.delete)(copy, number) != 0 {
            clear_error(); // the job has removed it
        }
        // SAFETY: as above; the method is that of the class, for the copy has no attributes.
        result = unsafe { (a.method)(copy, name, protocol, null) };
    }
    a.release_all([name, class, number, copy, table]);
    result
}

impl Api {
    fn release_all<const N: usize>(&self, objects: [Object; N]) {
        objects.into_iter().filter(|o| !o.is_null()).for_each(|o| (self.release)(o));
    }
}
