//! `TraceEntry` as far as we read it: what the tracker is called with.

/// The first 48 bytes are the same in every version from 2.4 to 2.15; the pool id follows from 2.8. Nothing behind it is
/// named here: `time_` is found at run time (see `tracker`), the strings behind it are never touched.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct TraceEntry {
    /// `Action`: 0 to 8 have kept their numbers, 9 (annotations, 2.14) is not ours.
    pub(crate) action: i32,
    /// CUDA ordinal; always 0 for a snapshot.
    pub(crate) device: i8,
    /// Address; the driver's free bytes for an out-of-memory.
    pub(crate) addr: u64,
    /// `shared_ptr<GatheredContext>`; not looked at.
    context: [u64; 2],
    /// The block's allocation stream.
    pub(crate) stream: u64,
    /// Requested size; segment size for segments.
    pub(crate) size: u64,
    /// From 2.8: the pool. Before: `time_` in the first word.
    pub(crate) pool: [u64; 2],
}

const _: () = assert!(core::mem::offset_of!(TraceEntry, device) == 4);
const _: () = assert!(core::mem::offset_of!(TraceEntry, addr) == 8);
const _: () = assert!(core::mem::offset_of!(TraceEntry, stream) == 32);
const _: () = assert!(core::mem::offset_of!(TraceEntry, size) == 40);
const _: () = assert!(core::mem::offset_of!(TraceEntry, pool) == 48);

/// Where `time_` lies up to 2.7; there is no pool then.
pub(crate) const TIME_BEFORE_POOLS: usize = 48;
/// Where `time_` lies from 2.8.
pub(crate) const TIME_AFTER_POOL: usize = 64;

/// `std::function<void(const TraceEntry&)>` of libstdc++, built by hand: the allocator copies it once per device by
/// calling its manager, and calls its invoker for each event.
#[repr(C)]
pub(crate) struct StdFunction {
    /// The stored callable; ours has no state.
    pub(crate) functor: [usize; 2],
    /// Copies, destroys, tells the type.
    pub(crate) manager: usize,
    /// Calls.
    pub(crate) invoker: usize,
}
const _: () = assert!(size_of::<StdFunction>() == 32);
