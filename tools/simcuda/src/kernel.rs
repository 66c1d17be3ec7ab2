//! Kernels: registered and launched, never run. One is known by name, because it is all about time.

use std::cell::RefCell;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The kernel behind `torch.cuda._sleep(cycles)`; its one argument is the number of cycles.
const SPIN: &[u8] = b"spin_kernel";

/// Clock of the card on which the durations of known leaks were measured (an H200), in cycles per µs.
const CYCLES_PER_MICROSECOND: u64 = 1_980;

static SPINNERS: RwLock<Vec<usize>> = RwLock::new(Vec::new());
static ANY_SPINNER: AtomicBool = AtomicBool::new(false);

/// Remembers a kernel whose duration is in its argument, by its address in the program.
pub fn register(host_function: usize, name: &[u8]) {
    if name.windows(SPIN.len()).any(|window| window == SPIN) {
        SPINNERS.write().unwrap_or_else(|poisoned| poisoned.into_inner()).push(host_function);
        ANY_SPINNER.store(true, Ordering::Release);
    }
}

/// Whether a launch of `function` spins for the cycles that its first argument says.
pub fn spins(function: usize) -> bool {
    ANY_SPINNER.load(Ordering::Acquire)
        && SPINNERS.read().unwrap_or_else(|poisoned| poisoned.into_inner()).contains(&function)
}

/// How long that many cycles take.
pub fn nanoseconds(cycles: i64) -> u64 {
    let cycles = u128::try_from(cycles).unwrap_or(0);
    u64::try_from(cycles * 1_000 / u128::from(CYCLES_PER_MICROSECOND)).unwrap_or(u64::MAX)
}

/// A grid or a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Dim3 {
    /// Width.
    pub x: u32,
    /// Height.
    pub y: u32,
    /// Depth.
    pub z: u32,
}

/// What `kernel<<<grid, block, shared, stream>>>` pushes and the kernel's stub pops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Bytes of dynamic shared memory.
    pub shared: usize,
    /// The stream.
    pub stream: usize,
}

thread_local! {
    static PUSHED: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Pushes a configuration on the calling thread's stack.
pub fn push(configuration: Configuration) {
    let _ = PUSHED.try_with(|stack| stack.borrow_mut().push(configuration));
}

/// Pops the latest one.
pub fn pop() -> Option<Configuration> {
    PUSHED.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinning_kernel_is_known_by_its_mangled_name() {
        register(1, b"_ZN2at4cuda12_GLOBAL__N_111spin_kernelEl");
        register(2, b"_ZN2at6native13reduce_kernelEv");
        assert!(spins(1) && !spins(2));
        assert_eq!(nanoseconds(1_980_000), 1_000_000);
        assert_eq!(nanoseconds(-5), 0);
    }

    #[test]
    fn configurations_are_a_stack() {
        push(Configuration { shared: 1, ..Default::default() });
        push(Configuration { shared: 2, ..Default::default() });
        assert_eq!(pop().map(|c| c.shared), Some(2));
        assert_eq!(pop().map(|c| c.shared), Some(1));
        assert_eq!(pop(), None);
    }
}
