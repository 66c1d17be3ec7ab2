//! Layout of the raw region: where in its bytes the header, the rings and the definitions lie.
//!
//! The region is memory while the job lives and a file on tmpfs that the reader opens with `pread` when the job died
//! or is still running, so its layout is a format like any other:
//!
//! ```text
//! 0       head     4096 bytes: see [`at`]
//! 4096    rings    (lanes + 1) x 256 bytes: see [`ring_at`]; the last one is the shared overflow ring
//! …       definitions  a byte ring (see `format::definition`)
//! …       slots    lanes x records x 64 bytes, then overflow x 64 bytes
//! ```
//!
//! Every part starts at a multiple of 4096. All numbers are little-endian.

use super::raw;

/// First eight bytes of an initialised region.
pub const MAGIC: u64 = u64::from_le_bytes(*b"STRANDRG");
/// Version of this layout.
pub const VERSION: u32 = 1;
/// Bytes of the head, and the alignment of every part.
pub const PART: usize = 4096;
/// Bytes of one ring's header.
pub const RING_BYTES: usize = 256;
/// Most lanes a region may have.
pub const MAX_LANES: u32 = 255;

/// Byte offsets in the head. All fields are 8 bytes and 8-aligned.
pub mod at {
    /// [`super::MAGIC`], stored last when a region is made.
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 8;
    /// Process id.
    pub const PID: usize = 16;
    /// When the process started, in clock ticks since boot (field 22 of `/proc/PID/stat`): tells pids apart that were reused.
    pub const START: usize = 24;
    /// Random id, low half.
    pub const ID_LOW: usize = 32;
    /// Random id, high half.
    pub const ID_HIGH: usize = 40;
    /// Lanes, without the overflow ring.
    pub const LANES: usize = 48;
    /// Records in a lane's ring (a power of two).
    pub const RECORDS: usize = 56;
    /// Records in the overflow ring (a power of two).
    pub const OVERFLOW: usize = 64;
    /// Bytes in the definitions ring (a power of two).
    pub const DEFINITIONS: usize = 72;
    /// What [`super::raw::Record::ticks`] counts: 0 = nanoseconds of the monotonic clock, 1 = TSC.
    pub const CLOCK: usize = 80;
    /// Ticks when the recording began.
    pub const TICKS0: usize = 88;
    /// Monotonic nanoseconds then.
    pub const MONO0: usize = 96;
    /// Nanoseconds since 1970 then.
    pub const UNIX0: usize = 104;
    /// Ticks of the latest calibration (0 = none yet). Even-odd: valid where `CALIBRATION` is even and unchanged.
    pub const TICKS1: usize = 112;
    /// Monotonic nanoseconds of the latest calibration.
    pub const MONO1: usize = 120;
    /// Counts up before and after the calibration is changed.
    pub const CALIBRATION: usize = 128;
    /// [`super::flag`] bits.
    pub const FLAGS: usize = 136;
    /// Records lost by threads that found neither a lane nor the overflow ring free.
    pub const LOST_UNOWNED: usize = 192;
    /// Definitions that found the definitions ring full or busy.
    pub const LOST_DEFINITIONS: usize = 200;
    /// Threads that have claimed a lane so far.
    pub const THREADS: usize = 208;
    /// In which rooms of strandline's, outside of hooks, threads are now: bits of [`crate::event::Room`]. After the process's death whoever
    /// kept the region may add what the kernel's log told.
    pub const ROOMS: usize = 216;
    /// How the process ended, where whoever kept the region saw it: see [`super::died`]. Written after the process's death.
    pub const DIED: usize = 224;
    /// The kernel's number of the thread that drains the region, 0 before it runs.
    pub const WRITER: usize = 232;
    /// Definitions ring: bytes committed so far.
    pub const DEF_HEAD: usize = 256;
    /// Definitions ring: taken by a producer (0 or 1).
    pub const DEF_BUSY: usize = 264;
    /// Definitions ring: bytes consumed so far.
    pub const DEF_TAIL: usize = 320;
    /// A drain exists (0 or 1).
    pub const DRAIN: usize = 328;
}

/// Byte offsets in a ring's header. All fields are 8 bytes.
pub mod ring_at {
    /// Records published so far; written by the owner, with Release.
    pub const HEAD: usize = 0;
    /// Records lost so far because the ring was full; written by the owner.
    pub const LOST: usize = 8;
    /// `LOST` at the last Gap record; written by the owner.
    pub const TOLD: usize = 16;
    /// The hook that the owner is in now, as [`crate::event::HookId`] numbers them (0: none); written by the owner.
    pub const HOOK: usize = 24;
    /// Records consumed so far; written by the drain, with Release.
    pub const TAIL: usize = 64;
    /// [`super::owner`] state.
    pub const STATE: usize = 128;
    /// Number of the owner, or of the last one: see [`crate::event::ThreadId`].
    pub const THREAD: usize = 136;
    /// How often the ring was claimed.
    pub const GENERATION: usize = 144;
    /// The overflow ring is being written to (0 or 1).
    pub const BUSY: usize = 192;
}

/// Values of a ring's owner state.
pub mod owner {
    /// Never owned.
    pub const FREE: u64 = 0;
    /// A thread writes to it.
    pub const OWNED: u64 = 1;
    /// Its thread has ended; free once it is drained.
    pub const RELEASED: u64 = 2;
}

/// The word at [`at::DIED`]: what `waitpid(2)` says (32 bits), whether somebody saw it (1), what the host's out-of-memory killer had done
/// (2), and the limit in MiB that was reached (29).
pub mod died {
    use crate::event::{HostKiller, Waited};

    const SEEN: u64 = 1 << 32;
    const KILLER: u32 = 33;
    const LIMIT: u32 = 35;
    const LARGEST: u64 = (1 << (u64::BITS - LIMIT)) - 1;

    /// The word for an end.
    pub fn word(end: Waited) -> u64 {
        let (killer, mib) = match end.killer {
            HostKiller::Uncounted => (0, 0),
            HostKiller::Spared => (1, 0),
            HostKiller::Killed => (2, 0),
            HostKiller::KilledAtLimit { limit } => (3, limit.map_or(0, |bytes| bytes >> 20).min(LARGEST)),
        };
        u64::from(end.status as u32) | SEEN | killer << KILLER | mib << LIMIT
    }

    /// The end of a word; `None`: nobody saw it.
    pub fn read(word: u64) -> Option<Waited> {
        let mib = word >> LIMIT;
        let killer = match word >> KILLER & 3 {
            0 => HostKiller::Uncounted,
            1 => HostKiller::Spared,
            2 => HostKiller::Killed,
            _ => HostKiller::KilledAtLimit { limit: (mib > 0).then_some(mib << 20) },
        };
        (word & SEEN != 0).then_some(Waited { status: word as i32, killer })
    }
}

/// Bits of the head's flags.
pub mod flag {
    /// The writer has written its End page: nothing here is news.
    pub const CLEAN_END: u64 = 1;
    /// The writer has given up on the file (see its last words on stderr).
    pub const WRITER_STOPPED: u64 = 2;
}

/// How large the parts of a region are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Rings that threads can own; 1 to [`MAX_LANES`].
    pub lanes: u32,
    /// Records in each; a power of two of at least 64. In a region of more than 8 lanes the first two, which go to the threads that touch
    /// the device first (the one that trains and its autograd worker, as a rule), are [`FIRST_TIMES`] times as large: they make nearly all
    /// events.
    pub records: u32,
    /// Records in the shared overflow ring; a power of two of at least 64.
    pub overflow: u32,
    /// Bytes for definitions; a power of two of at least 4096.
    pub definitions: u32,
}

/// How many lanes are larger than the others.
const FIRST: u32 = 2;
/// In a region of at most this many lanes all are alike.
const FEW: u32 = 8;
/// How many times as large they are.
pub const FIRST_TIMES: u32 = 4;

impl Default for Geometry {
    /// Two lanes of 65,536 records (4 MiB), 13 of 16,384 (1 MiB), an overflow ring of 16,384, and 1 MiB of definitions: 23 MiB,
    /// touched only where used. A thread that makes 5 million records a second fills 65,536 in 13 ms.
    fn default() -> Self {
        Geometry { lanes: 15, records: 16_384, overflow: 16_384, definitions: 1 << 20 }
    }
}

impl Geometry {
    /// Whether the numbers are within their bounds.
    pub fn is_valid(&self) -> bool {
        let ring = |n: u32| n.is_power_of_two() && (64..=1 << 24).contains(&n);
        (1..=MAX_LANES).contains(&self.lanes)
            && ring(self.records.saturating_mul(FIRST_TIMES))
            && ring(self.records)
            && ring(self.overflow)
            && self.definitions.is_power_of_two()
            && (4096..=1 << 28).contains(&self.definitions)
    }
    /// Where ring `i`'s header begins; ring `lanes` is the overflow ring.
    pub fn ring_head(&self, i: u32) -> usize {
        PART + i as usize * RING_BYTES
    }
    /// Where the definitions begin.
    pub fn definitions_start(&self) -> usize {
        self.ring_head(self.lanes + 1).next_multiple_of(PART)
    }
    /// Where ring `i`'s records begin.
    pub fn ring_slots(&self, i: u32) -> usize {
        let before = i as usize + i.min(self.first()) as usize * (FIRST_TIMES as usize - 1);
        self.definitions_start() + self.definitions as usize + before * self.records as usize * raw::BYTES
    }
    /// Lanes that are larger than the others.
    fn first(&self) -> u32 {
        if self.lanes > FEW { FIRST } else { 0 }
    }
    /// Records in ring `i`.
    pub fn ring_records(&self, i: u32) -> u32 {
        match i {
            _ if i == self.lanes => self.overflow,
            _ if i < self.first() => self.records.saturating_mul(FIRST_TIMES),
            _ => self.records,
        }
    }
    /// Bytes of the whole region.
    pub fn bytes(&self) -> usize {
        self.ring_slots(self.lanes) + self.overflow as usize * raw::BYTES
    }
}

/// Whose region it is and when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot: tells pids apart that were reused.
    pub start: u64,
    /// Random number, the same in the recording's header: tells regions apart.
    pub id: [u64; 2],
}

/// A moment on all clocks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Moment {
    /// Ticks of the clock that records use.
    pub ticks: u64,
    /// Nanoseconds of the monotonic clock.
    pub mono_ns: u64,
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
}

/// What a tick is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// A nanosecond of the monotonic clock.
    #[default]
    Nanoseconds,
    /// A cycle of the time stamp counter.
    Tsc,
}

#[cfg(test)]
mod tests {
    use super::died;
    use crate::event::{HostKiller, Waited};

    #[test]
    fn an_end_is_read_as_it_was_written() {
        let limit = |mib: u64| HostKiller::KilledAtLimit { limit: (mib > 0).then_some(mib << 20) };
        for killer in
            [HostKiller::Uncounted, HostKiller::Spared, HostKiller::Killed, limit(0), limit(16 << 10)]
        {
            for status in [0, 9, 0x0100, 0x8b, -1] {
                let end = Waited { status, killer };
                assert_eq!(died::read(died::word(end)), Some(end));
            }
        }
        let huge = Waited { status: 9, killer: HostKiller::KilledAtLimit { limit: Some(u64::MAX) } };
        assert_eq!(died::read(died::word(huge)).map(|w| w.killer), Some(limit((1 << 29) - 1)));
        assert_eq!(died::read(0), None, "nobody saw it");
    }
}
