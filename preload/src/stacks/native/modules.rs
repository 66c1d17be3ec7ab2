//! What code is loaded where: a sorted table that hooks read and the writing thread replaces.
//!
//! The loader's list is read under the loader's lock, by the writing thread and when the process is armed, never by a hook.
//! A replaced table is not freed: a hook may be reading it, and libraries come by hundreds at most.

use crate::platform::loader;
use crate::platform::object::Object;
use core::ffi::c_void;
use object::LittleEndian;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::NoteIterator;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// A segment of code of a loaded library.
#[derive(Clone, Debug)]
pub(in crate::stacks) struct Module {
    /// First address of the segment.
    pub(in crate::stacks) start: usize,
    /// Behind its last.
    pub(in crate::stacks) end: usize,
    /// Where addresses of the library count from.
    pub(in crate::stacks) base: usize,
    /// Its `.eh_frame_hdr`; 0 where it has none.
    pub(in crate::stacks) header: usize,
    /// Behind the last byte of the segment that holds that.
    pub(in crate::stacks) header_end: usize,
    /// What it is a segment of.
    pub(in crate::stacks) library: &'static Library,
}

/// A library where it is loaded. Never freed: it has a number in the recording.
#[derive(Debug)]
pub(in crate::stacks) struct Library {
    /// Its path.
    pub(in crate::stacks) path: Box<str>,
    /// Its build id, where it has one.
    pub(in crate::stacks) build_id: Box<[u8]>,
    /// Its number in the recording; 0 until a frame is in it.
    pub(in crate::stacks) id: AtomicU32,
    /// What device memory that it asks for is.
    role: Role,
    /// The CUDA runtime that it depends on, as it names it; empty: none.
    runtime: Box<str>,
}

/// A segment of code, for who asks who calls which CUDA runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    /// First address of the segment.
    pub(crate) start: usize,
    /// Behind its last.
    pub(crate) end: usize,
    /// Where addresses of its library count from.
    pub(crate) base: usize,
    /// The library's path.
    pub(crate) path: &'a str,
    /// The CUDA runtime that the library depends on, as it names it; empty: none.
    pub(crate) needs_runtime: &'a str,
}

/// Whether this is what a library of the CUDA runtime is called; packages give their own copies longer names (`libcudart.faf08d9a.so.13`).
pub(crate) fn is_runtime(name: &str) -> bool {
    name.starts_with("libcudart.") && name.contains(".so")
}

/// All segments of code, by address, and the number of the table that has them (0: there is none yet).
pub(crate) fn code() -> (u32, impl Iterator<Item = Code<'static>>) {
    let table = current();
    let all = table.map_or(&[][..], |m| &m.all).iter().map(|m| Code {
        start: m.start,
        end: m.end,
        base: m.base,
        path: &m.library.path,
        needs_runtime: &m.library.runtime,
    });
    (table.map_or(0, |m| m.generation), all)
}

/// What device memory is that some code asks CUDA for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A block of the program's.
    Program,
    /// A block, or a chunk of CuPy's pool.
    CuPy,
    /// What one of CUDA's or PyTorch's libraries keeps for itself.
    Library,
    /// All that a framework divides among its arrays itself.
    Pool,
}

/// What to set for JAX to take each array's memory from CUDA.
pub(crate) const JAX_SETTING: &str = "XLA_PYTHON_CLIENT_ALLOCATOR=platform";

/// The role of the library of this path.
fn role_of(path: &str) -> Role {
    let name = path.rsplit('/').next().unwrap_or(path);
    let starts = |with: &[&str]| with.iter().any(|w| name.starts_with(w));
    if starts(&["xla_cuda_plugin", "xla_extension", "libjax_common", "pjrt_plugin"]) {
        let asked = std::env::var("XLA_PYTHON_CLIENT_ALLOCATOR").unwrap_or_default();
        // As XLA reads it: these are one, and what it does not know is an error of its own.
        return if ["", "default", "bfc"].contains(&asked.as_str()) { Role::Pool } else { Role::Program };
    }
    let nvidia = [
        "libcublas",
        "libcudnn",
        "libcufft",
        "libcurand",
        "libcusolver",
        "libcusparse",
        "libcutensor",
        "libcupti",
        "libcuda.",
        "libcudart",
        "libnccl",
        "libnv",
        "libtorch",
        "libc10",
    ];
    match () {
        () if starts(&nvidia) => Role::Library,
        () if path.contains("/cupy_backends/") || path.contains("/cupy/") => Role::CuPy,
        () => Role::Program,
    }
}

/// The role of the code at an address; of code that is not known, a program's.
#[inline]
pub(crate) fn role(address: usize) -> Role {
    current().and_then(|m| m.find(address)).map_or(Role::Program, |m| m.library.role)
}

/// What glibc says of the loaded library that some code is in: `struct dl_find_object` (2.35 and newer).
#[repr(C)]
struct FoundObject {
    flags: u64,
    start: *const c_void,
    end: *const c_void,
    link_map: *const c_void,
    /// Its `.eh_frame_hdr`.
    frames: *const c_void,
    reserved: [u64; 7],
}

/// `_dl_find_object`: no lock, no heap, safe in a signal handler; made for unwinders. Null where glibc is older.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks up glibc's `_dl_find_object` for [`Module::tables`]. `false`: this C library does not have it.
#[cold]
pub(super) fn find_dl_find_object() -> bool {
    FIND_OBJECT.store(crate::platform::real::python(c"_dl_find_object"), Relaxed);
    !FIND_OBJECT.load(Relaxed).is_null()
}

/// Unwind tables of a library that is loaded: only [`Module::tables`] makes one.
pub(super) struct LoadedTables {
    /// Its `.eh_frame_hdr`.
    pub(super) header: usize,
    /// First byte of the library, and behind the last of the segment that holds the tables.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Module {
    /// Where the unwind tables for the code at `address` lie, which is on this thread's stack. `None`: the library of our table was
    /// unloaded, and whatever is at the address now is not it. A library whose code is on a stack cannot be unloaded meanwhile, or
    /// the program itself would return to nowhere.
    pub(super) fn tables(&self, address: usize) -> Option<LoadedTables> {
        let find = FIND_OBJECT.load(Relaxed);
        if find.is_null() || self.header == 0 {
            return None;
        }
        // SAFETY: the function's type is part of glibc's interface, and the structure is as large as it says. All of it may be zero.
        let (known, found) = unsafe {
            let find: extern "C" fn(*const c_void, *mut FoundObject) -> core::ffi::c_int =
                core::mem::transmute(find);
            let mut found: FoundObject = core::mem::zeroed();
            (find(address as *const c_void, &mut found) == 0, found)
        };
        let (start, end) = (found.start as usize, found.end as usize);
        let same =
            known && found.frames as usize == self.header && self.header_end <= end.next_multiple_of(4096);
        (same && start <= self.header).then_some(LoadedTables {
            header: self.header,
            start,
            end: self.header_end,
        })
    }
}

/// Whether the code at an address is a library's whose path ends so.
#[cold]
pub(crate) fn is_in(address: usize, ending: &str) -> bool {
    current().and_then(|m| m.find(address)).is_some_and(|m| m.library.path.ends_with(ending))
}

/// All segments of code, by address.
pub(in crate::stacks) struct Modules {
    all: Vec<Module>,
    /// Counts tables; 0: none.
    pub(super) generation: u32,
    /// This library's own code.
    pub(super) own: (usize, usize),
    /// The table before. It stays, and tools that look for leaks find who refers to it.
    _before: Option<&'static Modules>,
}

static CURRENT: AtomicPtr<Modules> = AtomicPtr::new(core::ptr::null_mut());
/// What the loader said it had loaded and unloaded when the table was made.
static COUNTS: AtomicU64 = AtomicU64::new(0);

/// The table; `None` before [`refresh`].
#[inline(always)]
pub(in crate::stacks) fn current() -> Option<&'static Modules> {
    // SAFETY: null, or a table that was leaked by `refresh`.
    unsafe { CURRENT.load(Acquire).as_ref() }
}

impl Modules {
    /// The module of an address.
    pub(in crate::stacks) fn find(&self, address: usize) -> Option<&Module> {
        let i = self.all.partition_point(|m| m.start <= address).checked_sub(1)?;
        self.all.get(i).filter(|m| address < m.end)
    }
}

/// Makes the table anew where libraries have come or gone. By one thread at a time: whoever arms, then the writing thread.
#[cold]
pub(crate) fn refresh() {
    let counts = counts();
    if counts == COUNTS.load(Relaxed) && current().is_some() {
        return;
    }
    let mut all: Vec<Module> = Vec::new();
    let _in_loader = loader::enter();
    // SAFETY: the callback has the required signature, and its data is the vector, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all.sort_unstable_by_key(|m| m.start);
    let here = refresh as *const () as usize;
    let own = all
        .iter()
        .filter(|_| !cfg!(test))
        .find(|m| (m.start..m.end).contains(&here))
        .map_or((0, 0), |m| (m.start, m.end));
    let generation = current().map_or(1, |m| m.generation.wrapping_add(1).max(1));
    CURRENT.store(Box::into_raw(Box::new(Modules { all, generation, own, _before: current() })), Release);
    COUNTS.store(counts, Relaxed);
}

/// Libraries loaded and unloaded so far, as one number.
fn counts() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> libc::c_int {
        // SAFETY: the loader passes a live structure, and `out` is the number below.
        unsafe { *out.cast::<u64>() = (*info).dlpi_adds << 32 | ((*info).dlpi_subs & 0xffff_ffff) };
        1
    }
    let mut n = 0u64;
    let _in_loader = loader::enter();
    // SAFETY: the callback has the required signature, and its data is a number that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut n).cast()) };
    n
}

/// Adds a library's segments of code.
///
/// # Safety
/// As the loader calls it; `out` must be a `Vec<Module>`.
unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> libc::c_int {
    // SAFETY: the caller's promise; the headers and the segments that they describe are mapped as long as the loader's lock
    // is held, which it is.
    unsafe {
        let (info, out) = (&*info, &mut *out.cast::<Vec<Module>>());
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let base = info.dlpi_addr as usize;
        let place = |h: &libc::Elf64_Phdr| {
            let start = base.wrapping_add(h.p_vaddr as usize);
            (start, start.saturating_add(h.p_memsz as usize))
        };
        let frames = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME).map_or(0, |h| place(h).0);
        let loaded = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let header_end =
            loaded().map(place).find(|&(start, end)| (start..end).contains(&frames)).map_or(0, |p| p.1);
        let notes = headers.iter().filter(|h| h.p_type == libc::PT_NOTE).map(place);
        let notes = notes.filter(|&(start, end)| loaded().map(place).any(|p| p.0 <= start && end <= p.1));
        let build_id: Box<[u8]> = notes
            .filter_map(|(start, end)| build_id(std::slice::from_raw_parts(start as *const u8, end - start)))
            .next()
            .unwrap_or_default()
            .into();
        let path = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        let mut path = path.to_string_lossy().into_owned();
        if path.is_empty() && out.is_empty() {
            // The program itself comes first, and has no name.
            let program = std::fs::read_link("/proc/self/exe");
            path = program.map_or(path, |p| p.to_string_lossy().into_owned());
        }
        let header = if header_end == 0 { 0 } else { frames };
        let library = library(base, path, build_id, info);
        for h in loaded().filter(|h| h.p_flags & libc::PF_X != 0) {
            let (start, end) = place(h);
            out.push(Module { start, end, base, header, header_end, library });
        }
    }
    0
}

/// The library of this path at this place: the one of the last table, or a new one.
fn library(base: usize, path: String, build_id: Box<[u8]>, info: &libc::dl_phdr_info) -> &'static Library {
    let known = current().and_then(|m| m.all.iter().find(|m| m.base == base)).map(|m| m.library);
    known.filter(|l| *l.path == *path && l.build_id == build_id).unwrap_or_else(|| {
        let role = role_of(&path);
        let object = Object::read(info);
        let needs = object.as_ref().and_then(|o| o.needs().find(|n| is_runtime(&String::from_utf8_lossy(n))));
        let runtime = needs.map(String::from_utf8_lossy).unwrap_or_default().into();
        Box::leak(Box::new(Library { path: path.into(), build_id, id: AtomicU32::new(0), role, runtime }))
    })
}

/// The GNU build id among the notes of a segment.
fn build_id(notes: &[u8]) -> Option<&[u8]> {
    let mut notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, 4, notes).ok()?;
    loop {
        let note = notes.next().ok()??;
        if note.n_type(LittleEndian) == NT_GNU_BUILD_ID && note.name() == ELF_NOTE_GNU {
            return Some(note.desc());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_program_is_in_the_table() {
        refresh();
        let all = current().unwrap();
        let here = build_id as *const () as usize;
        let m = all.find(here).unwrap();
        assert!(m.header != 0 && m.base <= here && !m.library.path.is_empty());
        assert!(all.find(8).is_none());
        assert!(all.all.iter().any(|m| m.library.path.contains("libc.so")));
    }

    #[test]
    fn who_asks_for_device_memory_is_told_by_its_librarys_name() {
        for (path, role) in [
            ("/x/site-packages/nvidia/nccl/lib/libnccl.so.2", Role::Library),
            ("/x/site-packages/torch/lib/libc10_cuda.so", Role::Library),
            ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", Role::Library),
            ("/x/cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so", Role::CuPy),
            ("/home/me/a.out", Role::Program),
            ("/home/me/libcustom.so", Role::Program),
        ] {
            assert_eq!(role_of(path), role, "{path}");
        }
    }

    #[test]
    fn a_build_id_is_found_among_notes() {
        let mut notes = Vec::new();
        for (kind, text) in [(1u32, [9u8; 3].as_slice()), (3, &[1, 2, 3, 4, 5])] {
            notes.extend_from_slice(&4u32.to_le_bytes());
            notes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            notes.extend_from_slice(&kind.to_le_bytes());
            notes.extend_from_slice(b"GNU\0");
            notes.extend_from_slice(text);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some([1u8, 2, 3, 4, 5].as_slice()));
        for n in 0..notes.len() - 3 {
            assert_eq!(build_id(&notes[..n]), None, "{n}");
        }
    }
}
