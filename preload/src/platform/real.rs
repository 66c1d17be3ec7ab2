//! The real functions behind the hooks.
//!
//! torch opens its libraries `RTLD_LOCAL`, so `RTLD_NEXT` does not find what they export; a library that is already
//! loaded is then asked by name, and at last every loaded library. All of them are resolved when the process is armed,
//! outside of any allocator lock, so that a hook never enters the loader.

use super::elf::Loaded;
use super::{errno, loader, runtimes};
use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Which library defines a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// `libcudart.so.N`.
    Cudart,
    /// `libc10.so`.
    C10,
    /// `libc10_cuda.so`.
    C10Cuda,
    /// `libtorch_cpu.so`.
    TorchCpu,
    /// `libtorch_cuda.so`.
    TorchCuda,
    /// `libtorch_python.so`.
    TorchPython,
    /// `libcuda.so.1`, the driver.
    Driver,
}

impl Library {
    fn names(self) -> &'static [&'static str] {
        match self {
            Library::Cudart => &["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"],
            Library::C10 => &["libc10.so"],
            Library::C10Cuda => &["libc10_cuda.so"],
            Library::TorchCpu => &["libtorch_cpu.so"],
            Library::TorchCuda => &["libtorch_cuda.so"],
            Library::TorchPython => &["libtorch_python.so"],
            Library::Driver => &["libcuda.so.1"],
        }
    }
}

/// A function of type `F` that a hook stands in front of.
pub(crate) struct Real<F> {
    /// Beside all others': a constant, so that a hook loads one word.
    address: &'static AtomicPtr<c_void>,
    name: &'static CStr,
    library: Library,
    is: PhantomData<F>,
}

// SAFETY: the only shared state is an atomic pointer; `F` is a function pointer type, never stored.
unsafe impl<F> Sync for Real<F> {}

impl<F: Copy> Real<F> {
    const _IS_A_POINTER: () = assert!(size_of::<F>() == size_of::<*mut c_void>());

    /// The function `name`, which `library` is expected to define; its address is kept in `address`.
    ///
    /// # Safety
    /// `F` must be the function pointer type that this name has in that library.
    pub(crate) const unsafe fn new(
        address: &'static AtomicPtr<c_void>,
        name: &'static CStr,
        library: Library,
    ) -> Real<F> {
        let () = Self::_IS_A_POINTER;
        Real { address, name, library, is: PhantomData }
    }

    /// The real function. `None` only where nothing in the process defines it. Of the runtime's, where there are several: that of the caller
    /// that [`tls::caller`](super::tls::caller) tells.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<F> {
        let mut p = self.address.load(Relaxed);
        if matches!(self.library, Library::Cudart)
            && let Some(of_caller) = runtimes::meant(core::ptr::from_ref(self.address) as usize)
        {
            p = of_caller as *mut c_void;
        }
        if p.is_null() {
            p = self.resolve();
            if p.is_null() {
                return None;
            }
        }
        // SAFETY: `F` is as large as a pointer (asserted in `new`) and is this function's type (promised to `new`).
        Some(unsafe { core::mem::transmute_copy(&p) })
    }

    /// The same without a look-up, for hooks that are called at every kernel: `None` where [`Real::get`] must be asked.
    #[inline(always)]
    pub(crate) fn known(&self) -> Option<F> {
        let p = self.address.load(Relaxed);
        // SAFETY: as in `get`.
        (!p.is_null()).then(|| unsafe { core::mem::transmute_copy(&p) })
    }

    /// Where its address is kept, for whoever is told it by the program's own look-up.
    pub(crate) const fn place(&self) -> &'static AtomicPtr<c_void> {
        self.address
    }

    /// Its name.
    pub(crate) const fn name(&self) -> &'static CStr {
        self.name
    }

    /// Looks the function up, if that is still to be done and possible by now.
    #[cold]
    #[inline(never)]
    pub(crate) fn resolve(&self) -> *mut c_void {
        let mut p = self.address.load(Relaxed);
        if p.is_null() {
            let _errno = errno::keep();
            p = look_up(self.name, self.library);
            self.address.store(p, Relaxed);
        }
        p
    }
}

/// The address of an exported symbol of a loaded library, functions and data alike; null where nobody defines it.
#[cold]
pub(crate) fn look_up(name: &CStr, library: Library) -> *mut c_void {
    let in_loader = loader::enter();
    let next = loader::next(name);
    drop(in_loader);
    if !next.is_null() {
        return next;
    }
    // The loader looks for a file of each name that no library has: in every folder that it knows, which may be far away.
    let loaded = crate::platform::elf::loaded();
    let file = |l: &Loaded| l.path.file_name().map(|f| f.as_encoded_bytes().to_vec());
    let files: Vec<Vec<u8>> = loaded.iter().filter_map(file).collect();
    let is_loaded = |n: &&&str| files.iter().any(|f| f.starts_with(n.as_bytes()));
    let mut named = library.names().iter().filter(is_loaded).peekable();
    let may_be_elsewhere = match library {
        // The driver has one name everywhere, and many programs have none.
        Library::Driver => false,
        // A newer runtime lacks functions of an older one, which are looked for again and again.
        Library::Cudart => named.peek().is_none(),
        _ => true,
    };
    let by_name = named.find_map(|n| in_loaded(n, name));
    by_name
        .or_else(|| if may_be_elsewhere { anywhere(name, &loaded) } else { None })
        .unwrap_or(core::ptr::null_mut())
}

/// Looks only into a library that is loaded already. It stays loaded from now on: the address must remain good.
#[cold]
pub(crate) fn in_loaded(library: &str, name: &CStr) -> Option<*mut c_void> {
    let _in_loader = loader::enter();
    let handle = loader::open(Some(&CString::new(library).ok()?));
    if handle.is_null() {
        return None;
    }
    // SAFETY: the loader has just handed it out; where it has no such function nothing of it is used.
    unsafe {
        let p = loader::symbol(handle, name);
        if p.is_null() {
            loader::close(handle);
            return None;
        }
        Some(p)
    }
}

/// Asks every loaded library but this one: static or renamed builds.
fn anywhere(name: &CStr, loaded: &[Loaded]) -> Option<*mut c_void> {
    let base_of = |address: *const c_void| loader::library_of(address).map(|l| l.dli_fbase as usize);
    let own = base_of(anywhere as *const c_void);
    let p = loaded.iter().filter(|l| Some(l.base) != own).find_map(|l| in_loaded(l.path.to_str()?, name))?;
    // A handle's search covers its dependencies; the global scope, where we stand, is none of them, but check.
    base_of(p).is_some_and(|base| Some(base) != own).then_some(p)
}

/// A function of the Python that runs in this process, by its name in the C API; null where there is none.
#[cold]
pub(crate) fn python(name: &CStr) -> *mut c_void {
    let _in_loader = loader::enter();
    // SAFETY: the name is a C string. Python's symbols are in the executable or in a library that is in the global scope.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The same as what it is: a function, or an object's address. `None`: there is none.
///
/// # Safety
/// What has this name must be a `T`.
#[cold]
pub(crate) unsafe fn of_python<T: Copy>(name: &CStr) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    let p = python(name);
    // SAFETY: as large as a pointer, and by the caller's promise of this type.
    (!p.is_null()).then(|| unsafe { core::mem::transmute_copy(&p) })
}
