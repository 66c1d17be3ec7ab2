//! Forks and the loader's locks. A child of a fork has one thread, and the loader's locks as they were: one that another thread held
//! stays held for ever, and the child hangs in its first `dlopen`. So whoever of us asks the loader says so, and a fork waits for him.

use super::pause::pause;
use super::tid::tid;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

/// What a `dlsym` is.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// What a `dlopen` is.
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
/// What a `dlclose` is.
type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
/// The loader's own: profilers write other functions' addresses into all libraries' tables (memray's `dlopen` and `dlclose` go through every
/// table of every library each time), ours among them.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Threads that are in the loader for us.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Forks under way.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The thread that began the last of them, by the kernel's number; 0: it is over.
static FORKER: AtomicU32 = AtomicU32::new(0);
/// The thread that came into the loader last, by its number; 0: it has left.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The process that began it.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// How long somebody is waited for. What is waited for takes microseconds, and some milliseconds where the tables of PyTorch's libraries are
/// gone through; who waits for the loader's lock himself may do so for seconds.
const LONGEST: Duration = Duration::from_millis(100);
/// And how often is looked, every 50 µs, where the job's clock does not go on.
const MOST_LOOKS: u32 = 2_000;

/// Waits until there is none; `false`: there still is one.
fn wait(for_none: &AtomicU32) -> bool {
    let begun = Instant::now();
    for _ in 0..MOST_LOOKS {
        if for_none.load(SeqCst) == 0 {
            return true;
        }
        if begun.elapsed() > LONGEST {
            break;
        }
        pause(Duration::from_micros(50));
    }
    false
}

/// This thread asks the loader something while this lives.
pub(crate) struct InLoader(());

/// Says that this thread is about to ask the loader: `dl_iterate_phdr`, `dlsym`, `dladdr`, `dlopen`. Waits for a fork under way.
#[cold]
pub(crate) fn enter() -> InLoader {
    let own = tid();
    // Who forks himself comes by here from a handler of somebody else's, and would wait for his own fork.
    while FORKER.load(SeqCst) != own {
        INSIDE.fetch_add(1, SeqCst);
        if FORKS.load(SeqCst) == 0 {
            LAST.store(own, SeqCst);
            return InLoader(());
        }
        // The fork may have looked before: it goes first, and so does the next one that has begun meanwhile.
        INSIDE.fetch_sub(1, SeqCst);
        if FORKING.load(SeqCst) != std::process::id() {
            // In the child, where somebody's handler runs before ours.
            after_fork_in_child();
            continue;
        }
        if !wait(&FORKS) {
            break;
        }
    }
    INSIDE.fetch_add(1, SeqCst);
    InLoader(())
}

impl Drop for InLoader {
    fn drop(&mut self) {
        let _ = LAST.compare_exchange(tid(), 0, SeqCst, SeqCst);
        // A child of a fork that could not wait begins with none.
        let _ = INSIDE.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }
}

/// Before a fork: nobody of us is in the loader when it happens.
pub(crate) unsafe extern "C" fn before_fork() {
    FORKING.store(std::process::id(), SeqCst);
    FORKS.fetch_add(1, SeqCst);
    FORKER.store(tid(), SeqCst);
    // A signal handler that forks while its own thread is in the loader would wait for itself.
    if LAST.load(SeqCst) != tid() {
        wait(&INSIDE);
    }
}

/// After it, in the parent.
pub(crate) unsafe extern "C" fn after_fork() {
    let _ = FORKER.compare_exchange(tid(), 0, SeqCst, SeqCst);
    FORKS.fetch_sub(1, SeqCst);
}

/// After it, in the child: its one thread has just forked, and is in no loader of ours.
pub(crate) fn after_fork_in_child() {
    FORKER.store(0, SeqCst);
    LAST.store(0, SeqCst);
    FORKS.store(0, SeqCst);
    INSIDE.store(0, SeqCst);
}

/// Whether the program, or a library that was loaded together with it, has this under the name: one that was opened for somebody has
/// not.
pub(crate) fn is_global(name: &CStr, address: *const ()) -> bool {
    // SAFETY: the program itself is opened once more, which runs nothing, and is never closed; a look-up through it goes through the
    // global scope. The name is a C string, and the result is only compared.
    unsafe {
        let program = open(None);
        !program.is_null() && core::ptr::addr_eq(libc::dlsym(program, name.as_ptr()), address)
    }
}

/// The loaded library that an address lies in.
pub(crate) fn library_of(address: *const c_void) -> Option<libc::Dl_info> {
    let _in_loader = enter();
    // SAFETY: all fields may be zero; the structure is ours, and the address is only looked up.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (libc::dladdr(address, &mut info) != 0).then_some(info)
    }
}

/// The C library's own function of this name, and not what another preloaded library or a profiler has put in front of it. Found by its
/// version, which others' have not; it has had two, the older is on every system.
pub(super) fn of_loader(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut p = place.load(Relaxed);
    if p.is_null() {
        // SAFETY: both are C strings, and the call comes from this library, behind which the search begins.
        p = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.2.5".as_ptr()) };
        place.store(p, Relaxed);
    }
    p
}

/// Opens a library that is loaded already, or the program itself, once more, which runs nothing of it; null where it is not loaded.
#[cold]
pub(crate) fn open(library: Option<&CStr>) -> *mut c_void {
    // SAFETY: with RTLD_NOLOAD no initialiser runs: the library is there already or the call fails.
    unsafe { open_with(library, libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

/// Loads a library of the machine's; null where there is none.
///
/// # Safety
/// Its initialisers do nothing to the job.
#[cfg(strandline_floor)]
#[cold]
pub(crate) unsafe fn load(library: &CStr) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { open_with(Some(library), libc::RTLD_LAZY) }
}

/// # Safety
/// The library's initialisers, which run unless the flags keep them from it, do nothing to the job.
#[cold]
unsafe fn open_with(library: Option<&CStr>, flags: c_int) -> *mut c_void {
    let p = of_loader(&DLOPEN, c"dlopen");
    if p.is_null() {
        return p;
    }
    let name = library.map_or(core::ptr::null(), CStr::as_ptr);
    // SAFETY: what the loader has by this name and version is its `dlopen`, of this type; the name is a C string or none; the rest is the
    // caller's promise.
    unsafe {
        let handle = core::mem::transmute::<*mut c_void, Dlopen>(p)(name, flags);
        if handle.is_null() {
            // The job is not to find our failure.
            libc::dlerror();
        }
        handle
    }
}

/// Closes what [`open`] has given.
///
/// # Safety
/// Nothing of that library is used on the strength of this handle any more.
#[cold]
pub(crate) unsafe fn close(handle: *mut c_void) {
    let p = of_loader(&DLCLOSE, c"dlclose");
    if !p.is_null() {
        // SAFETY: what the loader has by this name and version is its `dlclose`, of this type; the rest is the caller's promise.
        unsafe { core::mem::transmute::<*mut c_void, Dlclose>(p)(handle) };
    }
}

/// What a library that is open has by a name; null: nothing.
///
/// # Safety
/// As `dlsym`: the handle is [`RTLD_NEXT`](libc::RTLD_NEXT), [`RTLD_DEFAULT`](libc::RTLD_DEFAULT), or open.
#[cold]
pub(crate) unsafe fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let p = of_loader(&DLSYM, c"dlsym");
    if p.is_null() {
        return p;
    }
    // SAFETY: what the loader has by this name and version is its `dlsym`, of this type; the name is a C string, and the call comes from
    // this library; the rest is the caller's promise.
    unsafe {
        let found = core::mem::transmute::<*mut c_void, Dlsym>(p)(handle, name.as_ptr());
        if found.is_null() {
            libc::dlerror();
        }
        found
    }
}

/// What the libraries behind this one have by a name, asked of the loader's own `dlsym`: another preloaded library may have one too, and
/// would answer with what is behind itself.
#[cold]
pub(crate) fn next(name: &CStr) -> *mut c_void {
    // SAFETY: a handle that the loader knows.
    unsafe { symbol(libc::RTLD_NEXT, name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_waits_for_who_is_in_the_loader() {
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|s| {
            let inside = enter();
            s.spawn(|| {
                begun.store(1, SeqCst);
                // SAFETY: as the C library calls them, without a fork between.
                unsafe { before_fork() };
                ended.store(1, SeqCst);
                // SAFETY: as above.
                unsafe { after_fork() };
            });
            while begun.load(SeqCst) == 0 {}
            assert_eq!(ended.load(SeqCst), 0);
            drop(inside);
        });
        assert_eq!((ended.load(SeqCst), INSIDE.load(SeqCst), FORKS.load(SeqCst)), (1, 0, 0));
    }
}
