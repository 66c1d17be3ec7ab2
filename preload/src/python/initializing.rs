//! Whether `torch.cuda` is being initialized: it then holds a lock, which a signal's handler that uses CUDA would wait for, for ever.
//!
//! Between two instructions of the script there is no room for a handler there. Python of ours would make some.

use super::object::{Object, c_api};
use super::version;
use crate::platform::tid;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

c_api! {
    /// What asks the lock. Nothing of it makes an object that Python's collector counts, or runs Python.
    struct Api {
        modules: c"PyImport_GetModuleDict" = extern "C" fn() -> Object,
        dict: c"PyModule_GetDict" = extern "C" fn(Object) -> Object,
        item: c"PyDict_GetItemString" = extern "C" fn(Object, *const c_char) -> Object,
        text: c"PyUnicode_InternFromString" = extern "C" fn(*const c_char) -> Object,
        call: c"PyObject_VectorcallMethod" = extern "C" fn(Object, *const Object, usize, Object) -> Object,
        is_true: c"PyObject_IsTrue" = extern "C" fn(Object) -> c_int,
        occurred: c"PyErr_Occurred" = extern "C" fn() -> Object,
        clear: c"PyErr_Clear" = extern "C" fn(),
        decref: c"Py_DecRef" = extern "C" fn(Object),
    }
}
// SAFETY: function pointers, used only under the GIL.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

static API: OnceLock<Option<Api>> = OnceLock::new();
/// Times that it was said to be so, and after which it is no more: under a tracer Python 3.11 comes back to the same instruction for as long as
/// a pending call is queued.
static SAID: AtomicU32 = AtomicU32::new(0);
const MOST: u32 = 20_000;

/// Looks the C API up, where no lock of the loader's can be waited for, on the thread that makes the first call of CUDA. Handlers run on the
/// main thread: another one's lock they wait for as long as that takes. Python 3.8 has not all of the API, and without a GIL nothing that is
/// borrowed is sure to stay.
#[cold]
pub(super) fn prepare() {
    let is_main = tid::tid() == std::process::id();
    API.get_or_init(|| if is_main && !version::is_free_threaded() { Api::look_up() } else { None });
}

/// Whether the main thread initializes `torch.cuda` at this moment. With the GIL held.
#[cold]
pub(crate) fn is_torch_initializing() -> bool {
    let Some(a) = API.get().and_then(Option::as_ref) else { return false };
    if !(a.occurred)().is_null() {
        return false; // somebody's exception is on its way, and stays
    }
    let is = a.is_locked().unwrap_or(false);
    if !(a.occurred)().is_null() {
        (a.clear)();
    }
    is && SAID.fetch_add(1, Relaxed) < MOST
}

impl Api {
    /// `None`: there is no such lock.
    fn is_locked(&self) -> Option<bool> {
        let some = |object: Object| (!object.is_null()).then_some(object);
        // All three are borrowed from what has them, which stays as long as the GIL is held.
        let module = some((self.item)((self.modules)(), c"torch.cuda".as_ptr()))?;
        let lock = some((self.item)(some((self.dict)(module))?, c"_initialization_lock".as_ptr()))?;
        let name = some((self.text)(c"locked".as_ptr()))?;
        let said = some((self.call)(name, &raw const lock, 1, core::ptr::null_mut()));
        (self.decref)(name);
        let said = said?;
        let is = (self.is_true)(said) == 1;
        (self.decref)(said);
        Some(is)
    }
}
