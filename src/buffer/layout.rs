//! The shared words as types, held to the offsets that `format::region` documents.

use crate::format::region::{PART, RING_BYTES, at, ring_at};
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

/// The region's first page.
#[repr(C, align(64))]
pub(super) struct Head {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU64,
    pub(super) pid: AtomicU64,
    pub(super) start: AtomicU64,
    pub(super) id_low: AtomicU64,
    pub(super) id_high: AtomicU64,
    pub(super) lanes: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) overflow: AtomicU64,
    pub(super) definitions: AtomicU64,
    pub(super) clock: AtomicU64,
    pub(super) ticks0: AtomicU64,
    pub(super) mono0: AtomicU64,
    pub(super) unix0: AtomicU64,
    pub(super) ticks1: AtomicU64,
    pub(super) mono1: AtomicU64,
    pub(super) calibration: AtomicU64,
    pub(super) flags: AtomicU64,
    _constants: [u8; 48],
    pub(super) lost_unowned: AtomicU64,
    pub(super) lost_definitions: AtomicU64,
    pub(super) threads: AtomicU64,
    pub(super) rooms: AtomicU64,
    _died: [u8; 8],
    pub(super) writer: AtomicU64,
    _cold: [u8; 16],
    pub(super) def_head: AtomicU64,
    pub(super) def_busy: AtomicU64,
    _producer: [u8; 48],
    pub(super) def_tail: AtomicU64,
    pub(super) drain: AtomicU64,
}

/// A ring's header: what the owner writes, what the drain writes and what claims write lie on lines of their own.
#[repr(C, align(64))]
pub(super) struct Ring {
    pub(super) head: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) told: AtomicU64,
    pub(super) hook: AtomicU64,
    _owner: [u8; 32],
    pub(super) tail: AtomicU64,
    _drain: [u8; 56],
    pub(super) state: AtomicU64,
    pub(super) thread: AtomicU64,
    pub(super) generation: AtomicU64,
    _claim: [u8; 40],
    pub(super) busy: AtomicU64,
    _busy: [u8; 56],
}

const _: () = {
    assert!(size_of::<Head>() <= PART);
    assert!(offset_of!(Head, magic) == at::MAGIC && offset_of!(Head, version) == at::VERSION);
    assert!(offset_of!(Head, pid) == at::PID && offset_of!(Head, start) == at::START);
    assert!(offset_of!(Head, id_low) == at::ID_LOW && offset_of!(Head, id_high) == at::ID_HIGH);
    assert!(offset_of!(Head, lanes) == at::LANES && offset_of!(Head, records) == at::RECORDS);
    assert!(offset_of!(Head, overflow) == at::OVERFLOW && offset_of!(Head, definitions) == at::DEFINITIONS);
    assert!(offset_of!(Head, clock) == at::CLOCK && offset_of!(Head, ticks0) == at::TICKS0);
    assert!(offset_of!(Head, mono0) == at::MONO0 && offset_of!(Head, unix0) == at::UNIX0);
    assert!(offset_of!(Head, ticks1) == at::TICKS1 && offset_of!(Head, mono1) == at::MONO1);
    assert!(offset_of!(Head, calibration) == at::CALIBRATION && offset_of!(Head, flags) == at::FLAGS);
    assert!(offset_of!(Head, lost_unowned) == at::LOST_UNOWNED);
    assert!(
        offset_of!(Head, lost_definitions) == at::LOST_DEFINITIONS
            && offset_of!(Head, threads) == at::THREADS
    );
    assert!(offset_of!(Head, rooms) == at::ROOMS && offset_of!(Ring, hook) == ring_at::HOOK);
    assert!(offset_of!(Head, writer) == at::WRITER);
    assert!(offset_of!(Head, def_head) == at::DEF_HEAD && offset_of!(Head, def_busy) == at::DEF_BUSY);
    assert!(offset_of!(Head, def_tail) == at::DEF_TAIL && offset_of!(Head, drain) == at::DRAIN);
    assert!(size_of::<Ring>() == RING_BYTES);
    assert!(offset_of!(Ring, head) == ring_at::HEAD && offset_of!(Ring, lost) == ring_at::LOST);
    assert!(offset_of!(Ring, told) == ring_at::TOLD);
    assert!(offset_of!(Ring, tail) == ring_at::TAIL && offset_of!(Ring, state) == ring_at::STATE);
    assert!(
        offset_of!(Ring, thread) == ring_at::THREAD && offset_of!(Ring, generation) == ring_at::GENERATION
    );
    assert!(offset_of!(Ring, busy) == ring_at::BUSY);
};
