//! The region: made once, shared by everybody in the process by copy.

use super::layout::{Head, Ring};
use crate::event::Room;
use crate::format::raw::Record;
use crate::format::region::{Clock, Geometry, Identity, MAGIC, Moment, PART, VERSION, owner};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// Why a region could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The base is not a multiple of 4096.
    Misaligned,
    /// The geometry is out of bounds.
    Geometry,
    /// The memory is shorter than the geometry's `bytes()`.
    TooShort,
    /// There is a region here already, or the memory is not zeroed.
    NotZeroed,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegionError::Misaligned => "the region's memory does not begin at a page",
            RegionError::Geometry => "the region's geometry is out of bounds",
            RegionError::TooShort => "the region's memory is too short for its geometry",
            RegionError::NotZeroed => "the region's memory is in use or not zeroed",
        })
    }
}

impl std::error::Error for RegionError {}

/// All rings and the definitions of one process. Copies are handles of the same region.
#[derive(Clone, Copy)]
pub struct Region {
    base: NonNull<u8>,
    geometry: Geometry,
}

// SAFETY: a Region is a pointer to memory that outlives the process (fact 1 of the module) and whose words are only
// accessed as atomics or under the ownership rules (facts 2 to 4); neither depends on the thread that holds the copy.
unsafe impl Send for Region {}
// SAFETY: as above; every method takes `&self` and touches shared words only as atomics.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a region in the memory `base..base+len`.
    ///
    /// # Errors
    /// [`RegionError`] where the memory or the geometry does not do. The memory is then unchanged.
    ///
    /// # Safety
    /// The memory must be readable and writable for the rest of the process's life (never unmapped), zeroed, and used by
    /// nothing else in this process. Another process may read it, but not write.
    pub unsafe fn init(
        base: NonNull<u8>,
        len: usize,
        geometry: Geometry,
        who: Identity,
        clock: Clock,
        now: Moment,
    ) -> Result<Region, RegionError> {
        if !base.as_ptr().addr().is_multiple_of(PART) {
            return Err(RegionError::Misaligned);
        }
        if !geometry.is_valid() {
            return Err(RegionError::Geometry);
        }
        if len < geometry.bytes() {
            return Err(RegionError::TooShort);
        }
        let region = Region { base, geometry };
        let head = region.head();
        if head.magic.load(Relaxed) != 0 || head.version.load(Relaxed) != 0 {
            return Err(RegionError::NotZeroed);
        }
        head.version.store(u64::from(VERSION), Relaxed);
        head.pid.store(u64::from(who.pid), Relaxed);
        head.start.store(who.start, Relaxed);
        head.id_low.store(who.id[0], Relaxed);
        head.id_high.store(who.id[1], Relaxed);
        head.lanes.store(u64::from(geometry.lanes), Relaxed);
        head.records.store(u64::from(geometry.records), Relaxed);
        head.overflow.store(u64::from(geometry.overflow), Relaxed);
        head.definitions.store(u64::from(geometry.definitions), Relaxed);
        head.clock.store(u64::from(clock == Clock::Tsc), Relaxed);
        head.ticks0.store(now.ticks, Relaxed);
        head.mono0.store(now.mono_ns, Relaxed);
        head.unix0.store(now.unix_ns, Relaxed);
        head.magic.store(MAGIC, Release);
        Ok(region)
    }

    /// How many of the first `n` lanes nobody has claimed yet.
    pub fn unclaimed_below(&self, n: u32) -> u32 {
        let free = |i: &u32| self.ring(*i).state.load(Relaxed) == owner::FREE;
        (0..self.geometry.lanes.min(n)).filter(free).count() as u32
    }

    /// The memory of a lane's records: where it begins, and its bytes. `None`: there is no such lane.
    pub fn lane_memory(&self, i: u32) -> Option<(NonNull<u8>, usize)> {
        let bytes = self.geometry.ring_records(i) as usize * size_of::<Record>();
        (i < self.geometry.lanes).then(|| (self.slots(i).cast(), bytes))
    }

    /// Counts a record that found neither a lane nor the overflow ring (a hook that could not even get here).
    pub fn lose(&self) {
        self.head().lost_unowned.fetch_add(1, Relaxed);
    }

    /// Records counted by [`Region::lose`] and by a busy overflow ring.
    pub fn lost_unowned(&self) -> u64 {
        self.head().lost_unowned.load(Relaxed)
    }

    /// Definitions that found no room.
    pub fn lost_definitions(&self) -> u64 {
        self.head().lost_definitions.load(Relaxed)
    }

    /// Records lost so far, all rings and [`Region::lost_unowned`] together.
    pub fn lost(&self) -> u64 {
        let rings: u64 = (0..=self.geometry.lanes).map(|i| self.ring(i).lost.load(Relaxed)).sum();
        rings.saturating_add(self.lost_unowned())
    }

    /// Notes the clocks as they stand together now, for whoever reads the region without the recording. One caller at a
    /// time: the drain.
    pub fn calibrate(&self, now: Moment) {
        let head = self.head();
        head.calibration.fetch_add(1, AcqRel);
        head.ticks1.store(now.ticks, Relaxed);
        head.mono1.store(now.mono_ns, Relaxed);
        head.calibration.fetch_add(1, Release);
    }

    /// When the recording began.
    pub fn began(&self) -> Moment {
        let head = self.head();
        Moment {
            ticks: head.ticks0.load(Relaxed),
            mono_ns: head.mono0.load(Relaxed),
            unix_ns: head.unix0.load(Relaxed),
        }
    }

    /// What its ticks are.
    pub fn clock(&self) -> Clock {
        if self.head().clock.load(Relaxed) == 1 { Clock::Tsc } else { Clock::Nanoseconds }
    }

    /// Its geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Sets bits of [`flag`] for whoever reads the region later.
    pub fn set_flags(&self, bits: u64) {
        self.head().flags.fetch_or(bits, Release);
    }

    /// A thread is in this room now; `false`: it has left it.
    pub fn note_room(&self, room: Room, is_in: bool) {
        let rooms = &self.head().rooms;
        match is_in {
            true => rooms.fetch_or(room.bit(), Relaxed),
            false => rooms.fetch_and(!room.bit(), Relaxed),
        };
    }

    /// Notes the kernel's number of the thread that drains the region.
    pub fn note_writer(&self, tid: u32) {
        self.head().writer.store(tid.into(), Relaxed);
    }

    pub(super) fn head(&self) -> &'static Head {
        // SAFETY: fact 1: `base` is aligned to 4096, the memory is at least one page long and lives for ever; fact 2: a
        // Head is nothing but atomics (and padding nobody touches), for which zeroed memory is valid.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    pub(super) fn ring(&self, i: u32) -> &'static Ring {
        debug_assert!(i <= self.geometry.lanes);
        let i = i.min(self.geometry.lanes);
        // SAFETY: as in `head`; `i` <= lanes, so the offset lies before the definitions, hence below `bytes()`; it is a
        // multiple of 256.
        unsafe { self.base.add(self.geometry.ring_head(i)).cast::<Ring>().as_ref() }
    }

    /// First slot of ring `i`, which has `geometry.ring_records(i)` of them.
    pub(super) fn slots(&self, i: u32) -> NonNull<Record> {
        let i = i.min(self.geometry.lanes);
        // SAFETY: `ring_slots(i)` + that ring's records x 64 <= `bytes()` <= the memory's length (fact 1); parts before
        // it are multiples of 64 long, so it is aligned for a Record.
        unsafe { self.base.add(self.geometry.ring_slots(i)).cast::<Record>() }
    }

    /// First byte of the definitions ring, which has `geometry.definitions` of them.
    pub(super) fn definition_bytes(&self) -> NonNull<u8> {
        // SAFETY: `definitions_start()` + `definitions` <= `bytes()` <= the memory's length (fact 1).
        unsafe { self.base.add(self.geometry.definitions_start()) }
    }
}
