//! Memory that CUDA handed out beside the blocks and segments of PyTorch's allocator: pinned memory of the host, managed memory,
//! and what other libraries took for themselves.

use crate::event::{Bytes, DeviceId, HeldCall, Names, RuntimeOp, StackId};
use rustc_hash::FxHashMap;

/// PyTorch's allocator asks CUDA for its segments from here: they are counted as such.
const TORCHS: &str = "libc10_cuda.so";

/// How much of a kind there is, and was at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Now.
    pub now: Bytes,
    /// At most.
    pub peak: Bytes,
}

impl Amount {
    fn moves(&mut self, by: u64, comes: bool) {
        self.now.0 = if comes { self.now.0.saturating_add(by) } else { self.now.0.saturating_sub(by) };
        self.peak = self.peak.max(self.now);
    }
}

#[derive(Clone, Copy, Debug)]
enum Whose {
    Host,
    Managed,
    /// Device memory of a library, by its place in the list.
    Library(usize),
}

/// What CUDA handed out beside blocks and segments, of one process.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Pinned memory of the host (`cudaHostAlloc`, `cudaMallocHost`).
    pub pinned: Amount,
    /// Memory that host and device share (`cudaMallocManaged`): of no device alone.
    pub managed: Amount,
    /// Device memory by the library that called, in order of first appearance. Memory whose caller is not known is in none.
    pub libraries: Vec<(String, Amount)>,
    live: FxHashMap<u64, Held>,
    modules: FxHashMap<StackId, String>,
}

/// Memory that is held.
#[derive(Clone, Copy, Debug)]
struct Held {
    size: u64,
    whose: Whose,
    device: DeviceId,
}

impl Calls {
    /// Notes which library a stack returns to, where it tells.
    pub(super) fn learn(&mut self, stack: StackId, names: &Names) {
        if let Some(frame) = names.native(stack).first()
            && let Some(name) = frame.module.rsplit('/').next().filter(|n| !n.is_empty())
        {
            self.modules.insert(stack, name.to_owned());
        }
    }

    /// Whether PyTorch's allocator called from there.
    pub(super) fn is_torchs(&self, stack: StackId) -> bool {
        self.modules.get(&stack).is_some_and(|n| n == TORCHS)
    }

    /// What libraries hold on a device now, most first.
    pub fn on(&self, device: DeviceId) -> Vec<(String, Bytes)> {
        let mut sums = vec![0u64; self.libraries.len()];
        for h in self.live.values().filter(|h| h.device == device) {
            if let Whose::Library(at) = h.whose
                && let Some(sum) = sums.get_mut(at)
            {
                *sum = sum.saturating_add(h.size);
            }
        }
        let all = self.libraries.iter().zip(sums).filter(|(_, sum)| *sum > 0);
        let mut all: Vec<(String, Bytes)> = all.map(|((name, _), sum)| (name.clone(), Bytes(sum))).collect();
        all.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
        all
    }

    /// Only this is held: a checkpoint says so. What there was at most stays.
    pub(super) fn restart(&mut self, held: &[HeldCall]) {
        self.live.clear();
        let libraries = self.libraries.iter_mut().map(|l| &mut l.1);
        [&mut self.pinned, &mut self.managed].into_iter().chain(libraries).for_each(|a| a.now = Bytes(0));
        for h in held {
            self.apply(h.op, h.device, h.addr.0, h.size.0, h.stack);
        }
    }

    /// A call that was recorded.
    pub(super) fn apply(&mut self, op: RuntimeOp, device: DeviceId, addr: u64, size: u64, stack: StackId) {
        let whose = match op {
            RuntimeOp::HostAlloc => Whose::Host,
            RuntimeOp::MallocManaged => Whose::Managed,
            RuntimeOp::Malloc | RuntimeOp::MallocAsync => {
                let Some(name) = self.modules.get(&stack).filter(|n| *n != TORCHS) else { return };
                let at = self.libraries.iter().position(|l| l.0 == *name).unwrap_or_else(|| {
                    self.libraries.push((name.clone(), Amount::default()));
                    self.libraries.len() - 1
                });
                Whose::Library(at)
            }
            RuntimeOp::Free | RuntimeOp::FreeAsync | RuntimeOp::HostFree => {
                if let Some(h) = self.live.remove(&addr) {
                    self.moves(h.whose, h.size, false);
                }
                return;
            }
        };
        if let Some(h) = self.live.insert(addr, Held { size, whose, device }) {
            self.moves(h.whose, h.size, false); // its end was lost
        }
        self.moves(whose, size, true);
    }

    fn moves(&mut self, whose: Whose, size: u64, comes: bool) {
        let amount = match whose {
            Whose::Host => Some(&mut self.pinned),
            Whose::Managed => Some(&mut self.managed),
            Whose::Library(at) => self.libraries.get_mut(at).map(|l| &mut l.1),
        };
        if let Some(amount) = amount {
            amount.moves(size, comes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Addr, NativeFrame};

    #[test]
    fn each_kind_and_library_has_its_own_sum() {
        let (mut names, mut calls) = (Names::default(), Calls::default());
        for (id, module) in [(1, "/x/libnccl.so.2"), (2, "/x/libc10_cuda.so")] {
            let frame = NativeFrame { module: module.into(), ..NativeFrame::default() };
            names.add_native(StackId(id), vec![frame]);
            calls.learn(StackId(id), &names);
        }
        calls.apply(RuntimeOp::Malloc, DeviceId(1), 8, 100, StackId(1));
        calls.apply(RuntimeOp::Malloc, DeviceId(1), 9, 7, StackId(2));
        calls.apply(RuntimeOp::HostAlloc, DeviceId(1), 10, 50, StackId(1));
        calls.apply(RuntimeOp::MallocManaged, DeviceId(1), 11, 20, StackId(0));
        calls.apply(RuntimeOp::HostFree, DeviceId(1), 10, 0, StackId(0));
        calls.apply(RuntimeOp::HostAlloc, DeviceId(1), 10, 30, StackId(0));
        calls.apply(RuntimeOp::Free, DeviceId(1), 11, 0, StackId(0));
        let amount = |now, peak| Amount { now: Bytes(now), peak: Bytes(peak) };
        assert_eq!((calls.pinned, calls.managed), (amount(30, 50), amount(0, 20)));
        assert_eq!(calls.libraries, [("libnccl.so.2".to_owned(), amount(100, 100))]);
        assert_eq!(calls.on(DeviceId(1)), [("libnccl.so.2".to_owned(), Bytes(100))]);
        assert_eq!(calls.on(DeviceId(0)), []);
        let held = HeldCall {
            op: RuntimeOp::Malloc,
            device: DeviceId(0),
            addr: Addr(99),
            size: Bytes(40),
            stack: StackId(1),
        };
        calls.restart(&[held]);
        assert_eq!((calls.pinned, calls.managed), (amount(0, 50), amount(0, 20)));
        assert_eq!(calls.libraries, [("libnccl.so.2".to_owned(), amount(40, 100))]);
    }
}
