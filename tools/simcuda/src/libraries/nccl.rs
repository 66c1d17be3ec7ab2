//! NCCL: communicators know their size, collectives occupy their stream. No rank hears of another: each takes what it would send for what
//! all send, so that what ranks compare (shapes, counts) agrees, and values are as meaningless as everywhere here. NCCL's own buffers on
//! the device are not there.

use crate::abi::Out;
use crate::code::{Code, Outcome};
use crate::device;
use crate::handle::Handles;
use crate::kernel;
use crate::memory::Kind;
use crate::model::{lock, now};
use crate::runtime::{memory, transfer};
use crate::stream::Key;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// `ncclResult_t`.
mod result {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const CUDA: i32 = 1;
    pub(super) const INVALID_ARGUMENT: i32 = 4;
}

/// A communicator.
#[derive(Clone, Copy, Debug)]
struct Communicator {
    /// Ranks in it; 0: not known, as it was split off.
    ranks: i32,
    rank: i32,
    device: i32,
}

/// `ncclUniqueId`, which is handed over by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId([u8; 128]);

/// Color of a rank that is in no part of what is split.
const NO_COLOR: i32 = -1;

fn communicators() -> MutexGuard<'static, Handles<Communicator>> {
    static ALL: LazyLock<Mutex<Handles<Communicator>>> = LazyLock::new(|| Mutex::new(Handles::new(9)));
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn told(outcome: Outcome) -> i32 {
    match outcome {
        Ok(()) => result::SUCCESS,
        Err(Code::INVALID_VALUE | Code::INVALID_HANDLE) => result::INVALID_ARGUMENT,
        Err(_) => result::CUDA,
    }
}

fn make(communicator: Out<usize>, ranks: i32, rank: i32) -> Outcome {
    let device = i32::try_from(device::current()).map_err(|_| Code::INVALID_VALUE)?;
    communicator.set(communicators().insert(Communicator { ranks, rank, device }))
}

fn ask(communicator: usize, value: Out<i32>, of: fn(&Communicator) -> i32) -> i32 {
    let found = communicators().get(communicator).map(of);
    told(found.and_then(|found| value.set(found)))
}

/// Bytes of one element of an `ncclDataType_t`.
fn width(kind: i32) -> usize {
    match kind {
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        6 | 9 => 2,
        _ => 1,
    }
}

/// Copies within a stream, or only occupies it where nothing is to be moved.
fn moved(target: usize, source: usize, bytes: usize, stream: usize) -> Outcome {
    if target == source || target == 0 || source == 0 || bytes == 0 {
        return lock().work(Key::of(stream, device::current()), None, now());
    }
    transfer::within(target, source, bytes, stream)
}

/// Bytes of a sum of gradients, at least.
const LARGE: usize = 1 << 20;

/// Tells of a large sum.
fn note_sum(bytes: usize) {
    if bytes >= LARGE {
        kernel::a_sum_began();
    }
}

/// An id of no meaning.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclGetUniqueId(id: Out<UniqueId>) -> i32 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    told(id.set(UniqueId(bytes)))
}

/// Makes a communicator; waits for no other rank.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommInitRank(
    communicator: Out<usize>,
    ranks: i32,
    _id: UniqueId,
    rank: i32,
) -> i32 {
    told(make(communicator, ranks, rank))
}

/// The same with settings, which change nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommInitRankConfig(
    communicator: Out<usize>,
    ranks: i32,
    _id: UniqueId,
    rank: i32,
    _config: usize,
) -> i32 {
    told(make(communicator, ranks, rank))
}

/// The same with several ids.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommInitRankScalable(
    communicator: Out<usize>,
    ranks: i32,
    rank: i32,
    _count: i32,
    _ids: usize,
    _config: usize,
) -> i32 {
    told(make(communicator, ranks, rank))
}

/// Splits a communicator; how many ranks have the same color nobody here knows.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommSplit(
    parent: usize,
    color: i32,
    key: i32,
    communicator: Out<usize>,
    _config: usize,
) -> i32 {
    if let Err(code) = communicators().get(parent).map(drop) {
        return told(Err(code));
    }
    told(if color == NO_COLOR { communicator.set(0) } else { make(communicator, 0, key) })
}

/// Nothing is under way, so nothing has failed.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommGetAsyncError(communicator: usize, error: Out<i32>) -> i32 {
    ask(communicator, error, |_| result::SUCCESS)
}

/// How many ranks it has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommCount(communicator: usize, count: Out<i32>) -> i32 {
    ask(communicator, count, |c| c.ranks)
}

/// Which of them this is.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommUserRank(communicator: usize, rank: Out<i32>) -> i32 {
    ask(communicator, rank, |c| c.rank)
}

/// Its device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommCuDevice(communicator: usize, device: Out<i32>) -> i32 {
    ask(communicator, device, |c| c.device)
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommDestroy(communicator: usize) -> i32 {
    told(communicators().remove(communicator).map(drop))
}

/// Destroys it at once.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommAbort(communicator: usize) -> i32 {
    sim_ncclCommDestroy(communicator)
}

/// Nothing is left to be done.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommFinalize(communicator: usize) -> i32 {
    told(communicators().get(communicator).map(drop))
}

/// Registers a buffer, which changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommRegister(
    _communicator: usize,
    buffer: usize,
    _size: usize,
    handle: Out<usize>,
) -> i32 {
    told(handle.set(buffer))
}

/// Forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclCommDeregister(_communicator: usize, _handle: usize) -> i32 {
    result::SUCCESS
}

/// Operations are not held back until the group ends.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclGroupStart() -> i32 {
    result::SUCCESS
}

/// They are under way already.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclGroupEnd() -> i32 {
    result::SUCCESS
}

/// An operation of one's own: its number is one that NCCL has not.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclRedOpCreatePreMulSum(operation: Out<i32>) -> i32 {
    told(operation.set(0x100))
}

/// Forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclRedOpDestroy(_operation: i32, _communicator: usize) -> i32 {
    result::SUCCESS
}

/// Device memory, as `cudaMalloc` gives it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclMemAlloc(address: Out<usize>, size: usize) -> i32 {
    told(memory::allocate(address, size, Kind::Device))
}

/// Gives it back.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclMemFree(address: usize) -> i32 {
    told(memory::free(address))
}

/// What all ranks have, added up: what this one has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclAllReduce(
    send: usize,
    receive: usize,
    count: usize,
    kind: i32,
    _operation: i32,
    _communicator: usize,
    stream: usize,
) -> i32 {
    let bytes = count.saturating_mul(width(kind));
    note_sum(bytes);
    told(moved(receive, send, bytes, stream))
}

/// The same for one rank.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclReduce(
    send: usize,
    receive: usize,
    count: usize,
    kind: i32,
    _operation: i32,
    root: i32,
    communicator: usize,
    stream: usize,
) -> i32 {
    let is_root = communicators().get(communicator).is_ok_and(|c| c.rank == root);
    told(moved(if is_root { receive } else { 0 }, send, count.saturating_mul(width(kind)), stream))
}

/// What the root has: what this one has, or is given to send.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclBroadcast(
    send: usize,
    receive: usize,
    count: usize,
    kind: i32,
    _root: i32,
    _communicator: usize,
    stream: usize,
) -> i32 {
    told(moved(receive, send, count.saturating_mul(width(kind)), stream))
}

/// The same in place.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclBcast(
    _buffer: usize,
    _count: usize,
    _kind: i32,
    _root: i32,
    _communicator: usize,
    stream: usize,
) -> i32 {
    told(moved(0, 0, 0, stream))
}

/// What each rank has: what this one has, as often as there are ranks.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclAllGather(
    send: usize,
    receive: usize,
    count: usize,
    kind: i32,
    communicator: usize,
    stream: usize,
) -> i32 {
    let ranks = communicators().get(communicator).map(|c| usize::try_from(c.ranks).unwrap_or(0));
    let bytes = count.saturating_mul(width(kind));
    let all = |ranks: usize| {
        moved(0, 0, 0, stream)?;
        (0..ranks).try_for_each(|rank| moved(receive + rank * bytes, send, bytes, stream))
    };
    told(ranks.and_then(all))
}

/// One part of the sum: this rank's of what it has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclReduceScatter(
    send: usize,
    receive: usize,
    count: usize,
    kind: i32,
    _operation: i32,
    communicator: usize,
    stream: usize,
) -> i32 {
    let rank = communicators().get(communicator).map(|c| usize::try_from(c.rank).unwrap_or(0));
    let bytes = count.saturating_mul(width(kind));
    note_sum(bytes);
    told(rank.and_then(|rank| moved(receive, send + rank * bytes, bytes, stream)))
}

/// A part of what each rank has: parts of what this one has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclAlltoAll(
    send: usize,
    receive: usize,
    count: usize,
    kind: i32,
    communicator: usize,
    stream: usize,
) -> i32 {
    let ranks = communicators().get(communicator).map(|c| usize::try_from(c.ranks).unwrap_or(0));
    told(
        ranks.and_then(|n| moved(receive, send, count.saturating_mul(width(kind)).saturating_mul(n), stream)),
    )
}

/// Sends to nobody.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclSend(
    _send: usize,
    _count: usize,
    _kind: i32,
    _peer: i32,
    _communicator: usize,
    stream: usize,
) -> i32 {
    told(moved(0, 0, 0, stream))
}

/// Receives nothing: what was in the buffer stays.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclRecv(
    _receive: usize,
    _count: usize,
    _kind: i32,
    _peer: i32,
    _communicator: usize,
    stream: usize,
) -> i32 {
    told(moved(0, 0, 0, stream))
}

/// The text of every error.
#[unsafe(no_mangle)]
pub extern "C" fn sim_ncclGetErrorString(error: i32) -> *const c_char {
    if error == result::SUCCESS { c"no error".as_ptr() } else { c"simulated NCCL failed".as_ptr() }
}
