//! Attaches the tracker to the native caching allocator, once it is initialized, after proving that it is that.
//!
//! Nothing is called on an object that has not proved its identity twice: by the address of its vtable where the
//! library has symbols, and by the name in its own RTTI always. What proves to be something else is left alone.

use super::entry::StdFunction;
use super::tracker::{self, Setup};
use super::versions::{self, Version};
use super::{entry::TraceEntry, fraction, grad, uncached};
use crate::platform::config::Stacks;
use crate::platform::elf;
use crate::platform::own_stack::with_room;
use crate::platform::real::{self, Library};
use crate::platform::say::say;
use crate::recorder::at_work::in_room;
use crate::recorder::before;
use crate::{recorder, stacks};
use once_cell::sync::OnceCell;
use serde_json::json;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use strandline_core::event::Room;

const VTABLE: &[u8] = b"_ZTVN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE";
const RTTI: &str = "N3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE";
/// Part of the name of PyTorch's adapter for allocators that are not its own.
pub(crate) const PLUGGABLE: &str = "CUDAPluggableAllocator";
/// End of the name of PyTorch's allocator that asks CUDA for every block: `backend:cudaMallocAsync`.
const ASYNC: &str = "24CudaMallocAsyncAllocatorE";
/// Its functions' names begin so.
const CLASS: &[u8] = b"_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator";
/// The parameter's mangling differs between versions.
const ATTACH_PREFIX: &[u8] =
    b"_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator27attachAllocatorTraceTracker";
/// What it may take of a device, as a fraction.
const FRACTION_PREFIX: &[u8] =
    b"_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator17getMemoryFractionE";
const INITIALIZED: &[u8] =
    b"_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator11initializedEv";

static BUSY: AtomicBool = AtomicBool::new(false);
#[unsafe(link_section = ".data.strandline_hot")]
static SETTLED: AtomicBool = AtomicBool::new(false);
static COPIES: AtomicU32 = AtomicU32::new(0);
static LOCATED: OnceCell<Result<Located, String>> = OnceCell::new();

/// What else happens when we attach.
pub(crate) struct Callbacks {
    /// Before the first event: looks up what hooks need of PyTorch.
    pub(crate) prepare: fn(),
    /// PyTorch's allocator is a pluggable one, at this address: facts about it where it is this library's.
    pub(crate) own_allocator: unsafe fn(usize) -> Option<serde_json::Value>,
    /// The tracker is in place. On a thread of the job, which may hold locks of PyTorch's.
    pub(crate) attached: fn(),
    /// The process does not record, and never will: nobody needs to tell when PyTorch's allocator is there.
    pub(crate) not_recorded: fn(),
}

static CALLBACKS: OnceLock<Callbacks> = OnceLock::new();

/// Says what else happens, before the process records.
pub(crate) fn set_callbacks(callbacks: Callbacks) {
    let _ = CALLBACKS.set(callbacks);
}

fn callbacks() -> &'static Callbacks {
    CALLBACKS.get_or_init(|| Callbacks {
        prepare: || {},
        own_allocator: |_| None,
        attached: || {},
        not_recorded: || {},
    })
}

/// Whether there is nothing left to try: attached, refused, or the process does not record.
pub(crate) fn is_settled() -> bool {
    SETTLED.load(Acquire)
}

/// Tries to attach. Called where no allocator lock is held. Returns quickly where it has been tried, or is being tried by
/// another thread.
#[cold]
#[inline(never)]
pub(crate) fn attempt() {
    if is_settled() || BUSY.swap(true, AcqRel) {
        return;
    }
    // Whoever calls PyTorch first may have little stack left.
    if with_room(try_to_attach).is_none() {
        SETTLED.store(true, Release);
    }
    BUSY.store(false, Release);
}

fn try_to_attach() {
    if !recorder::is_recording() {
        SETTLED.store(true, Release);
        (callbacks().not_recorded)();
    } else {
        let _at_work = in_room(Room::Attach);
        match attach() {
            Ok(false) => {} // not initialized yet: the next call will see
            Ok(true) => {
                (callbacks().attached)();
                SETTLED.store(true, Release);
            }
            Err(refusal) => {
                SETTLED.store(true, Release);
                refused(&refusal);
            }
        }
    }
}

/// Whether our tracker is in place.
pub(crate) fn is_attached() -> bool {
    COPIES.load(Relaxed) > 0
}

/// PyTorch's allocator of device memory and its type's name, as it is now. `None` without PyTorch, or before it has one.
#[cold]
pub(crate) fn allocator() -> Option<(usize, String)> {
    let l = LOCATED.get_or_init(locate).as_ref().ok()?;
    let (object, _, name) = named(l)?;
    Some((object, name))
}

/// The allocator object, its vtable, and the name in its own RTTI. `None`: there is none yet.
fn named(l: &Located) -> Option<(usize, usize, String)> {
    // SAFETY: `allocator` is the exported `std::atomic<CUDAAllocator*>`: null, or a polymorphic object that lives for ever,
    // whose first word is its vtable pointer.
    unsafe {
        let object = (*(l.allocator as *const std::sync::atomic::AtomicUsize)).load(Acquire);
        if object == 0 {
            return None;
        }
        let vtable = *(object as *const usize);
        Some((object, vtable, stacks::type_name(vtable as u64).trim_start_matches('*').to_string()))
    }
}

/// Where things lie in this process's libc10_cuda.
struct Located {
    allocator: usize,
    version: Option<Version>,
    /// Address of the vtable, where the library has symbols.
    vtable: Option<usize>,
    attach: Entry,
    initialized: Entry,
    /// Address of the function that tells the memory fraction, where calling it is only to read.
    fraction: Option<usize>,
}

#[derive(Clone, Copy)]
enum Entry {
    Address(usize),
    Slot(usize),
}

struct Refusal {
    allocator: String,
    reason: String,
    level: &'static str,
}

impl Refusal {
    fn unknown(reason: impl Into<String>) -> Refusal {
        Refusal { allocator: "unknown".into(), reason: reason.into(), level: "segments" }
    }
}

fn attach() -> Result<bool, Refusal> {
    let l = LOCATED.get_or_init(locate).as_ref().map_err(|e| Refusal::unknown(e.clone()))?;
    let Some((object, vtable, name)) = named(l) else { return Ok(false) };
    if name.contains(PLUGGABLE) {
        // SAFETY: the name says what the object is.
        if let Some(facts) = unsafe { (callbacks().own_allocator)(object) } {
            begin(l);
            tell_attached_with(facts);
            return Ok(true);
        }
    }
    if name.ends_with(ASYNC) {
        begin(l);
        uncached::set_async();
        tell_attached_with(also_missed(uncached::async_facts()));
        return Ok(true);
    }
    if name != RTTI {
        return Err(not_native(&name));
    }
    if l.vtable.is_some_and(|v| v + 16 != vtable) {
        return Err(Refusal::unknown("the allocator's vtable is not the one of its library"));
    }
    // SAFETY: the object is the native allocator (proved above), so the entry is the member function that its symbol or
    // its version's table names; `initialized` takes the object and returns bool.
    unsafe {
        let address = |e: Entry| match e {
            Entry::Address(a) => a,
            Entry::Slot(s) => *((vtable + 8 * s) as *const usize),
        };
        let initialized: extern "C" fn(usize) -> bool = core::mem::transmute(address(l.initialized));
        if !initialized(object) {
            return Ok(false);
        }
        begin(l);
        let mut function = StdFunction {
            functor: [0; 2],
            manager: manage as *const () as usize,
            invoker: tracker::event as *const () as usize,
        };
        // An exception cannot come from the native allocator; it copies the function once per device, and allocates for that.
        let attach: extern "C-unwind" fn(usize, *mut StdFunction) = core::mem::transmute(address(l.attach));
        attach(object, &mut function);
    }
    if COPIES.load(Relaxed) == 0 {
        return Ok(false); // no device yet: it was a no-op
    }
    if let Some(f) = l.fraction {
        fraction::begin(object, f);
    }
    tracker::attached();
    tell_attached();
    Ok(true)
}

/// Everything the first event needs; it may come from another thread as soon as the tracker is in.
fn begin(l: &Located) {
    let wanted = recorder::config().map_or(Stacks::None, |c| c.stacks);
    let any = stacks::begin(wanted);
    tracker::prepare(&Setup {
        pools: l.version.is_none_or(|v| v >= Version { major: 2, minor: 8 }),
        stacks: any,
    });
    grad::begin();
    (callbacks().prepare)();
}

/// The manager of our `std::function`. It has no state: a copy is a copy of two words.
///
/// # Safety
/// As libstdc++ calls it: `to` and `from` point to functors where the operation needs them.
unsafe extern "C" fn manage(to: *mut [usize; 2], from: *const [usize; 2], operation: c_int) -> bool {
    const GET_POINTER: c_int = 1;
    const CLONE: c_int = 2;
    // SAFETY: the caller's promise.
    unsafe {
        match operation {
            GET_POINTER => (*to)[0] = from as usize,
            CLONE => {
                *to = *from;
                COPIES.fetch_add(1, Relaxed);
            }
            _ => {}
        }
    }
    false
}

fn not_native(name: &str) -> Refusal {
    if name.contains(PLUGGABLE) {
        return Refusal {
            allocator: "pluggable".into(),
            reason: "allocator is a pluggable one: its blocks are not visible".into(),
            level: "segments",
        };
    }
    let name = if name.is_empty() { "of a class without a name" } else { name };
    Refusal { allocator: name.into(), reason: format!("allocator {name} is not known"), level: "segments" }
}

fn refused(r: &Refusal) {
    say!("{}; recording segments only", r.reason);
    recorder::record_metadata(json!({
        "allocator": r.allocator,
        "coverage": { "level": r.level, "reason": r.reason },
    }));
    tell_framework();
}

fn tell_attached() {
    // Older versions of torch ask whether it is set, newer ones what it says; where blocks are seen, they decide.
    let uncached = std::env::var_os("PYTORCH_NO_CUDA_MEMORY_CACHING").is_some();
    let coverage = match (uncached, uncached::is_known()) {
        (false, _) => json!({ "level": "blocks", "reason": before::missed() }),
        (true, true) => {
            return tell_attached_with(also_missed(
                json!({ "allocator": "native", "coverage": uncached::facts() }),
            ));
        }
        (true, false) => {
            json!({ "level": "segments", "reason": "PYTORCH_NO_CUDA_MEMORY_CACHING is set: the allocator does not cache, and reports nothing" })
        }
    };
    tell_attached_with(json!({ "allocator": "native", "coverage": coverage }));
}

/// What a recording that began late lacks as well stands before what else is not seen.
fn also_missed(mut facts: serde_json::Value) -> serde_json::Value {
    if let Some(missed) = before::missed() {
        let reason = &mut facts["coverage"]["reason"];
        *reason = reason.as_str().map_or_else(|| missed.to_string(), |r| format!("{missed}; {r}")).into();
    }
    facts
}

fn tell_attached_with(facts: serde_json::Value) {
    recorder::record_metadata(facts);
    let version = tell_framework();
    recorder::say_attached(&version);
}

/// Says which PyTorch this is; the version without its build tag.
fn tell_framework() -> String {
    let version = elf::find("libc10_cuda.so").and_then(|l| torch_version(&l.path));
    let Some(version) = version else { return "of unknown version".into() };
    let short = version.split('+').next().unwrap_or(&version).to_string();
    recorder::record_metadata(json!({ "framework": format!("torch {short}"), "torch": version }));
    short
}

/// Reads `torch/version.py` beside the library's folder. `None` for a libtorch without Python.
pub(crate) fn torch_version(library: &Path) -> Option<String> {
    let torch = library.parent()?.parent()?;
    let text = std::fs::read_to_string(torch.join("version.py"))
        .or_else(|_| std::fs::read_to_string(torch.join("build-version")))
        .ok()?;
    match text.lines().find_map(|l| l.strip_prefix("__version__")) {
        Some(rest) => Some(
            rest.trim_start_matches([' ', '=', ':', 's', 't', 'r'])
                .trim()
                .trim_matches(['\'', '"'])
                .to_string(),
        ),
        None => text
            .lines()
            .next()
            .map(|l| l.trim().to_string())
            .filter(|l| l.starts_with(|c: char| c.is_ascii_digit())),
    }
}

fn locate() -> Result<Located, String> {
    let library = elf::find("libc10_cuda.so").ok_or("libc10_cuda.so is not loaded under this name")?;
    let allocator = real::look_up(c"_ZN3c104cuda20CUDACachingAllocator9allocatorE", Library::C10Cuda);
    if allocator.is_null() {
        return Err("this PyTorch does not export its allocator".into());
    }
    let version = torch_version(&library.path).and_then(|v| Version::parse(&v));
    let mut found = Located {
        allocator: allocator as usize,
        version,
        vtable: None,
        attach: Entry::Slot(0),
        initialized: Entry::Slot(0),
        fraction: None,
    };
    let (mut attach, mut initialized) = (None, None);
    let at = |value: usize| library.base.wrapping_add(value);
    let read = elf::with_file(&library.path, |file| {
        elf::symtab(file, |s| {
            if s.name == VTABLE && s.size > 0 {
                found.vtable = Some(at(s.value));
            } else if s.name == INITIALIZED {
                initialized = Some(at(s.value));
            } else if s.name.starts_with(ATTACH_PREFIX) && !s.name.ends_with(b".cold") {
                attach = Some(at(s.value));
            } else if s.name.starts_with(FRACTION_PREFIX) && !s.name.ends_with(b".cold") {
                found.fraction = version.filter(|v| *v >= fraction::ONLY_READS).map(|_| at(s.value));
            } else if s.name.strip_prefix(CLASS).is_some_and(uncached::is_uncached_function) {
                uncached::register_uncached_range(at(s.value), s.size);
            }
        })
    });
    if let (Ok(Some(())), Some(_), Some(a), Some(i)) = (read, found.vtable, attach, initialized) {
        found.attach = Entry::Address(a);
        found.initialized = Entry::Address(i);
        return Ok(found);
    }
    // Stripped: the table, guarded by the RTTI name alone.
    let (a, i) = version.and_then(versions::slots).ok_or_else(|| {
        format!(
            "libc10_cuda.so is stripped and PyTorch {} is not in the table of known versions",
            version.map_or("of unknown version".into(), |v| format!("{}.{}", v.major, v.minor))
        )
    })?;
    found.vtable = None;
    found.attach = Entry::Slot(a);
    found.initialized = Entry::Slot(i);
    Ok(found)
}

const _: () = assert!(size_of::<TraceEntry>() == 64);
const _: () = assert!(size_of::<*const c_void>() == 8);
