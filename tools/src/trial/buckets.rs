//! The buckets that PyTorch's DDP sums gradients up in: after the first step both the first ones and new ones may be there.

use crate::analyze::Judged;
use crate::error::Error;
use rustc_hash::FxHashMap;
use strandline::event::{Addr, Body, DeviceId, Frame, Item};

/// Whether this line of DDP's makes new buckets: they are allocated by `Reducer::rebuild_buckets`, which is no Python and has no frame.
fn makes_buckets(innermost: &Frame) -> bool {
    innermost.function.ends_with("_pre_forward")
        && innermost.file.ends_with("torch/nn/parallel/distributed.py")
}

/// Bytes of the buckets that DDP makes after its first step, by device; the first ones are as large. A thread of PyTorch's
/// (`ProcessGroupNCCL`'s watchdog) frees those when it finds that the sums are done, and it looks every 0.1 s: until then both are there.
///
/// # Errors
/// The recording cannot be read.
pub(super) fn made_anew(judged: &Judged) -> Result<FxHashMap<DeviceId, u64>, Error> {
    // What is live of them now, by device and address, and the most that was: small tensors of the same line are gone before.
    let mut live: FxHashMap<(DeviceId, Addr), u64> = FxHashMap::default();
    let mut sums: FxHashMap<DeviceId, u64> = FxHashMap::default();
    let mut most: FxHashMap<DeviceId, u64> = FxHashMap::default();
    let mut known = FxHashMap::default();
    judged.again()?.each(|item, names| {
        let Item::Event(e) = item else { return };
        match &e.body {
            Body::Alloc(b) => {
                let is_one = || names.frames(b.stack).next().is_some_and(makes_buckets);
                if !*known.entry(b.stack).or_insert_with(is_one) {
                    return;
                }
                let bytes = b.size.0.max(b.rounded.0);
                live.insert((b.device, b.addr), bytes);
                let sum = sums.entry(b.device).or_default();
                *sum += bytes;
                let most = most.entry(b.device).or_default();
                *most = (*sum).max(*most);
            }
            Body::FreeRequested(b) => {
                if let Some(bytes) = live.remove(&(b.device, b.addr)) {
                    *sums.entry(b.device).or_default() -= bytes;
                }
            }
            _ => {}
        }
    });
    Ok(most)
}
