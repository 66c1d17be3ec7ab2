//! The heap that this library uses: the C library's, or what was loaded in its place behind us, called by address. Profilers of memory (memray)
//! write their own functions into every library's table, ours too: what we allocate would be taken for the job's, and a thread of ours that
//! allocates while it is in the loader would wait for the profiler, which waits for the loader.

#[cfg(not(test))]
use super::loader::enter;
use super::loader::of_loader;
use super::reserve;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicPtr;

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void);

static MALLOC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static CALLOC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static REALLOC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static POSIX_MEMALIGN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static FREE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks the functions up, which enters the loader: before anything of the job runs.
#[cfg(not(test))]
pub(crate) fn prepare() {
    let _in_loader = enter();
    let all = [
        (&MALLOC, c"malloc"),
        (&CALLOC, c"calloc"),
        (&REALLOC, c"realloc"),
        (&POSIX_MEMALIGN, c"posix_memalign"),
        (&FREE, c"free"),
    ];
    for (place, name) in all {
        of_loader(place, name);
    }
}

/// What `malloc` aligns to.
const ALIGNED: usize = 16;

/// The heap; where the C library has not these functions under their first version, Rust's own way to them. Where it has no memory left, the
/// reserve.
pub(crate) struct Heap;

/// What the heap gave, or a part of the reserve.
///
/// # Safety
/// `block` is null, or a new block of this layout.
unsafe fn or_reserve(block: *mut u8, layout: Layout) -> *mut u8 {
    if block.is_null() { reserve::take(layout) } else { block }
}

// SAFETY: every call goes to the same heap's functions, which keep the contract of C's; blocks of a larger alignment come from
// `posix_memalign`, whose blocks `free` takes too. `System` ends in the same heap. Blocks of the reserve are told by their addresses, and go nowhere
// else.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the C library has by these names and version are these functions.
        unsafe {
            if layout.align() > ALIGNED {
                let p = of_loader(&POSIX_MEMALIGN, c"posix_memalign");
                if p.is_null() {
                    return or_reserve(System.alloc(layout), layout);
                }
                let mut block = core::ptr::null_mut();
                let align = layout.align().max(size_of::<usize>());
                core::mem::transmute::<*mut c_void, PosixMemalign>(p)(&mut block, align, layout.size());
                return or_reserve(block.cast(), layout);
            }
            let block = match of_loader(&MALLOC, c"malloc") {
                p if p.is_null() => System.alloc(layout),
                p => core::mem::transmute::<*mut c_void, Malloc>(p)(layout.size()).cast(),
            };
            or_reserve(block, layout)
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if reserve::has(block) {
            return reserve::give_back();
        }
        // SAFETY: as in `alloc`; the block is of this heap.
        unsafe {
            match of_loader(&FREE, c"free") {
                p if p.is_null() => System.dealloc(block, layout),
                p => core::mem::transmute::<*mut c_void, Free>(p)(block.cast()),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`; what `alloc` gives has the layout's size.
        unsafe {
            let zeroed = match of_loader(&CALLOC, c"calloc") {
                p if layout.align() <= ALIGNED && !p.is_null() => {
                    core::mem::transmute::<*mut c_void, Calloc>(p)(layout.size(), 1).cast()
                }
                _ => core::ptr::null_mut::<u8>(),
            };
            if !zeroed.is_null() {
                return zeroed;
            }
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`; the block is of this heap or of the reserve, and has the old layout's size.
        unsafe {
            if layout.align() <= ALIGNED
                && !reserve::has(block)
                && let p = of_loader(&REALLOC, c"realloc")
                && !p.is_null()
            {
                let new: *mut u8 = core::mem::transmute::<*mut c_void, Realloc>(p)(block.cast(), size).cast();
                if !new.is_null() {
                    return new;
                }
            }
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
