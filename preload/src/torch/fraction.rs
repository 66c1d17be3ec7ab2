//! What torch may take of a device at most: `torch.cuda.set_per_process_memory_fraction`.
//!
//! Since 2.11 the allocator computes it from numbers of its own, without a lock or a CUDA call, both where it is set and where
//! it is asked for: nothing of a call is seen, and asking is only to read. Older versions ask the driver for the
//! device's size; there it is found on the way ([`crate::stacks::fraction`]), and never asked for.

use super::versions::Version;
use crate::recorder::devices;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// The first version whose answer is computed from its own numbers alone.
pub(super) const ONLY_READS: Version = Version { major: 2, minor: 11 };

/// The native allocator, and `getMemoryFraction` of its class; 0 where it is not asked.
static OBJECT: AtomicUsize = AtomicUsize::new(0);
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
/// It may be asked at this moment.
static ASKING: AtomicBool = AtomicBool::new(false);
/// How long the end waits for an answer, which is a few loads.
const ANSWER: Duration = Duration::from_millis(100);

/// From now on the allocator is asked. `function`: the address of its `getMemoryFraction`.
pub(super) fn begin(object: usize, function: usize) {
    OBJECT.store(object, Relaxed);
    FUNCTION.store(function, Release);
}

/// Notes for every device what torch may take of it. Called by the drain, now and then.
pub(crate) fn poll() {
    // In the same order as in `end`, one of the two sees the other.
    ASKING.store(true, SeqCst);
    match FUNCTION.load(SeqCst) {
        0 => {}
        function => ask_all(function),
    }
    ASKING.store(false, Release);
}

/// The allocator is not asked any more. Before the process destroys it.
pub(crate) fn end() {
    FUNCTION.store(0, SeqCst);
    let begun = Instant::now();
    while ASKING.load(SeqCst) && begun.elapsed() < ANSWER {
        std::thread::yield_now();
    }
}

fn ask_all(function: usize) {
    let object = OBJECT.load(Relaxed);
    // SAFETY: the symbol of a version whose function has this type: the object, and a device's index of one byte.
    let ask: extern "C" fn(usize, i8) -> f64 = unsafe { core::mem::transmute(function) };
    // Devices whose properties the program was told exist, and an initialized allocator knows all that do: only for others
    // would it throw.
    for device in devices::asked_for() {
        devices::note_fraction(device, ask(object, device as i8));
    }
}
