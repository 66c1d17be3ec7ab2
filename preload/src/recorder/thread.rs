//! What we keep per thread: its ring, its stack cache, and what it is doing.
//!
//! All of it lies in a pool that is reserved when the process is armed, so a thread's first event costs a compare-and-swap
//! and not an allocation. A thread's end gives its place back, through the destructor of a `pthread` key: the key is
//! made at arming, early enough to be one of the first 32, whose values the C library keeps in the thread itself
//! (`pthread_setspecific` allocates only for later ones).

use super::stack_memory::{Cache, Rules};
use crate::platform::{clock, tls};
use crate::platform::{mapping, tid};
use crate::recorder::overhead::OverheadSampler;
use crate::recorder::{self, before};
use core::cell::UnsafeCell;
use core::num::NonZeroU64;
use core::ptr::NonNull;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*, compiler_fence};
use strandline_core::buffer::{Lane, Region, Shared};
use strandline_core::event::{HookId, Phase};
use strandline_core::format::raw::{Kind, Record, flag};

/// Threads that can have a place at the same time. Those beyond are counted as lost.
pub(crate) const PLACES: usize = 256;
/// Devices that are told apart in per-thread state.
pub(crate) const DEVICES: usize = 16;
/// Without a ring of its own, a thread looks for one again after so many records.
const CLAIM_AGAIN: u32 = 256;

/// A thread's state. Only its own thread touches it, through an [`crate::recorder::guard::HookGuard`].
///
/// In this order, so that what every event needs lies on the first two cache lines, and a stack that is known on one more.
#[repr(C, align(128))]
pub(crate) struct Thread {
    lane: Option<Lane>,
    /// Where it is left which hook this thread is in, for whoever reads the rings after the process's death.
    pub(crate) hook: &'static AtomicU64,
    /// A hook of ours is at work on this thread.
    pub(crate) inside: bool,
    /// An autograd worker.
    pub(crate) autograd: bool,
    /// Between an optimizer's hooks.
    pub(crate) optimizer: bool,
    /// Depth of `Engine::execute` on this thread.
    pub(crate) backward: u32,
    /// Graph captures begun by this thread and not ended.
    pub(crate) captures: u32,
    /// NVTX ranges that are open on this thread.
    pub(crate) ranges: u32,
    /// When hooks are timed.
    pub(crate) pulse: OverheadSampler,
    /// A request to free has been recorded and its report has not come: the device and the block.
    pub(crate) freeing: Option<(u8, NonZeroU64)>,
    /// Vtable of the autograd node that runs on this thread; 0: none does.
    pub(crate) node: u64,
    /// The byte in which c10 says whether this thread records gradients; null: not looked for yet.
    pub(crate) grad: *const u8,
    /// Current stream per device, as c10 numbers streams; 0 is the default stream.
    pub(crate) current: [u64; DEVICES],
    /// At which level of the NVTX ranges a step is open.
    pub(crate) step_range: Option<u32>,
    /// A block that CUDA itself refused: its size and stream.
    pub(crate) refused: Option<(u64, u64)>,
    without_lane: u32,
    overflow: Shared,
    /// Stacks seen by this thread.
    pub(crate) cache: Cache,
    /// How native frames are found.
    pub(crate) rules: Rules,
}

const _: () = assert!(core::mem::offset_of!(Thread, pulse) == 64);
const _: () = assert!(core::mem::offset_of!(Thread, current) + 8 <= 128);

/// The pool: places, and who has them.
pub(crate) struct Pool {
    places: NonNull<Place>,
    taken: [AtomicBool; PLACES],
    region: Region,
}

struct Place(UnsafeCell<core::mem::MaybeUninit<Thread>>);

// SAFETY: a place is reached only by the thread whose compare-and-swap took it, until that thread gives it back.
unsafe impl Sync for Pool {}
// SAFETY: as above; nothing in it depends on the thread that made it.
unsafe impl Send for Pool {}

static POOL: AtomicPtr<Pool> = AtomicPtr::new(core::ptr::null_mut());
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Reserves the pool. Called once, when the process is armed; what it reserves is never given back.
///
/// # Errors
/// What the kernel said when it refused memory.
#[cold]
pub(crate) fn reserve(region: Region) -> std::io::Result<()> {
    let bytes = PLACES * size_of::<Place>();
    // SAFETY: a fresh private mapping, touched only as threads come.
    let places = unsafe { mapping::reserved(bytes) }?.cast::<Place>();
    let pool = Box::new(Pool { places, taken: [const { AtomicBool::new(false) }; PLACES], region });
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: the destructor has the required signature and this library is never unloaded (`-z nodelete`).
    if unsafe { libc::pthread_key_create(&mut key, Some(on_thread_exit)) } == 0 {
        KEY.store(key, Relaxed);
    }
    tid::check();
    POOL.store(Box::into_raw(pool), Release);
    Ok(())
}

/// Bytes of the pool that have memory behind them.
#[cold]
pub(crate) fn resident() -> u64 {
    // SAFETY: the pool is made once and never freed.
    let Some(pool) = (unsafe { POOL.load(Acquire).as_ref() }) else { return 0 };
    // SAFETY: the mapping that `reserve` made, as large as it made it; it is never unmapped.
    unsafe { mapping::resident(pool.places.as_ptr().cast(), PLACES * size_of::<Place>()) }
}

/// The calling thread's place; `None` before its first event.
#[inline(always)]
pub(crate) fn current() -> Option<NonNull<Thread>> {
    NonNull::new(tls::thread().cast())
}

/// The calling thread has no place any more: it is a forked child's, and the place its parent's.
#[cold]
pub(crate) fn forget() {
    tls::set_thread(core::ptr::null_mut());
}

/// A place for the calling thread, which has none yet. `None`: no pool, or no place left (a counted loss).
#[cold]
#[inline(never)]
pub(crate) fn claim() -> Option<NonNull<Thread>> {
    let pool = POOL.load(Acquire);
    // SAFETY: the pool is made once and never freed.
    let pool = unsafe { pool.as_ref() }?;
    let free = pool.taken.iter().position(|t| !t.load(Relaxed) && !t.swap(true, Acquire));
    let Some(i) = free else {
        pool.region.lose();
        return None;
    };
    let autograd = tls::is_autograd() || before::is_autograd();
    // SAFETY: `i` < PLACES, and the swap made this thread the only one to touch the place until `left` gives it back.
    let thread = unsafe {
        let place = pool.places.add(i);
        let thread: *mut Thread = (*place.as_ptr()).0.get().cast();
        (&raw mut (*thread).inside).write(false);
        (&raw mut (*thread).pulse).write(OverheadSampler::new());
        (&raw mut (*thread).autograd).write(autograd);
        (&raw mut (*thread).backward).write(0);
        (&raw mut (*thread).node).write(0);
        (&raw mut (*thread).grad).write(core::ptr::null());
        (&raw mut (*thread).optimizer).write(false);
        (&raw mut (*thread).ranges).write(0);
        (&raw mut (*thread).step_range).write(None);
        (&raw mut (*thread).captures).write(0);
        (&raw mut (*thread).freeing).write(None);
        (&raw mut (*thread).refused).write(None);
        (&raw mut (*thread).current).write([0; DEVICES]);
        (*thread).rules.moved();
        // The cache is left as it is: zeroed memory is an empty one, and stacks of the place's last thread are as good.
        let (lane, overflow) = (lane(&pool.region), pool.region.overflow());
        (&raw mut (*thread).hook).write(lane.as_ref().map_or(overflow.hook(), Lane::hook));
        (&raw mut (*thread).lane).write(lane);
        (&raw mut (*thread).overflow).write(overflow);
        (&raw mut (*thread).without_lane).write(0);
        &mut *thread
    };
    thread.announce();
    tls::set_thread((&raw mut *thread).cast());
    let key = KEY.load(Relaxed);
    if key != u32::MAX {
        // SAFETY: the key exists; the value is only handed back to `left`.
        unsafe { libc::pthread_setspecific(key, (&raw mut *thread).cast()) };
    }
    Some(NonNull::from(thread))
}

/// A ring for this thread whose pages exist; `None`: it uses the one that all share.
#[cold]
fn lane(region: &Region) -> Option<Lane> {
    region.claim(recorder::ready_lanes())
}

/// The thread ends: its ring and its place are free again.
unsafe extern "C" fn on_thread_exit(thread: *mut c_void) {
    if !recorder::is_recording() {
        return;
    }
    // SAFETY: called by the C library on the thread that set the value in `claim`, so the place is still its own. Should
    // a later destructor of the thread cause another event, the thread finds no state and takes a place again.
    unsafe {
        let Some(pool) = POOL.load(Acquire).as_ref() else { return };
        let thread = thread.cast::<Thread>();
        tls::set_thread(core::ptr::null_mut());
        if let Some(lane) = (*thread).lane.take() {
            lane.release();
        }
        let i = thread.cast::<Place>().offset_from(pool.places.as_ptr());
        if let Some(taken) = usize::try_from(i).ok().and_then(|i| pool.taken.get(i)) {
            taken.store(false, Release);
        }
    }
}

impl Thread {
    /// Says whose ring it is now. The name is filled in by the drain: asking for it takes a system call.
    fn announce(&mut self) {
        let flags = if self.autograd { flag::AUTOGRAD } else { 0 };
        if let Some(lane) = &mut self.lane {
            lane.announce(clock::ticks(), tid::tid(), [0; 16], flags);
        }
    }

    /// Does something in the name of a hook that took its token without a word of it in the shared memory.
    #[inline(always)]
    pub(crate) fn noted<R>(&mut self, hook: HookId, f: impl FnOnce(&mut Thread) -> R) -> R {
        self.hook.store(hook.word(), Relaxed);
        compiler_fence(SeqCst);
        let result = f(self);
        compiler_fence(SeqCst);
        self.hook.store(0, Relaxed);
        result
    }

    /// Writes a whole record.
    #[inline(always)]
    pub(crate) fn push(&mut self, r: Record) {
        match &mut self.lane {
            Some(lane) => {
                lane.push(r);
            }
            None => self.push_shared(r),
        }
    }

    /// Writes a record that its report will complete. On the shared ring nothing can stay open.
    #[inline(always)]
    pub(crate) fn open(&mut self, r: Record) {
        match &mut self.lane {
            Some(lane) => {
                if let Some(slot) = lane.open() {
                    *slot = r;
                }
            }
            None => self.push_shared(r),
        }
    }

    /// The record that is still open.
    #[inline(always)]
    pub(crate) fn opened(&mut self) -> Option<&mut Record> {
        self.lane.as_mut()?.opened()
    }

    /// As [`Thread::open`], for whoever writes all of the record and calls nothing. `None`: only [`Thread::open`] can tell whether
    /// there is room.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<&mut Record> {
        self.lane.as_mut()?.open_known()
    }

    /// Publishes what is open.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.publish();
        }
    }

    /// Whether records of this thread go through the ring that all share.
    pub(crate) fn is_shared(&self) -> bool {
        self.lane.is_none()
    }

    #[cold]
    #[inline(never)]
    fn push_shared(&mut self, r: Record) {
        self.without_lane = self.without_lane.wrapping_add(1);
        if self.without_lane.is_multiple_of(CLAIM_AGAIN)
            // SAFETY: the pool is made before any thread has a state, and never freed.
            && let Some(lane) = unsafe { POOL.load(Acquire).as_ref() }.and_then(|p| lane(&p.region))
        {
            self.hook.store(0, Relaxed);
            self.hook = lane.hook();
            self.lane = Some(lane);
            self.announce();
            return self.open(r);
        }
        self.overflow.push(r);
    }

    /// What this thread is doing, for a record.
    #[inline(always)]
    pub(crate) fn phase(&self, no_grad: bool) -> u8 {
        Phase {
            backward: self.backward > 0 || self.autograd,
            optimizer: self.optimizer,
            no_grad,
            capture: self.captures > 0,
            collector: false,
        }
        .to_bits()
    }

    /// A record of a kind, of what this thread does now.
    #[inline(always)]
    pub(crate) fn record(&self, kind: Kind, device: u8) -> Record {
        let (ticks, phase) = (clock::ticks(), self.phase(false));
        Record { ticks, kind: kind as u8, device, phase, ..Record::default() }
    }

    /// Writes one with three operands.
    #[inline(always)]
    pub(crate) fn note(&mut self, kind: Kind, device: u8, a: u64, b: u64, c: u64) {
        let record = self.record(kind, device);
        self.push(Record { a, b, c, ..record });
    }
}
