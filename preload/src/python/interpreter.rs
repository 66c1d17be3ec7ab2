//! Python of ours, and the C API that it needs, looked up by name.
//!
//! Compiled and run in a private namespace: `__main__` stays clean, no module is imported that is not there already, and
//! the functions are `PyCFunction`s made by hand, so that neither `ctypes` nor anything else is loaded. The builtins are ours, too: a job may
//! have replaced its own. What cannot be avoided is the audit event of compiling; a hook that refuses it refuses us, and not the script.

use super::initializing;
use super::object::{Object, c_api};
use super::uncounted::{Uncounted, is_collection_due};
use super::untraced::Untraced;
use super::version;
use crate::platform::pause::pause;
use crate::platform::{real, tid};
use once_cell::sync::OnceCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// `PyMethodDef`.
#[repr(C)]
pub(crate) struct MethodDef {
    name: *const c_char,
    function: extern "C" fn(Object, Object) -> Object,
    flags: c_int,
    doc: *const c_char,
}
// SAFETY: constant; the pointers are to static strings.
unsafe impl Sync for MethodDef {}

impl MethodDef {
    /// A function that Python can call, with one of the `METH_` flags.
    pub(crate) const fn new(
        name: &'static CStr,
        function: extern "C" fn(Object, Object) -> Object,
        flags: c_int,
    ) -> MethodDef {
        MethodDef { name: name.as_ptr(), function, flags, doc: core::ptr::null() }
    }
}

/// `Py_file_input`.
const FILE_INPUT: c_int = 257;

c_api! {
    /// What we need of it to run what is ours.
    struct Api {
        none: c"_Py_NoneStruct" = Object,
        attribute_error: c"PyExc_AttributeError" = *mut Object,
        type_error: c"PyExc_TypeError" = *mut Object,
        name_error: c"PyExc_NameError" = *mut Object,
        recursion_error: c"PyExc_RecursionError" = *mut Object,
        memory_error: c"PyExc_MemoryError" = *mut Object,
        exception: c"PyExc_Exception" = *mut Object,
        stop_iteration: c"PyExc_StopIteration" = *mut Object,
        dict_type: c"PyDict_Type" = Object,
        list_type: c"PyList_Type" = Object,
        map_type: c"PyMap_Type" = Object,
        type_type: c"PyType_Type" = Object,
        is_initialized: c"Py_IsInitialized" = extern "C" fn() -> c_int,
        add_pending_call: c"Py_AddPendingCall" = extern "C" fn(extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int,
        incref: c"Py_IncRef" = extern "C" fn(Object),
        decref: c"Py_DecRef" = extern "C" fn(Object),
        dict: c"PyDict_New" = extern "C" fn() -> Object,
        clear_dict: c"PyDict_Clear" = extern "C" fn(Object),
        set_item: c"PyDict_SetItemString" = extern "C" fn(Object, *const c_char, Object) -> c_int,
        get_item: c"PyDict_GetItemString" = extern "C" fn(Object, *const c_char) -> Object,
        function: c"PyCFunction_NewEx" = extern "C" fn(*const MethodDef, Object, Object) -> Object,
        compile: c"Py_CompileString" = extern "C" fn(*const c_char, *const c_char, c_int) -> Object,
        eval: c"PyEval_EvalCode" = extern "C" fn(Object, Object, Object) -> Object,
        builtins: c"PyEval_GetBuiltins" = extern "C" fn() -> Object,
        modules: c"PyImport_GetModuleDict" = extern "C" fn() -> Object,
        as_long: c"PyLong_AsLong" = extern "C" fn(Object) -> i64,
        boolean: c"PyBool_FromLong" = extern "C" fn(c_long) -> Object,
        tuple_size: c"PyTuple_Size" = extern "C" fn(Object) -> isize,
        tuple_item: c"PyTuple_GetItem" = extern "C" fn(Object, isize) -> Object,
        occurred: c"PyErr_Occurred" = extern "C" fn() -> Object,
        matches: c"PyErr_ExceptionMatches" = extern "C" fn(Object) -> c_int,
        clear: c"PyErr_Clear" = extern "C" fn(),
        fetch: c"PyErr_Fetch" = extern "C" fn(*mut Object, *mut Object, *mut Object),
        restore: c"PyErr_Restore" = extern "C" fn(Object, Object, Object),
        save_thread: c"PyEval_SaveThread" = extern "C" fn() -> Object,
        restore_thread: c"PyEval_RestoreThread" = extern "C" fn(Object),
        set_async: c"PyThreadState_SetAsyncExc" = extern "C" fn(u64, Object) -> c_int,
    }
}

static API: OnceCell<Option<Api>> = OnceCell::new();
// SAFETY: function pointers and addresses of static objects of the interpreter; used only under the GIL or where none is needed.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

pub(crate) fn api() -> Option<&'static Api> {
    API.get().and_then(Option::as_ref)
}

/// Looks the C API up. `false`: there is no Python here, or not all of it.
#[cold]
pub(crate) fn prepare() -> bool {
    initializing::prepare();
    API.get_or_init(Api::look_up).is_some()
}

/// Whether this thread holds the GIL. (`PyGILState_Check` says yes to everybody once there are sub-interpreters.)
#[cold]
pub(crate) fn gil_is_held() -> bool {
    type State = extern "C" fn() -> u64;
    // Looked up once: the loader's lock may be another thread's that waits for the GIL.
    static WHO: OnceCell<Option<[State; 2]>> = OnceCell::new();
    let look_up = || {
        // SAFETY: all three have had this type in every version, need no GIL and only return a pointer.
        let find = |name: &CStr| unsafe { real::of_python::<State>(name) };
        let holder = find(c"PyThreadState_GetUnchecked").or_else(|| find(c"_PyThreadState_UncheckedGet"))?;
        Some([holder, find(c"PyGILState_GetThisThreadState")?])
    };
    let Some([holder, own]) = WHO.get_or_init(look_up) else { return false };
    let own = own();
    own != 0 && holder() == own
}

/// No exception is set any more. With the GIL held.
pub(crate) fn clear_error() {
    if let Some(a) = api() {
        (a.clear)();
    }
}

/// Whether the interpreter is going away.
#[cold]
pub(crate) fn is_finalizing() -> bool {
    version::is_finalizing().is_some_and(|f| f() != 0)
}

/// Whether the interpreter is there: a program that embeds Python may call CUDA before it begins and after it has ended. Needs no GIL.
pub(crate) fn is_there() -> bool {
    api().is_some_and(|a| (a.is_initialized)() != 0) && !is_finalizing()
}

/// Twice the threads that queue a call at this moment, and one more once none may any longer.
static QUEUEING: AtomicU32 = AtomicU32::new(0);
const CLOSED: u32 = 1;

/// Queues a call for the main thread. Needs no GIL. `false`: the queue is full, or the interpreter has not begun or ends: the queue is its own,
/// comes and goes with it, and without it the C API reads a null pointer.
pub(crate) fn add_pending_call(f: extern "C" fn(*mut c_void) -> c_int) -> bool {
    let before = QUEUEING.fetch_add(2, AcqRel);
    let may = before & CLOSED == 0 && is_there();
    let is_queued = may && api().is_some_and(|a| (a.add_pending_call)(f, core::ptr::null_mut()) == 0);
    QUEUEING.fetch_sub(2, AcqRel);
    is_queued
}

/// From now on no call is queued. Waits, not for long, for those that queue one: they need no GIL.
#[cold]
pub(crate) fn close_queue() {
    /// Looks at it, of 0.1 ms each. After a `fork` one that queued may be missing.
    const LOOKS: u32 = 100;
    QUEUEING.fetch_or(CLOSED, AcqRel);
    for _ in 0..LOOKS {
        if QUEUEING.load(Acquire) == CLOSED {
            return;
        }
        pause(Duration::from_micros(100));
    }
}

/// Does something while this thread, which holds the GIL, has let go of it.
#[cold]
pub(crate) fn without_gil(f: impl FnOnce()) {
    let Some(a) = api() else { return f() };
    let state = (a.save_thread)();
    f();
    (a.restore_thread)(state);
}

/// How it went.
pub(crate) enum Outcome {
    /// Done: the source left `_r` = 1.
    Installed,
    /// Not done: what it needs is not there yet, or the script has left us no stack or no memory just now (cleared).
    NotYet,
    /// An error of ours, or an audit hook's refusal; cleared.
    Failed,
    /// An exception that is not ours is set, from a signal's handler or another thread: it goes on to the script.
    HandOn,
}

/// Runs a source in a namespace of its own that has these functions, and `_modules`, what `sys.modules` is. Of the builtins it has those of
/// [`Api::ours`]. The namespace is emptied then, and has the job's builtins. With the GIL held, and no exception set.
#[cold]
pub(crate) fn run_source(source: &CStr, functions: &[(&CStr, &'static MethodDef)]) -> Outcome {
    let Some(a) = api() else { return Outcome::Failed };
    if !(a.occurred)().is_null() || later().is_some() || is_collection_due() {
        return Outcome::NotYet; // somebody's exception is on its way, or a collection that is the job's: not now
    }
    let _uncounted = Uncounted::begin_python();
    let result = a.execute(source, functions);
    if (a.occurred)().is_null() {
        return match result {
            Some(1) => Outcome::Installed,
            Some(0) => Outcome::NotYet,
            _ => Outcome::Failed,
        };
    }
    // What our own lines may raise: where the job has replaced what they use, or has left them no stack or memory.
    let ours = [a.attribute_error, a.type_error, a.name_error, a.recursion_error, a.memory_error];
    if !a.is_one_of(&ours) {
        return Outcome::HandOn;
    }
    let is_short = a.is_short_of_room();
    (a.clear)();
    if is_short { Outcome::NotYet } else { Outcome::Failed }
}

/// Takes a script's own exception off this thread, where nobody expects one, and has it raised at the next instruction: by the main thread,
/// where a signal's handler has raised it; another one has it from a thread, which sent no more than its class.
#[cold]
pub(crate) fn raise_later() {
    let Some(a) = api() else { return };
    let mut e = Exception([core::ptr::null_mut(); 3]);
    let [kind, value, traceback] = &mut e.0;
    (a.fetch)(kind, value, traceback);
    let mut left = Some(e);
    if tid::tid() == std::process::id() {
        *later() = left.take();
        if add_pending_call(raise) {
            return;
        }
        left = later().take();
    }
    // Of another thread, or where the queue is full.
    let Some(Exception([kind, value, traceback])) = left else { return };
    // SAFETY: has no arguments and cannot fail; it is how Python names a thread, too.
    (a.set_async)(unsafe { libc::pthread_self() }, kind);
    [kind, value, traceback].into_iter().filter(|o| !o.is_null()).for_each(|o| (a.decref)(o));
}

/// Three references of ours, moved between threads under the GIL.
struct Exception([Object; 3]);
// SAFETY: the objects are only touched with the GIL held.
unsafe impl Send for Exception {}
static LATER: Mutex<Option<Exception>> = Mutex::new(None);

fn later() -> MutexGuard<'static, Option<Exception>> {
    LATER.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn raise(_: *mut c_void) -> c_int {
    let taken = later().take();
    match (api(), taken) {
        (Some(a), Some(Exception([kind, value, traceback]))) => {
            (a.restore)(kind, value, traceback);
            -1
        }
        _ => 0,
    }
}

impl Api {
    fn execute(&self, source: &CStr, functions: &[(&CStr, &'static MethodDef)]) -> Option<i64> {
        let globals = Owned::new(self, (self.dict)())?;
        let null = core::ptr::null_mut();
        let set = |name: &CStr, value: Object| {
            ((self.set_item)(globals.object, name.as_ptr(), value) == 0).then_some(())
        };
        let ours = self.ours()?;
        set(c"__builtins__", ours.object)?;
        set(c"_modules", (self.modules)())?;
        for (name, method) in functions {
            let function = Owned::new(self, (self.function)(*method, null, null))?;
            set(name, function.object)?;
        }
        let code = (self.compile)(source.as_ptr(), c"<strandline>".as_ptr(), FILE_INPUT);
        let Some(code) = Owned::new(self, code) else {
            self.clear_refusal();
            return None;
        };
        let quiet = Untraced::begin();
        let evaluated = Owned::new(self, (self.eval)(code.object, globals.object, globals.object));
        drop(quiet);
        let result = evaluated.and_then(|_| {
            let result = (self.get_item)(globals.object, c"_r".as_ptr());
            (!result.is_null()).then(|| (self.as_long)(result))
        });
        // What it defined refers to it: left to itself, that would be garbage for Python's collector to find and to count. Whoever compiles
        // such a function, as Dynamo does, asks for its builtins.
        self.without_error(|| {
            (self.clear_dict)(globals.object);
            set(c"__builtins__", (self.builtins)());
        });
        result
    }

    /// The builtins that our sources may use: objects of the interpreter's own, which nobody can have replaced. A new dictionary.
    fn ours(&self) -> Option<Owned<'_>> {
        let builtins = Owned::new(self, (self.dict)())?;
        // SAFETY: variables that hold these classes for the interpreter's life.
        let [exception, stop] = unsafe { [*self.exception, *self.stop_iteration] };
        let all = [
            (c"dict", self.dict_type),
            (c"list", self.list_type),
            (c"map", self.map_type),
            (c"type", self.type_type),
            (c"Exception", exception),
            (c"StopIteration", stop),
        ];
        all.iter()
            .all(|(name, object)| (self.set_item)(builtins.object, name.as_ptr(), *object) == 0)
            .then_some(builtins)
    }

    /// An audit hook of the job's has refused what nobody but us asked for: that is no exception of the script's. One that ends a script
    /// (`KeyboardInterrupt`, `SystemExit`) came from a signal's handler meanwhile, and stays.
    fn clear_refusal(&self) {
        // SAFETY: a variable that holds the class for the interpreter's life.
        let is_error = || (self.matches)(unsafe { *self.exception }) != 0;
        if !(self.occurred)().is_null() && is_error() && !self.is_short_of_room() {
            (self.clear)();
        }
    }

    /// Of an exception that is set: the script has left no stack or no memory.
    fn is_short_of_room(&self) -> bool {
        self.is_one_of(&[self.recursion_error, self.memory_error])
    }

    /// Whether the exception that is set is of one of these classes.
    fn is_one_of(&self, classes: &[*mut Object]) -> bool {
        // SAFETY: variables that hold these classes for the interpreter's life.
        classes.iter().any(|class| (self.matches)(unsafe { **class }) != 0)
    }

    /// Does something that sets no exception, but may look at one that is set.
    fn without_error(&self, f: impl FnOnce()) {
        let mut error = [core::ptr::null_mut(); 3];
        let [kind, value, traceback] = &mut error;
        (self.fetch)(kind, value, traceback);
        f();
        (self.restore)(*kind, *value, *traceback);
    }
}

/// A reference of ours, given back when it goes.
struct Owned<'a> {
    api: &'a Api,
    object: Object,
}

impl<'a> Owned<'a> {
    fn new(api: &'a Api, object: Object) -> Option<Owned<'a>> {
        (!object.is_null()).then_some(Owned { api, object })
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        (self.api.decref)(self.object);
    }
}

/// A new reference to None, as every function must return one. The API is there, or nobody could call us.
pub(crate) fn none() -> Object {
    match api() {
        Some(a) => {
            (a.incref)(a.none);
            a.none
        }
        None => core::ptr::null_mut(),
    }
}
