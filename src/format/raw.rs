//! The raw ring's record: eight words that a hook writes without a thought.
//!
//! ```text
//! word 0  ticks of the clock (TSC where the kernel's clock source is the TSC, else nanoseconds)
//! word 1  a: address, or the kind's first operand
//! word 2  b: size, or the kind's second operand
//! word 3  c: stream, or the kind's third operand
//! word 4  rounded size (40 bits, low) | per-device sequence number of allocator events (24 bits, high)
//! word 5  torch's allocated total after the event
//! word 6  torch's reserved total after the event
//! word 7  stack u32 | kind u8 | device u8 | flags u8 | phase u8   (low to high)
//! ```
//!
//! **Commit rule.** A record is *open* while its owner may still write to it and *published* once `head` covers it; the
//! owner stores `head` with Release after the last write, a reader loads it with Acquire and never looks beyond it. An
//! allocation and a request to free stay open until the report that tells their rounded size; a completion that
//! follows its request on the same thread becomes a flag of it. The next event of the thread publishes whatever is
//! still open. Everything else is published at once, and all of it before the device's lock is released: that is what
//! lets `format::merge` put threads in order.
//!
//! **Sequence numbers** count the records of kinds 0 to 6 on a device, under the device's lock. A completion that became
//! a flag takes none; a lost record takes one, so that the loss shows.

use super::fields::numbered;

/// Words in a record.
pub const WORDS: usize = 8;
/// Bytes in a record.
pub const BYTES: usize = WORDS * 8;

/// One record. `repr(C)`, so that the region's layout is the same for every build.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Record {
    /// Clock ticks.
    pub ticks: u64,
    /// Address, or first operand.
    pub a: u64,
    /// Size, or second operand.
    pub b: u64,
    /// Stream, or third operand.
    pub c: u64,
    /// Rounded size and sequence number: see [`Record::rounded`], [`Record::sequence`].
    pub rounded_seq: u64,
    /// torch's allocated total.
    pub allocated: u64,
    /// torch's reserved total.
    pub reserved: u64,
    /// Interned stack.
    pub stack: u32,
    /// What happened: a [`Kind`] as a number. Unknown numbers are skipped by readers, and counted.
    pub kind: u8,
    /// Device ordinal.
    pub device: u8,
    /// [`flag`] bits.
    pub flags: u8,
    /// [`crate::event::Phase`] bits.
    pub phase: u8,
}

const ROUNDED_BITS: u32 = 40;
const ROUNDED_MASK: u64 = (1 << ROUNDED_BITS) - 1;
/// Sequence numbers count modulo this.
pub const SEQUENCE_MODULUS: u32 = 1 << 24;

impl Record {
    /// Rounded size in bytes; 0 = not reported. Sizes beyond 1 TiB do not fit and read as 0.
    #[inline]
    pub fn rounded(&self) -> u64 {
        self.rounded_seq & ROUNDED_MASK
    }
    /// Sequence number of an allocator event on its device, modulo [`SEQUENCE_MODULUS`].
    #[inline]
    pub fn sequence(&self) -> u32 {
        (self.rounded_seq >> ROUNDED_BITS) as u32
    }
    /// Sets the sequence number, with no rounded size yet.
    #[inline(always)]
    pub fn set_sequence(&mut self, n: u32) {
        self.rounded_seq = u64::from(n) << ROUNDED_BITS;
    }
    /// Sets the rounded size and keeps the sequence number.
    #[inline(always)]
    pub fn set_rounded(&mut self, bytes: u64) {
        let fits = if bytes <= ROUNDED_MASK { bytes } else { 0 };
        self.rounded_seq = (self.rounded_seq & !ROUNDED_MASK) | fits;
    }
}

/// Bits of [`Record::flags`].
pub mod flag {
    /// The block was reusable at once: the completion followed its request.
    pub const COMPLETED: u8 = 1;
    /// `rounded`, `allocated` and `reserved` were reported.
    pub const REPORTED: u8 = 2;
    /// The record before this one on the same thread is a [`super::Kind::Pool`] that names its pool.
    pub const POOL: u8 = 4;
    /// Of a backward: within another one.
    pub const NESTED: u8 = 8;
    /// Of a thread: an autograd worker.
    pub const AUTOGRAD: u8 = 16;
    /// Of a block: a CUDA call handed it out, and not a cache: see [`crate::event::PoolId::DIRECT`]. The stream of its free is the one
    /// that it was freed on.
    pub const DIRECT: u8 = 32;
}

/// A thread's name, zero-padded, as the second and third operand of [`Kind::Thread`].
pub fn words_of_name(name: [u8; 16]) -> (u64, u64) {
    let n = u128::from_le_bytes(name);
    (n as u64, (n >> 64) as u64)
}

numbered! {
    /// What a record says. The operands are named in brackets: `[a, b, c]`.
    enum Kind: u8, from_u8;
    /// Allocator: block handed out `[addr, size, stream]`. Numbers 0 to 8 are torch's own actions.
    Alloc = 0,
    /// Allocator: block given back `[addr, size, stream]`.
    FreeRequested = 1,
    /// Allocator: block reusable, alone `[addr, size, stream]`.
    FreeCompleted = 2,
    /// Allocator: segment obtained `[addr, size, stream]`.
    SegmentAlloc = 3,
    /// Allocator: segment returned `[addr, size, stream]`.
    SegmentFree = 4,
    /// Allocator: range mapped `[addr, size, stream]`.
    SegmentMap = 5,
    /// Allocator: range unmapped `[addr, size, stream]`.
    SegmentUnmap = 6,
    /// Allocator: torch took a snapshot `[0, active bytes, 0]`.
    Snapshot = 7,
    /// Allocator: out of memory `[driver free, rounded request, stream]`.
    Oom = 8,
    /// The pool of the record that follows `[first, second, 0]`.
    Pool = 16,
    /// A report whose allocator record was no longer open `[addr, signed rounded size, 0]`.
    Report = 17,
    /// The ring has a new owner `[tid, name bytes 0-7, name bytes 8-15]`; `stack` holds the owner's number; flag AUTOGRAD.
    Thread = 18,
    /// Records were lost before this one `[lost so far on this ring, 0, 0]`; written by the ring itself.
    Gap = 19,
    /// Scope switch `[from, to, 0]`.
    Scope = 32,
    /// Stream created `[0, 0, stream]`.
    StreamCreate = 33,
    /// Stream destroyed `[0, 0, stream]`.
    StreamDestroy = 34,
    /// Event recorded `[event, 0, stream]`.
    EventRecord = 35,
    /// Event destroyed `[event, 0, 0]`.
    EventDestroy = 36,
    /// Stream waits `[event, 0, stream]`.
    StreamWait = 37,
    /// Stream known done `[0, 0, stream]`.
    StreamDone = 38,
    /// Event known complete `[event, 0, 0]`.
    EventDone = 39,
    /// Device known done.
    DeviceDone = 40,
    /// Freed block waits `[addr, 0, stream]`.
    FreeWaits = 41,
    /// `record_stream` `[addr, 0, stream]`.
    RecordStream = 42,
    /// Capture begins `[0, 0, stream]`.
    CaptureBegin = 43,
    /// Capture ends `[0, 0, stream]`.
    CaptureEnd = 44,
    /// Optimizer step begins `[optimizer, 1 if it was given a closure, 0]`.
    OptimizerBegin = 64,
    /// Optimizer step has ended `[optimizer, 0, 0]`.
    OptimizerEnd = 65,
    /// Backward begins; stack; flag NESTED.
    BackwardBegin = 66,
    /// Backward has ended; flag NESTED.
    BackwardEnd = 67,
    /// Scaler update.
    ScalerUpdate = 68,
    /// Manual step `[n, 0, 0]`.
    ManualStep = 69,
    /// Mark `[name, 0, 0]`.
    Mark = 70,
    /// Named phase `[name, 0, 0]`.
    NamedPhase = 71,
    /// Runtime call `[addr, size, stream]`; `stack` holds the [`crate::event::RuntimeOp`]'s number, word 4 the stack's.
    Runtime = 80,
    /// The program's own `cudaMemGetInfo` `[free, total, 0]`.
    MemInfo = 81,
    /// A call failed for good `[status, call, stream]`, the call by its place in [`crate::event::CALLS`]; stack.
    Failed = 82,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_cache_line() {
        assert_eq!(size_of::<Record>(), BYTES);
        assert_eq!(BYTES, 64);
    }

    #[test]
    fn rounded_size_and_sequence_share_a_word() {
        let mut r = Record::default();
        r.set_sequence(SEQUENCE_MODULUS - 1);
        r.set_rounded(ROUNDED_MASK);
        assert_eq!((r.sequence(), r.rounded()), (SEQUENCE_MODULUS - 1, ROUNDED_MASK));
        r.set_rounded(ROUNDED_MASK + 1);
        assert_eq!((r.sequence(), r.rounded()), (SEQUENCE_MODULUS - 1, 0));
    }
}
