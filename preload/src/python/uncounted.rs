//! Objects of ours that Python's collector does not count.
//!
//! Whatever a job allocates counts towards its next collection, and a collection may be what frees a tensor: one that comes earlier or later
//! because of us would change the job's peak. So the count of young objects is put back once we have allocated, and none begins meanwhile.
//!
//! Where the count lies is told by the structure around it ([`Collector`]) and proved: it must go up by one with each of several sets that are
//! made, and down with each that goes, while its neighbours stay. Where it is not proved (Python 3.8, the first releases of 3.14, free-threaded builds),
//! nothing is written, and ours count like the job's. The older generations are only counted by collections, of which we cause none.

use super::collector::{Collector, Counted};
use super::free_lists::FreeLists;
use super::object::Object;
use super::version;
use crate::platform::real;
use once_cell::sync::OnceCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The count while objects of ours are made: too low for a collection, whatever the threshold is, and not so low that a child that is forked
/// meanwhile (by another thread) would have none.
const LOW: i32 = -4096;
/// Sets that the proof makes.
const SETS: usize = 3;
/// Times that the proof is tried, where a collection may be close.
const MOST: u32 = 100;

/// The C API that this needs.
struct Api {
    current: extern "C" fn() -> u64,
    main: extern "C" fn() -> u64,
    set: extern "C" fn(Object) -> Object,
    release: extern "C" fn(Object),
    /// Of 3.10 and newer.
    switch: Option<Switch>,
    /// Whether a collection that is due waits for the next instruction of Python's: 3.12 and newer.
    waits: bool,
}

/// Whether the collector begins on its own: each function returns what was so before it.
struct Switch {
    is_enabled: extern "C" fn() -> c_int,
    enable: extern "C" fn() -> c_int,
    disable: extern "C" fn() -> c_int,
}

impl Switch {
    fn look_up() -> Option<Switch> {
        // SAFETY: the functions have had these types since 3.10, which has brought them.
        unsafe {
            Some(Switch {
                is_enabled: real::of_python(c"PyGC_IsEnabled")?,
                enable: real::of_python(c"PyGC_Enable")?,
                disable: real::of_python(c"PyGC_Disable")?,
            })
        }
    }
}

/// Looked up once: the loader's lock may be another thread's that waits for the GIL. `None`: this Python is not known.
fn api() -> Option<&'static Api> {
    static API: OnceCell<Option<Api>> = OnceCell::new();
    let look_up = || {
        let minor = version::python_minor().filter(|m| (9..=15).contains(m))?;
        if version::is_free_threaded() {
            return None;
        }
        // SAFETY: the functions have had these types since 3.9.
        unsafe {
            Some(Api {
                current: real::of_python(c"PyInterpreterState_Get")?,
                main: real::of_python(c"PyInterpreterState_Main")?,
                set: real::of_python(c"PySet_New")?,
                release: real::of_python(c"Py_DecRef")?,
                switch: Switch::look_up(),
                waits: minor >= 12,
            })
        }
    };
    API.get_or_init(look_up).as_ref()
}

impl Api {
    /// Whether the collector begins on its own, as far as this Python says.
    fn is_enabled(&self) -> bool {
        self.switch.as_ref().is_none_or(|s| (s.is_enabled)() != 0)
    }

    /// Whether a few sets that are made now could begin a collection: not while one is at work, nor where none begins on its own.
    fn could_begin(&self, collector: Collector) -> bool {
        self.switch.is_none() && !collector.is_at_work() && collector.counts()[0].left() <= SETS as i32
    }

    /// The same as [`Api::proves`], while no collection begins on its own, as far as this Python can be told so.
    fn proves_undisturbed(&self, collector: Collector) -> bool {
        let was_enabled = self.switch.as_ref().filter(|s| (s.disable)() != 0);
        let holds = self.proves(collector);
        if let Some(switch) = was_enabled {
            (switch.enable)();
        }
        holds
    }

    /// Whether the collector's counts are where they are looked for. With the GIL held; makes nothing that a collection could come from.
    fn proves(&self, collector: Collector) -> bool {
        let counts = || collector.counts().map(|c| [c.threshold.load(Relaxed), c.count.load(Relaxed)]);
        let before = counts();
        let mut made = [core::ptr::null_mut(); SETS];
        let mut holds = true;
        let as_expected = |more: i32| {
            let [[threshold, count], older @ ..] = before;
            counts()[0] == [threshold, count + more] && counts()[1..] == older
        };
        for (i, set) in made.iter_mut().enumerate() {
            *set = (self.set)(core::ptr::null_mut());
            holds &= !set.is_null() && as_expected(i as i32 + 1);
        }
        for (i, set) in made.into_iter().enumerate() {
            if !set.is_null() {
                (self.release)(set);
            }
            holds &= as_expected((SETS - 1 - i) as i32);
        }
        holds
    }
}

/// The young objects of the main interpreter, once their place is proved.
struct Place {
    interpreter: u64,
    young: &'static Counted,
}

/// With the GIL held. `None`: it is not known here, or cannot be proved now.
fn place() -> Option<&'static Place> {
    static PLACE: OnceCell<Option<Place>> = OnceCell::new();
    static TRIES: AtomicU32 = AtomicU32::new(0);
    let a = api()?;
    let interpreter = (a.current)();
    let known = match PLACE.get() {
        Some(known) => known,
        None if interpreter != (a.main)() || TRIES.fetch_add(1, Relaxed) >= MOST => return None,
        None => {
            let found = Collector::find(interpreter);
            if found.is_some_and(|c| a.could_begin(c)) {
                return None;
            }
            let young = found.filter(|c| a.proves_undisturbed(*c)).map(|c| c.counts()[0]);
            PLACE.get_or_init(|| young.map(|young| Place { interpreter, young }))
        }
    };
    known.as_ref().filter(|p| p.interpreter == interpreter)
}

/// Whether the job has switched the collector off, as far as this Python says. With the GIL held.
pub(crate) fn is_collector_off() -> bool {
    api().is_some_and(|a| !a.is_enabled())
}

/// Whether the collector waits to begin, and Python of ours would run it. With the GIL held.
pub(crate) fn is_collection_due() -> bool {
    let Some(a) = api().filter(|a| a.waits) else { return false };
    a.is_enabled() && place().is_some_and(|p| p.young.left() < 0)
}

/// Whether there is one of these. Only with the GIL, but another thread may have it between two instructions of ours.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// While this lives nothing counts for the collector, and it does not begin. Made and dropped with the GIL.
pub(crate) struct Uncounted(Option<Open>);

struct Open {
    young: &'static Counted,
    before: i32,
    free_lists: Option<FreeLists>,
}

impl Uncounted {
    /// For an object or two of ours.
    pub(crate) fn begin() -> Uncounted {
        // Within another one, of this thread's or of one that let the GIL go, nothing counts already.
        let place = place().filter(|_| !IS_OPEN.swap(true, Relaxed));
        Uncounted(place.map(|p| Open {
            young: p.young,
            before: p.young.count.swap(LOW, Relaxed),
            free_lists: None,
        }))
    }

    /// For Python of ours, which leaves objects in free lists.
    #[cold]
    pub(crate) fn begin_python() -> Uncounted {
        let mut begun = Uncounted::begin();
        if let Some(open) = begun.0.as_mut() {
            open.free_lists = FreeLists::take(open.young);
        }
        begun
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        let Some(Open { young, before, free_lists }) = self.0.take() else { return };
        // Not negative: another thread has collected meanwhile, or allocated more than any threshold would let it.
        if young.count.load(Relaxed) < 0 {
            if let Some(lists) = free_lists {
                lists.put_back(young);
            }
            young.count.store(before, Relaxed);
        } else if let Some(lists) = free_lists {
            lists.release();
        }
        IS_OPEN.store(false, Relaxed);
    }
}
