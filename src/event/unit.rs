//! Newtypes: a number that knows what it counts.

macro_rules! units {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
            pub struct $name(pub $inner);
        )*
    };
}

units! {
    /// A device address as the allocator hands it out.
    Addr(u64);
    /// A size in bytes.
    Bytes(u64);
    /// CUDA ordinal within the process.
    DeviceId(u8);
    /// A raw `cudaStream_t`; 0 is the legacy default stream. Handles are reused after `cudaStreamDestroy`.
    StreamHandle(u64);
    /// A raw `cudaEvent_t`. Handles are reused after `cudaEventDestroy`.
    EventHandle(u64);
    /// Dense number of a (device, handle, epoch) in order of first appearance; 0 is device 0's default stream.
    StreamId(u32);
    /// An interned stack, unique within one recording; 0 = no stack.
    StackId(u32);
    /// A code object, unique within one recording (an address reused by another code object is another id); 0 = none.
    CodeId(u32);
    /// A call site as the analyser groups blocks: an index into its site table.
    SiteId(u32);
    /// A ring's owner, numbered in order of first event within one recording (not a tid).
    ThreadId(u16);
    /// Nanoseconds since the recording began, on the recording's own monotonic clock.
    Nanos(u64);
}

/// A memory pool as PyTorch names it: (0,0) is the default pool, (0,n) a `MemPool`, (n,0) a graph capture's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// The pool everything lives in that is in no private pool.
    pub const DEFAULT: PoolId = PoolId(0, 0);
    /// Ours, not PyTorch's: of blocks that a CUDA call each hands out (`cudaMallocAsync`, `cudaMalloc`), from no cache.
    pub const DIRECT: PoolId = PoolId(u64::MAX, 0);
    /// The same while a graph is captured: the block is the graph's.
    pub const DIRECT_CAPTURED: PoolId = PoolId(u64::MAX, 1);

    /// Whether this is a graph capture's pool or a `MemPool`.
    #[inline]
    pub fn is_private(self) -> bool {
        self != PoolId::DEFAULT && self != PoolId::DIRECT
    }

    /// Whether a CUDA call handed the block out: then it is a part of no segment, and of no total of PyTorch's.
    #[inline]
    pub fn is_direct(self) -> bool {
        self.0 == u64::MAX
    }
}

impl ThreadId {
    /// The number that events carry; 65,535 stands for all that come after 65,534.
    pub fn numbered(thread: u32) -> ThreadId {
        ThreadId(u16::try_from(thread).unwrap_or(u16::MAX))
    }
}

impl Addr {
    /// The address `size` bytes further on; saturating, since recordings may come from anywhere.
    pub fn end(self, size: Bytes) -> Addr {
        Addr(self.0.saturating_add(size.0))
    }
}

/// `1,116`: a count as every judgement and every report writes it.
pub fn thousands(n: u64) -> String {
    let s = n.to_string();
    let mut out = String::with_capacity(s.len() + s.len() / 3);
    for (i, c) in s.chars().enumerate() {
        if i > 0 && (s.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// The sum of amounts from a recording; saturating, since those may come from anywhere.
pub fn total(amounts: impl IntoIterator<Item = u64>) -> u64 {
    amounts.into_iter().fold(0, u64::saturating_add)
}

/// One more amount in a sum; see [`total`].
pub fn add(sum: &mut u64, amount: u64) {
    *sum = sum.saturating_add(amount);
}

#[cfg(test)]
mod tests {
    use super::total;

    #[test]
    fn a_total_ends_where_numbers_do() {
        assert_eq!(total([1, 2, 3]), 6);
        assert_eq!(total([u64::MAX, 1]), u64::MAX);
        assert_eq!(total([]), 0);
    }
}
