//! What CUDA handed out beside blocks and segments, as a checkpoint tells it.

use crate::event::{Addr, Block, Body, HeldCall, RuntimeOp};
use rustc_hash::FxHashMap;

/// By address.
#[derive(Default)]
pub(super) struct Calls(FxHashMap<Addr, HeldCall>);

impl Calls {
    /// A call that was recorded; anything else changes nothing.
    pub(super) fn apply(&mut self, body: &Body) {
        let Body::Runtime { op, device, addr, size, stack, .. } = *body else { return };
        match op {
            RuntimeOp::Free | RuntimeOp::FreeAsync | RuntimeOp::HostFree => self.released(addr),
            _ if addr.0 == 0 => {} // refused
            _ => drop(self.0.insert(addr, HeldCall { op, device, addr, size, stack })),
        }
    }

    /// A block that was never handed out is freed: where CUDA takes it itself, it may be one of these.
    pub(super) fn freed(&mut self, b: &Block) {
        if b.pool.is_direct() {
            self.released(b.addr);
        }
    }

    fn released(&mut self, addr: Addr) {
        self.0.remove(&addr);
    }

    /// All that is held, by address.
    pub(super) fn held(&self) -> Vec<HeldCall> {
        let mut all: Vec<HeldCall> = self.0.values().copied().collect();
        all.sort_unstable_by_key(|h| h.addr);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bytes, DeviceId, StackId, StreamHandle};

    #[test]
    fn what_is_given_back_is_not_held() {
        let mut calls = Calls::default();
        let mut call = |op, addr, size| {
            let (addr, size, stack) = (Addr(addr), Bytes(size), StackId(2));
            calls.apply(&Body::Runtime {
                op,
                device: DeviceId(1),
                addr,
                size,
                stream: StreamHandle(0),
                stack,
            });
        };
        call(RuntimeOp::Malloc, 8, 100);
        call(RuntimeOp::HostAlloc, 4, 50);
        call(RuntimeOp::MallocManaged, 6, 10);
        call(RuntimeOp::Malloc, 0, 1 << 40);
        call(RuntimeOp::Free, 6, 0);
        let held: Vec<(u64, u64)> = calls.held().iter().map(|h| (h.addr.0, h.size.0)).collect();
        assert_eq!(held, [(4, 50), (8, 100)]);
    }
}
