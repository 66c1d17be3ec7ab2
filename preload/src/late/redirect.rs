//! Puts our hooks into the tables by which loaded libraries call CUDA and torch.
//!
//! A library calls a function of another one through a word of its own (global offset table), which the loader fills when
//! it binds the call. We do what the loader does: one aligned store of eight bytes, which other threads see before or
//! after, never in between. A word is replaced only where it holds what we know: the real function, or (not bound yet) an
//! address inside the library itself. Anything else is somebody's who came before, and is left alone. So is a library that
//! is still being loaded: its words are not addresses yet, or its table, which the loader makes read-only when it has
//! done with it, can still be written. Where the table is read-only, it is so again after our store.
//!
//! The loader's own lock is held meanwhile, so no library goes away under us.

use crate::hooks::{self, Trigger};
use crate::platform::loader;
use crate::platform::object::Object;

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// How it went.
#[derive(Default)]
pub(super) struct Done {
    /// Calls that come to us now.
    redirected: u32,
    /// Calls that go elsewhere.
    left: u32,
}

impl Done {
    /// What a recording that begins now lacks, as a clause.
    pub(super) fn missed(&self) -> String {
        let left = match (self.redirected, self.left) {
            (0, _) => {
                ", and no call of a loaded library could be redirected: no streams, no totals".to_string()
            }
            (_, 0) => String::new(),
            (_, n) => format!(", and {n} calls of loaded libraries are intercepted by other code"),
        };
        format!(
            "what this process did before strandline.start(), and CUDA calls of libraries that it loads later{left}"
        )
    }
}

/// What is looked for, and what came of it.
struct Search {
    /// By name: what a word is to hold, and what it may hold now.
    words: HashMap<&'static [u8], (usize, usize)>,
    own: usize,
    read_only: Vec<Range<usize>>,
    /// Only words that hold what they may hold, in tables that can be written as they are.
    is_gentle: bool,
    done: Done,
}

/// Redirects the calls of every library that is loaded now.
pub(super) fn all() -> Done {
    let known = hooks::addresses().into_iter().filter(|(name, _, real)| *real != 0 && is_plain(name));
    let mut search = Search {
        words: known.map(|(name, hook, real)| (name.as_bytes(), (hook, real))).collect(),
        own: all as *const () as usize,
        read_only: read_only(),
        is_gentle: false,
        done: Done::default(),
    };
    let _in_loader = loader::enter();
    // SAFETY: the callback has the required signature, and `search` outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut search).cast()) };
    search.done
}

/// Lets the calls of this hook go past us, in the libraries of PyTorch's that are loaded now: what it was there for is done. A call that is not bound yet, is bound anew or lies in a table that has been sealed
/// still comes to us, and nobody else's word is touched.
#[cold]
pub(crate) fn unpatch_triggers(hook: Option<Trigger>) {
    let mut search = Search {
        words: hook.iter().map(|(name, hook, real)| (name.as_bytes(), (*real, *hook))).collect(),
        own: unpatch_triggers as *const () as usize,
        read_only: read_only(),
        is_gentle: true,
        done: Done::default(),
    };
    extern "C" fn each_of_pytorch(info: *mut libc::dl_phdr_info, size: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description, whose name is null or a C string.
        let name = unsafe { info.as_ref() }.map(|i| i.dlpi_name).filter(|name| !name.is_null());
        // SAFETY: as above.
        let name = name.map_or(&b""[..], |name| unsafe { CStr::from_ptr(name) }.to_bytes());
        if PYTORCHS.iter().any(|l| name.ends_with(l)) { each(info, size, search) } else { 0 }
    }
    let _in_loader = loader::enter();
    // SAFETY: the callback has the required signature, and `search` outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(each_of_pytorch), (&raw mut search).cast()) };
}

/// Whose calls can be many.
const PYTORCHS: [&[u8]; 4] =
    [b"/libtorch_cuda.so", b"/libc10_cuda.so", b"/libtorch_python.so", b"/libtorch_cpu.so"];

/// What of this process is mapped to be read and no more.
fn read_only() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let read_only = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        rest.starts_with("r--").then_some(number(from)?..number(to)?)
    };
    maps.lines().filter_map(read_only).collect()
}

/// The loader's own functions depend on who calls them: they stay with their callers.
fn is_plain(name: &str) -> bool {
    name.starts_with("cu") || name.starts_with("_Z") || name.starts_with("nvtx")
}

extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, and `search` is what `all` passed, used by nobody else.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if let Some(object) = Object::read(info)
        && !object.covers(search.own, 1)
    {
        redirect(&object, search);
    }
    0
}

/// `Elf64_Rela`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: usize,
    kind: u32,
    symbol: u32,
    addend: i64,
}

/// `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT`: a word of the table is a symbol's address.
const TABLE_WORDS: [u32; 2] = [6, 7];

fn redirect(object: &Object, search: &mut Search) {
    for (i, (table, bytes)) in object.relocations.into_iter().enumerate() {
        let count = bytes / size_of::<Relocation>();
        if table % 8 != 0 || count == 0 || !object.covers(table, bytes) {
            continue;
        }
        // SAFETY: the table lies within a mapped part (just checked), is aligned, and is only ever read.
        let all = unsafe { std::slice::from_raw_parts(table as *const Relocation, count) };
        let skip = if i == 0 { object.relative.min(count) } else { 0 };
        for r in all.iter().skip(skip).filter(|r| TABLE_WORDS.contains(&r.kind)) {
            // PyTorch's libraries have a hundred thousand: what a word holds is seen sooner than what it is called.
            let may_be = |now| search.words.values().any(|(_, old)| now == *old);
            if search.is_gentle && !word(object, r.offset).is_some_and(|w| may_be(w.load(Relaxed))) {
                continue;
            }
            let found = object
                .symbol(r.symbol)
                .filter(|n| matches!(n.first(), Some(b'c' | b'_' | b'n')))
                .and_then(|n| search.words.get(n))
                .copied();
            let Some((new, old)) = found else { continue };
            match replace(object, r.offset, new, old, search) {
                Some(true) => search.done.redirected += 1,
                Some(false) => {}
                None => search.done.left += 1,
            }
        }
    }
}

/// The word at `offset` of a library, where there can be one.
fn word(object: &Object, offset: usize) -> Option<&AtomicUsize> {
    let at = offset.wrapping_add(object.base);
    // SAFETY: an aligned word within a mapped part (just checked), which the loader and callers read and write whole; the library stays as
    // long as `object` is used, within `dl_iterate_phdr`.
    (at.is_multiple_of(8) && object.covers(at, 8)).then(|| unsafe { &*(at as *const AtomicUsize) })
}

/// Puts `new` into the word at `offset` of this library, which holds `old` or is not bound yet. `Some(false)`: it is there
/// already. `None`: the word is not what it should be, or cannot be written.
fn replace(object: &Object, offset: usize, new: usize, old: usize, search: &Search) -> Option<bool> {
    let word = word(object, offset)?;
    let (at, now) = (word.as_ptr() as usize, word.load(Acquire));
    if now == new {
        return Some(false);
    }
    if now != old && (search.is_gentle || !object.covers(now, 1)) {
        return None;
    }
    let is_read_only = search.read_only.iter().any(|r| r.contains(&at));
    if object.sealed.contains(&at) != is_read_only {
        return None; // still being loaded, or not laid out as we think
    }
    if is_read_only && (search.is_gentle || !protect(at, libc::PROT_READ | libc::PROT_WRITE)) {
        return None;
    }
    word.store(new, Release);
    if is_read_only {
        protect(at, libc::PROT_READ);
    }
    Some(true)
}

/// Sets what may be done with the page of a word; whether the kernel agrees.
fn protect(at: usize, what: c_int) -> bool {
    // SAFETY: asks for a constant.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
    // SAFETY: the page holds a table of addresses that the loader has made read-only (looked up before): it is data, and
    // stays readable throughout.
    unsafe { libc::mprotect((at - at % page) as *mut c_void, page, what) == 0 }
}
