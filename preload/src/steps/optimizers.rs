//! Optimizers by number, in the order in which they first step. Their addresses would not tell them apart: a new one is often made where
//! the one before it was. Nothing is written into an optimizer and none is kept alive: a weak reference tells whether it is still the
//! same. Its callback does nothing, and runs no Python: without one, a weak reference of the job's own would be ours, and not one more object
//! for Python's collector to count.

use crate::platform::real;
use crate::python::interpreter::{MethodDef, api as interpreter, clear_error, none};
use crate::python::object::Object;
use crate::python::uncounted::Uncounted;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock};

/// An optimizer that has stepped.
struct Known {
    address: usize,
    /// A reference of ours to its weak reference.
    weak: usize,
    number: u64,
}

/// All whose weak references are kept, and the last number.
struct Table {
    known: Vec<Known>,
    last: u64,
}

static TABLE: Mutex<Table> = Mutex::new(Table { known: Vec::new(), last: 0 });

fn table() -> std::sync::MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The number of an optimizer; its address where it allows no weak references. With the GIL held, called by Python, with no exception set.
pub(super) fn number(optimizer: Object) -> u64 {
    let address = optimizer as usize;
    let find = |t: &Table| t.known.iter().find(|k| k.address == address).map(|k| (k.weak, k.number));
    let before = find(&table());
    if let Some((weak, number)) = before
        && referent(weak as Object) == Some(optimizer)
    {
        return number;
    }
    let _uncounted = Uncounted::begin();
    let Some(weak) = new_reference(optimizer) else { return address as u64 };
    // Making it may have collected garbage, and so run Python: nobody holds the table meanwhile.
    let mut t = table();
    t.last += 1;
    let number = t.last;
    let gone: Vec<usize> =
        t.known.iter().map(|k| k.weak).filter(|weak| referent(*weak as Object).is_none()).collect();
    t.known.retain(|k| !gone.contains(&k.weak));
    t.known.push(Known { address, weak: weak as usize, number });
    drop(t);
    gone.into_iter().for_each(|weak| release(weak as Object));
    number
}

type New = extern "C" fn(Object, Object) -> Object;
type Newer = extern "C" fn(Object, *mut Object) -> c_int;
type Older = extern "C" fn(Object) -> Object;

/// The C API of weak references, looked up once.
struct Weak {
    new: New,
    /// `PyWeakref_GetRef`, of 3.13 and newer.
    newer: Option<Newer>,
    /// `PyWeakref_GetObject`, of 3.14 and older.
    older: Option<Older>,
    release: extern "C" fn(Object),
    none: usize,
    /// What each of ours calls when its optimizer goes.
    callback: usize,
}

/// One argument, any object.
const METH_O: c_int = 8;
static GONE: MethodDef = MethodDef::new(c"gone", gone, METH_O);

extern "C" fn gone(_: Object, _: Object) -> Object {
    none()
}

fn api() -> Option<&'static Weak> {
    static API: OnceLock<Option<Weak>> = OnceLock::new();
    // SAFETY: each of them has had its type wherever it exists.
    let look_up = || unsafe {
        Some(Weak {
            new: real::of_python(c"PyWeakref_NewRef")?,
            newer: real::of_python(c"PyWeakref_GetRef"),
            older: real::of_python(c"PyWeakref_GetObject"),
            release: real::of_python(c"Py_DecRef")?,
            none: real::of_python(c"_Py_NoneStruct")?,
            callback: (interpreter()?.function)(&GONE, core::ptr::null_mut(), core::ptr::null_mut()) as usize,
        })
    };
    API.get_or_init(look_up).as_ref()
}

/// A weak reference of our own. `None`: the object allows none; the error is cleared.
pub(super) fn new_reference(object: Object) -> Option<Object> {
    let a = api()?;
    if a.callback == 0 {
        clear_error(); // there was no memory for it: a weak reference does without
    }
    let weak = (a.new)(object, a.callback as Object);
    if weak.is_null() {
        clear_error();
        return None;
    }
    Some(weak)
}

/// What a weak reference of ours refers to: an address to be compared, no more. `None`: it is gone.
pub(super) fn referent(weak: Object) -> Option<Object> {
    let a = api()?;
    if let Some(get) = a.newer {
        let mut object = core::ptr::null_mut();
        if get(weak, &mut object) != 1 || object.is_null() {
            return None;
        }
        (a.release)(object);
        return Some(object);
    }
    a.older.map(|get| get(weak)).filter(|o| !o.is_null() && *o as usize != a.none)
}

/// Gives back a reference of ours.
fn release(object: Object) {
    if let Some(a) = api() {
        (a.release)(object);
    }
}
