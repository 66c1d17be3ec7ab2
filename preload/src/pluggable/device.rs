//! One device's side of the door: its pool, its numbers, the lock that orders both.

use super::count::{Counts, Reset, rounded};
use super::driver::{Driver, Entered, OUT_OF_MEMORY, Status, capture_begins, capture_ends, driver};
use super::graphs::{Freed, Graphs};
use super::record::{self, Block, Origin, Totals};
use super::types::{Failure, Handle, Mode};
use crate::platform::tid;
use crate::recorder::{devices, guard};
use cudarc::driver::sys::{CUcontext, CUmemPool_attribute, CUmemoryPool, CUstream};
use once_cell::sync::OnceCell;
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use strandline_core::event::HookId;

/// Devices that the door serves.
const DEVICES: usize = 32;
/// The pool is asked for its size at least every so many allocations.
const ASK_EVERY: u32 = 64;

const HELD: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
const HELD_AT_MOST: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;

/// A device that has been used.
pub(super) struct Device {
    driver: &'static Driver,
    index: u8,
    context: CUcontext,
    pool: CUmemoryPool,
    total: u64,
    state: Mutex<State>,
}

// SAFETY: the handles are the driver's, which may be used from any thread.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Device {}

#[derive(Default)]
struct State {
    counts: Counts,
    since_asked: u32,
    /// Share of the device's memory that may be handed out.
    fraction: Option<f64>,
    /// Streams that use a block besides its own.
    users: HashMap<u64, Vec<Handle>>,
    graphs: Graphs,
    /// A stream of ours: what waits for several streams before it is freed, and what is allocated during a capture.
    own: Option<Handle>,
}

/// Devices on which a capture may be under way. A capture may spread to other devices: what can wait, waits on all of them.
static CAPTURING: AtomicU32 = AtomicU32::new(0);

static TABLE: [OnceCell<Device>; DEVICES] = [const { OnceCell::new() }; DEVICES];

/// A device that has been used already.
pub(super) fn known(index: i32) -> Option<&'static Device> {
    usize::try_from(index).ok().and_then(|i| TABLE.get(i))?.get()
}

/// All devices that have been used.
pub(super) fn all() -> impl Iterator<Item = &'static Device> {
    TABLE.iter().filter_map(OnceCell::get)
}

/// Whether a capture may be under way, on whatever device.
fn is_capturing() -> bool {
    CAPTURING.load(Relaxed) > 0
}

/// The device that this address is on, as the driver knows.
pub(super) fn device_of(addr: u64) -> Option<&'static Device> {
    known(driver().ok()?.device_of(addr)?)
}

/// A device, made ready on first use.
pub(super) fn get(index: i32) -> Result<&'static Device, Failure> {
    let at = usize::try_from(index).map_err(|_| Failure::Device)?;
    let cell = TABLE.get(at).ok_or(Failure::Device)?;
    cell.get_or_try_init(|| Device::open(at as u8))
}

impl Device {
    #[cold]
    fn open(index: u8) -> Result<Device, Failure> {
        let driver = driver().map_err(|name| {
            Failure::Absent(format!("the CUDA driver is not loaded, or has no {}", name.to_string_lossy()))
        })?;
        let context = driver.context(index).map_err(Failure::Driver)?;
        let pool = {
            let _entered = driver.enter(context);
            driver.pool(index).map_err(Failure::Driver)?
        };
        let total = driver.total(index).map_err(Failure::Driver)?;
        devices::note_total(index, total);
        Ok(Device { driver, index, context, pool, total, state: Mutex::default() })
    }

    /// CUDA ordinal.
    pub(super) fn index(&self) -> u8 {
        self.index
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Entered<'static> {
        self.driver.enter(self.context)
    }

    /// What captures there are changes. Nothing is freed here: that one looks plain may be a mistake, its end is none.
    fn change(&self, act: impl FnOnce(&mut Graphs)) {
        let mut state = self.lock();
        let before = state.graphs.capturing();
        act(&mut state.graphs);
        match (before, state.graphs.capturing()) {
            (false, true) => _ = CAPTURING.fetch_add(1, Relaxed),
            (true, false) => _ = CAPTURING.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Frees what waited for the end of captures, but for what a captured stream uses (a capture may have spread here from another
    /// device, or be none of PyTorch's), and what cannot be waited for. Whether such a stream was seen.
    fn give_deferred(&self) -> bool {
        let deferred = self.lock().graphs.take_deferred();
        if deferred.is_empty() {
            return false;
        }
        let _context = self.enter();
        let (mut kept, mut free): (Vec<_>, Vec<_>) = deferred.into_iter().partition(|f| self.is_captured(f));
        let spread = !kept.is_empty();
        // A device with a captured stream cannot be waited for, and trying spoils the capture.
        let waits = free.iter().any(|f| f.replayed);
        if waits && (spread || self.driver.synchronize().is_err()) {
            kept.extend(free.extract_if(.., |f| f.replayed));
        }
        for f in free {
            if self.free_behind(f.addr, f.stream.0, &f.users).is_err() && is_capturing() {
                kept.push(f);
            }
        }
        if !kept.is_empty() {
            let mut state = self.lock();
            kept.into_iter().for_each(|f| state.graphs.defer(f));
        }
        spread
    }

    /// Whether a stream that uses this block is being captured.
    fn is_captured(&self, block: &Freed) -> bool {
        block.users.iter().chain([&block.stream]).any(|s| self.driver.is_capturing(s.0))
    }

    fn block(&self, addr: u64, size: u64, stream: CUstream, graph: Option<[u64; 2]>) -> Block {
        Block { device: self.index, addr, size, stream: stream as u64, pool: graph.unwrap_or_default() }
    }

    /// Hands out a block, and writes it down as the mode has it.
    pub(super) fn allocate(&self, size: u64, stream: CUstream, mode: Mode) -> Result<u64, Failure> {
        let _context = self.enter();
        let active = { self.lock().graphs.active(tid::tid()) };
        let graph = active.filter(|_| self.driver.is_capturing(stream));
        match (active, graph) {
            (None, _) => {}
            (_, Some(pool)) => self.change(|graphs| graphs.is_captured(pool, Handle(stream))),
            (_, None) => {
                self.change(|graphs| graphs.is_plain(tid::tid(), |s| self.driver.is_capturing(s.0)));
            }
        }
        let got = match graph {
            Some(pool) => self.captured(pool, size, stream),
            None => self.ordinary(size, stream),
        };
        let mut block = self.block(0, size, stream, graph);
        let mut token = guard::enter(HookId::NONE);
        let origin = token.as_mut().map(Origin::here).unwrap_or_default();
        let mut state = self.lock();
        let failure = match got {
            Ok(addr) => {
                block.addr = addr;
                state.counts.block(size, true);
                self.look(&mut state, token.as_mut().filter(|_| mode == Mode::Whole), false);
                if let Some(t) = &mut token {
                    record_as(mode, t, &block, true, origin, state.totals());
                }
                return Ok(addr);
            }
            Err(failure) => failure,
        };
        if let Failure::Full { free, .. } = &failure {
            state.counts.ooms += 1;
            if let Some(t) = token.as_mut().filter(|_| mode == Mode::Whole) {
                record::out_of_memory(t, &block, *free, origin);
            }
        }
        Err(failure)
    }

    /// Takes a block back.
    pub(super) fn free(&self, addr: u64, size: u64, stream: CUstream, mode: Mode) {
        let _context = self.enter();
        let (freed, waits) = {
            let mut token = guard::enter(HookId::NONE);
            let phase = token.as_ref().map(|t| t.phase(false)).unwrap_or_default();
            let mut state = self.lock();
            let users = if state.users.is_empty() { None } else { state.users.remove(&addr) };
            let users = users.unwrap_or_default();
            let graph = state.graphs.pool_of(addr);
            state.counts.block(size, false);
            if let Some(t) = &mut token {
                let block = self.block(addr, size, stream, graph);
                record_as(mode, t, &block, false, Origin { stack: 0, phase }, state.totals());
            }
            // A graph keeps its memory: its replays use it again, whoever holds it in between.
            if graph.is_some() && !state.graphs.give_back(addr, !users.is_empty()) {
                return;
            }
            let freed = Freed { addr, stream: Handle(stream), users, replayed: graph.is_some() };
            let waits = is_capturing() || (state.graphs.is_active() && self.is_captured(&freed));
            if waits || freed.replayed {
                // Freed while a capture is under way, but not of it. On a captured stream the graph would free it at every
                // replay; on any other the call may spoil the capture: one in which this happened was invalidated on a card.
                // A graph's that is gone: its last replay may still run.
                state.graphs.defer(freed);
                (None, waits)
            } else {
                (Some(freed), false)
            }
        };
        match freed {
            // A failure is the end of the process, or of its device.
            Some(f) => _ = self.free_behind(addr, stream, &f.users),
            None if !waits => _ = self.give_deferred(),
            None => {}
        }
    }

    /// Gives a block back to the driver, in the device's context, once its own stream and all that used it are done with it.
    fn free_behind(&self, addr: u64, stream: CUstream, users: &[Handle]) -> Result<(), Status> {
        if users.is_empty() {
            return self.driver.free(addr, stream);
        }
        // Freed behind all who used it, on a stream that nobody's work waits for.
        let Some(own) = self.own() else { return self.driver.free(addr, stream) };
        for user in users.iter().map(|u| u.0).chain([stream]) {
            // Where they cannot be put in order, it is freed behind its own stream, as if the use had not been told.
            if self.driver.order(user, own).is_err() {
                return self.driver.free(addr, stream);
            }
        }
        self.driver.free(addr, own)
    }

    /// Memory that is used on a stream besides its own is not used again before that stream is done with it.
    pub(super) fn used_on(&self, addr: u64, stream: CUstream) {
        let mut state = self.lock();
        let users = state.users.entry(addr).or_default();
        if !users.contains(&Handle(stream)) {
            users.push(Handle(stream));
        }
    }

    /// Gives back what nobody uses.
    pub(super) fn trim(&self, mode: Mode) {
        if is_capturing() {
            return; // no call of ours may spoil a capture, and PyTorch's own allocator gives nothing back then either
        }
        let _context = self.enter();
        if !self.give_deferred() && self.driver.synchronize().is_ok() {
            self.driver.trim(self.pool);
        }
        let mut token = guard::enter(HookId::NONE).filter(|_| mode == Mode::Whole);
        self.look(&mut self.lock(), token.as_mut(), true);
    }

    /// At most this share of the device's memory is handed out.
    pub(super) fn limit(&self, fraction: f64) {
        self.lock().fraction = (0.0..=1.0).contains(&fraction).then_some(fraction);
    }

    /// That share; 1 where none was set.
    pub(super) fn fraction(&self) -> f64 {
        self.lock().fraction.unwrap_or(1.0)
    }

    /// A graph's pool is allocated to from now on, by streams that are being captured.
    pub(super) fn begin(&self, pool: [u64; 2]) {
        self.change(|graphs| graphs.begin(pool, tid::tid()));
        capture_begins();
    }

    /// It no longer is. What was freed meanwhile, and is not of it, is free now.
    pub(super) fn end(&self, pool: [u64; 2]) {
        capture_ends();
        self.change(|graphs| graphs.end(pool));
        if !is_capturing() {
            all().for_each(|d| _ = d.give_deferred());
        }
    }

    /// A graph that used this pool is gone.
    pub(super) fn release(&self, pool: [u64; 2]) {
        let is_none = {
            let mut state = self.lock();
            let free = state.graphs.release(pool);
            // Its replays may still run, on whatever stream.
            let (stream, replayed) = (Handle(null_mut()), true);
            let freed = |addr: &u64| Freed { addr: *addr, stream, users: Vec::new(), replayed };
            free.iter().for_each(|addr| state.graphs.defer(freed(addr)));
            free.is_empty()
        };
        // Nothing is waited for while another graph is captured.
        if !is_none && !is_capturing() {
            self.give_deferred();
        }
    }

    /// The numbers, with what the pool holds now.
    pub(super) fn words(&self, mode: Mode) -> [u64; super::count::WORDS] {
        let mut token = guard::enter(HookId::NONE).filter(|_| mode == Mode::Whole);
        let mut state = self.lock();
        self.look(&mut state, token.as_mut(), true);
        if !is_capturing() {
            let at_most = self.driver.get(self.pool, HELD_AT_MOST);
            state.counts.reserved.peak = state.counts.reserved.peak.max(at_most);
        }
        state.counts.words()
    }

    /// Begins some of the numbers anew.
    pub(super) fn reset(&self, what: Reset) {
        let mut state = self.lock();
        if what == Reset::Peaks && !is_capturing() {
            let _ = self.driver.set(self.pool, HELD_AT_MOST, 0);
        }
        state.counts.reset(what);
    }

    /// What an error says, and how full the device is.
    pub(super) fn explain(&self, size: u64, status: Status) -> String {
        format!(
            "CUDA error: {}, while allocating {size} bytes on GPU {}",
            self.driver.explain(status),
            self.index
        )
    }

    /// Asks the pool for its size, where it must have grown, or now and then, or `now`.
    fn look(&self, state: &mut State, token: Option<&mut guard::HookGuard>, now: bool) {
        state.since_asked += 1;
        let must = state.counts.allocated() > state.counts.reserved.current;
        // Not during a capture, which no call of ours may spoil.
        if !(now || must || state.since_asked >= ASK_EVERY) || is_capturing() {
            return;
        }
        state.since_asked = 0;
        let before = state.counts.reserved.current;
        let held = self.driver.get(self.pool, HELD);
        if state.counts.holds(held) != 0
            && let Some(t) = token
        {
            record::pool(t, self.index, before, held);
        }
    }

    fn ordinary(&self, size: u64, stream: CUstream) -> Result<u64, Failure> {
        let limit = {
            let state = self.lock();
            let limit = state.fraction.map(|f| (f * self.total as f64) as u64);
            if limit.is_some_and(|l| state.counts.allocated().saturating_add(rounded(size)) > l) {
                drop(state);
                return Err(self.full(limit));
            }
            limit
        };
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        match self.driver.allocate(self.pool, bytes, stream) {
            Err(OUT_OF_MEMORY) if !self.is_captured_here(stream) => {
                // What is freed but waits for work, or for a capture on another device, and what lies about in pieces, is
                // there after all; of a device that a capture has spread to, no more than is free without a wait.
                if !self.give_deferred() {
                    match self.driver.synchronize() {
                        Err(_) if is_capturing() => return Err(self.full(limit)),
                        done => done.map_err(Failure::Driver)?,
                    }
                    self.driver.trim(self.pool);
                }
                match self.driver.allocate(self.pool, bytes, stream) {
                    Ok(addr) => {
                        self.lock().counts.retries += 1;
                        Ok(addr)
                    }
                    Err(OUT_OF_MEMORY) => Err(self.full(limit)),
                    Err(status) => Err(Failure::Driver(status)),
                }
            }
            Err(OUT_OF_MEMORY) => Err(self.full(limit)),
            Err(status) => Err(Failure::Driver(status)),
            Ok(addr) => Ok(addr),
        }
    }

    /// Whether a capture may be under way on this device, or this stream is of one on another.
    fn is_captured_here(&self, stream: CUstream) -> bool {
        self.lock().graphs.capturing() || (is_capturing() && self.driver.is_capturing(stream))
    }

    /// Memory for a captured stream: what the same graph has freed on the same stream, else new memory, which is there
    /// before the graph runs for the first time.
    fn captured(&self, pool: [u64; 2], size: u64, stream: CUstream) -> Result<u64, Failure> {
        if let Some(addr) = self.lock().graphs.take(pool, rounded(size), Handle(stream)) {
            return Ok(addr);
        }
        let own = self.own().ok_or(Failure::Driver(OUT_OF_MEMORY))?;
        let addr = self.driver.relaxed(|| {
            let addr = self.ordinary(size, own)?;
            self.driver.finish(own).map_err(Failure::Driver).map(|()| addr)
        })?;
        self.lock().graphs.put(pool, addr, rounded(size), Handle(stream));
        Ok(addr)
    }

    fn own(&self) -> Option<CUstream> {
        if let Some(own) = self.lock().own {
            return Some(own.0);
        }
        let made = self.driver.relaxed(|| self.driver.stream()).ok()?;
        Some(self.lock().own.get_or_insert(Handle(made)).0)
    }

    #[cold]
    fn full(&self, limit: Option<u64>) -> Failure {
        let allocated = self.lock().counts.allocated();
        Failure::Full { free: self.driver.free_bytes(), total: self.total, allocated, limit }
    }
}

fn record_as(mode: Mode, t: &mut guard::HookGuard, b: &Block, comes: bool, origin: Origin, totals: Totals) {
    match mode {
        Mode::Whole => record::block(t, b, comes, origin, totals),
        Mode::Region => record::segment(t, b, comes),
        Mode::Silent => {}
    }
}

impl State {
    fn totals(&self) -> Totals {
        Totals { allocated: self.counts.allocated(), reserved: self.counts.reserved.current }
    }
}
