//! Kernels: registered and launched, never run. Two are known by name: one because it is all about time, and PyTorch's `all()`, because
//! programs branch on it.

use std::cell::{Cell, RefCell};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The kernel behind `torch.cuda._sleep(cycles)`; its one argument is the number of cycles.
const SPIN: &[u8] = b"spin_kernel";

/// Clock of the card on which the durations of known leaks were measured (an H200), in cycles per µs.
const CYCLES_PER_MICROSECOND: u64 = 1_980;

/// The kernels behind `Tensor.all()`, and with it `torch.equal`.
const AND: &[u8] = b"and_kernel_cuda";

/// Kernels of one name, by their addresses in the program.
struct Known {
    any: AtomicBool,
    functions: RwLock<Vec<usize>>,
}

impl Known {
    const fn none() -> Known {
        Known { any: AtomicBool::new(false), functions: RwLock::new(Vec::new()) }
    }

    fn add(&self, function: usize) {
        self.functions.write().unwrap_or_else(|poisoned| poisoned.into_inner()).push(function);
        self.any.store(true, Ordering::Release);
    }

    fn has(&self, function: usize) -> bool {
        self.any.load(Ordering::Acquire)
            && self.functions.read().unwrap_or_else(|poisoned| poisoned.into_inner()).contains(&function)
    }
}

static SPINNERS: Known = Known::none();
static ANDS: Known = Known::none();

/// Remembers a kernel that is known by name, by its address in the program.
pub fn register(host_function: usize, name: &[u8]) {
    let named = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    if named(SPIN) {
        SPINNERS.add(host_function);
    } else if named(AND) {
        ANDS.add(host_function);
    }
}

/// Whether a launch of `function` spins for the cycles that its first argument says.
pub fn spins(function: usize) -> bool {
    SPINNERS.has(function)
}

/// Longer than two looks of PyTorch's watchdog.
const LOADING: Duration = Duration::from_millis(250);
static SUM_BEGAN: AtomicBool = AtomicBool::new(false);
static HAS_TO_LOAD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread asked for the first sum.
    static ASKED_FOR_SUM: Cell<bool> = const { Cell::new(false) };
    static AND_WAS_LAST: Cell<bool> = const { Cell::new(false) };
}

/// Gradients are summed up over ranks for the first time: on a GPU the kernels of the optimizer that follows are now loaded. Meanwhile PyTorch's
/// watchdog, which looks every 0.1 s, lets go of what the sums have kept; else that would still be there in the next step.
pub fn a_sum_began() {
    if !SUM_BEGAN.swap(true, Ordering::Relaxed) {
        let _ = ASKED_FOR_SUM.try_with(|asked| asked.set(true));
        HAS_TO_LOAD.store(true, Ordering::Release);
    }
}

/// The first kernel that another thread launches after the first sum takes as long as that.
fn load() {
    if HAS_TO_LOAD.load(Ordering::Acquire)
        && !ASKED_FOR_SUM.try_with(Cell::get).unwrap_or(true)
        && HAS_TO_LOAD.swap(false, Ordering::Relaxed)
    {
        std::thread::sleep(LOADING);
    }
}

/// Remembers what the calling thread launched last.
pub fn launched(function: usize) {
    load();
    let _ = AND_WAS_LAST.try_with(|last| last.set(ANDS.has(function)));
}

/// Whether the last kernel that the calling thread launched was `all()`. What it would say is not known; the host is told what it says of
/// nothing, `true`, as `any()` says `false`: checks that nothing is unusual (no packed sequences, all finite, equal) then find nothing unusual.
pub fn and_was_last() -> bool {
    AND_WAS_LAST.try_with(Cell::get).unwrap_or(false)
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
        assert!(!ANDS.has(1) && !ANDS.has(2));
        assert_eq!(nanoseconds(1_980_000), 1_000_000);
        assert_eq!(nanoseconds(-5), 0);
    }

    #[test]
    fn only_the_last_kernel_of_a_thread_counts() {
        register(11, b"_ZN2at6native13reduce_kernelI..8ReduceOpIb..15and_kernel_cudaERNS_14TensorIteratorE");
        launched(11);
        assert!(and_was_last());
        assert!(!std::thread::spawn(and_was_last).join().unwrap_or(true));
        launched(12);
        assert!(!and_was_last());
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
