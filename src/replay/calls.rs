//! Memory that CUDA handed out beside the blocks and segments of PyTorch's allocator: pinned memory of the host, managed memory,
//! and what other libraries took for themselves.

use super::cohort::{Cohort, CohortId, CohortKey, Cohorts, Now, Origin, Size};
use crate::event::{Bytes, DeviceId, HeldCall, Names, RuntimeOp, SiteId, StackId, ThreadId, is_of_python};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// PyTorch's allocator asks CUDA for its segments from here: they are counted as such.
const TORCHS: &str = "libc10_cuda.so";

/// Calls C functions for Python: who asked is the Python code that called through it.
const FFI: &str = "libffi.so";

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
    /// Device memory by the library that called, or by the Python code that called through libffi, in order of first appearance. Memory
    /// whose caller is not known is in none.
    pub libraries: Vec<(String, Amount)>,
    live: FxHashMap<u64, Held>,
    /// Pinned memory, by power of two and line: what PyTorch keeps of it serves requests of the same power alone.
    lines: BTreeMap<u32, Cohorts>,
    /// Device memory of libraries, by device and line.
    of_libraries: Cohorts,
    /// Steps that have ended.
    steps: u32,
    modules: FxHashMap<StackId, String>,
}

/// Memory that is held.
#[derive(Clone, Copy, Debug)]
struct Held {
    size: u64,
    whose: Whose,
    device: DeviceId,
    /// Of pinned memory and a library's: the line that asked for it, and in which step (from 1). `None` where a checkpoint or a loss hides it.
    line: Option<(CohortId, u32)>,
}

/// The Python code that a stack leads to: an installed package, or the line of a script (`train.py:12`).
fn python_caller(stack: StackId, names: &Names) -> Option<String> {
    let frame = names.frames(stack).find(|f| !is_of_python(&f.file))?;
    let first = |rest: &str| rest.split('/').next().unwrap_or_default().trim_end_matches(".py").to_owned();
    let package = frame.file.rsplit_once("-packages/").map(|(_, rest)| first(rest));
    package.or_else(|| Some(format!("{}:{}", frame.file.rsplit('/').next()?, frame.line)))
}

/// Sizes up to 2 to this power.
fn power(size: u64) -> u32 {
    u64::BITS - size.saturating_sub(1).leading_zeros()
}

impl Calls {
    /// Notes which library a stack returns to, where it tells; of libffi, for whom.
    pub(super) fn learn(&mut self, stack: StackId, names: &Names) {
        if let Some(frame) = names.native(stack).first()
            && let Some(name) = frame.module.rsplit('/').next().filter(|n| !n.is_empty())
        {
            let python = name.starts_with(FFI).then(|| python_caller(stack, names)).flatten();
            let caller = python.map(|by| format!("{by} through {name} (ctypes or cffi)"));
            self.modules.insert(stack, caller.unwrap_or_else(|| name.to_owned()));
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

    /// Pinned memory by the line that asked for it, as of the last step's end. What was there before the recording, a checkpoint or a
    /// loss is in none.
    pub fn pinned_lines(&self) -> impl Iterator<Item = &Cohort> {
        self.lines.values().flat_map(|lines| &lines.list)
    }

    /// Device memory that libraries took for themselves, by the line that led to it, as of the last step's end. What was there before the
    /// recording, a checkpoint or a loss is in none.
    pub fn library_lines(&self) -> impl Iterator<Item = &Cohort> {
        self.of_libraries.list.iter()
    }

    /// All lines of some memory.
    fn lines_of(&mut self, h: &Held) -> &mut Cohorts {
        match h.whose {
            Whose::Library(_) => &mut self.of_libraries,
            _ => self.lines.entry(power(h.size)).or_default(),
        }
    }

    /// All lines.
    fn all_lines(&mut self) -> impl Iterator<Item = &mut Cohorts> {
        self.lines.values_mut().chain([&mut self.of_libraries])
    }

    /// Step `n` ends.
    pub(super) fn mark(&mut self, n: u32) {
        // Steps that were not seen: nobody knows in which of them what is held was asked for.
        if n != self.steps.saturating_add(1) {
            self.forget_lines();
        }
        self.all_lines().for_each(|lines| lines.mark_step(n));
        self.steps = n;
    }

    /// Steps from `n` on were parts of step `n`, which is about to end.
    pub(super) fn merge_steps_from(&mut self, n: u32) {
        self.all_lines().for_each(|lines| lines.forget_steps(n));
        let mut live = std::mem::take(&mut self.live);
        for h in live.values_mut() {
            if let Some((line, born)) = &mut h.line {
                *born = n.min(*born);
                let (line, born) = (*line, *born);
                self.lines_of(h).put_back_step(line, h.size, born, n);
            }
        }
        (self.live, self.steps) = (live, n.saturating_sub(1));
    }

    /// Of what is held now, nobody knows whether it was given back.
    pub(super) fn forget_lines(&mut self) {
        self.lines.clear();
        self.of_libraries = Cohorts::default();
        self.live.values_mut().for_each(|h| h.line = None);
    }

    /// Only this is held: a checkpoint says so. What there was at most stays.
    pub(super) fn restart(&mut self, held: &[HeldCall]) {
        self.live.clear();
        self.forget_lines();
        let libraries = self.libraries.iter_mut().map(|l| &mut l.1);
        [&mut self.pinned, &mut self.managed].into_iter().chain(libraries).for_each(|a| a.now = Bytes(0));
        for h in held {
            self.apply(h.op, h.device, h.addr.0, h.size.0, h.stack, None);
        }
    }

    /// Whether a line is asked for what such a call from there takes: of pinned memory, and of a library's.
    pub(super) fn has_line(&self, op: RuntimeOp, stack: StackId) -> bool {
        let of_library = || self.modules.get(&stack).is_some_and(|n| n != TORCHS);
        match op {
            RuntimeOp::HostAlloc => true,
            RuntimeOp::Malloc | RuntimeOp::MallocAsync => of_library(),
            _ => false,
        }
    }

    /// A call that was recorded; `site`: the line of it, where it has one ([`Calls::has_line`]).
    pub(super) fn apply(
        &mut self,
        op: RuntimeOp,
        device: DeviceId,
        addr: u64,
        size: u64,
        stack: StackId,
        site: Option<SiteId>,
    ) {
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
                    self.goes(h, Some(false));
                }
                return;
            }
        };
        let (mut held, now) = (Held { size, whose, device, line: None }, self.now());
        held.line = site.map(|site| {
            // Pinned memory is of no device.
            let device = if matches!(whose, Whose::Library(_)) { device } else { DeviceId::default() };
            let lines = self.lines_of(&held);
            let line = lines.id(CohortKey { device, site, ..CohortKey::default() }, false);
            lines.born(line, Size::exact(size), (ThreadId::default(), now), false);
            (line, now.step)
        });
        if let Some(h) = self.live.insert(addr, held) {
            self.goes(h, None); // its end was lost
        }
        self.moves(whose, size, true);
    }

    fn now(&self) -> Now {
        Now { step: self.steps.saturating_add(1), microbatch: 0 }
    }

    /// Memory is held no more; `freed` as of [`Cohorts::gone`].
    fn goes(&mut self, h: Held, freed: Option<bool>) {
        self.moves(h.whose, h.size, false);
        if let Some((line, step)) = h.line {
            let (born, now) = (Origin { step, ..Origin::default() }, self.now());
            self.lines_of(&h).gone(line, Size::exact(h.size), born, now, freed);
        }
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
    use crate::event::{Addr, Frame, NativeFrame};

    #[test]
    fn what_calls_through_libffi_has_the_name_of_the_python_code() {
        let (mut names, mut calls) = (Names::default(), Calls::default());
        let files = ["/job/train.py", "/v/lib/python3.12/site-packages/numba/cuda/driver.py", ""];
        for (id, file) in (1..).zip(files) {
            let module = "/usr/lib/libffi.so.8".into();
            names.add_native(StackId(id), vec![NativeFrame { module, ..NativeFrame::default() }]);
            let frame = |file: &str| Frame { file: file.into(), line: 7, ..Frame::default() };
            let ctypes = frame("/usr/lib/python3.12/ctypes/__init__.py");
            let stack = (!file.is_empty()).then(|| [ctypes, frame(file)]);
            names.add_stack(StackId(id), stack.into_iter().flatten());
            calls.learn(StackId(id), &names);
            calls.apply(RuntimeOp::Malloc, DeviceId(0), id.into(), 1, StackId(id), None);
        }
        let callers: Vec<&str> = calls.libraries.iter().map(|(name, _)| &**name).collect();
        let through = "through libffi.so.8 (ctypes or cffi)";
        assert_eq!(callers, [&format!("train.py:7 {through}"), &format!("numba {through}"), "libffi.so.8"]);
    }

    #[test]
    fn each_kind_and_library_has_its_own_sum() {
        let (mut names, mut calls) = (Names::default(), Calls::default());
        for (id, module) in [(1, "/x/libnccl.so.2"), (2, "/x/libc10_cuda.so")] {
            let frame = NativeFrame { module: module.into(), ..NativeFrame::default() };
            names.add_native(StackId(id), vec![frame]);
            calls.learn(StackId(id), &names);
        }
        calls.apply(RuntimeOp::Malloc, DeviceId(1), 8, 100, StackId(1), None);
        calls.apply(RuntimeOp::Malloc, DeviceId(1), 9, 7, StackId(2), None);
        calls.apply(RuntimeOp::HostAlloc, DeviceId(1), 10, 50, StackId(1), None);
        calls.apply(RuntimeOp::MallocManaged, DeviceId(1), 11, 20, StackId(0), None);
        calls.apply(RuntimeOp::HostFree, DeviceId(1), 10, 0, StackId(0), None);
        calls.apply(RuntimeOp::HostAlloc, DeviceId(1), 10, 30, StackId(0), None);
        calls.apply(RuntimeOp::Free, DeviceId(1), 11, 0, StackId(0), None);
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

    #[test]
    fn pinned_memory_is_told_by_line_and_by_the_step_it_is_from() {
        let mut calls = Calls::default();
        let pin = |calls: &mut Calls, addr| {
            calls.apply(RuntimeOp::HostAlloc, DeviceId(0), addr, 3000, StackId(0), Some(SiteId(7)));
        };
        let births = |calls: &Calls| -> Vec<(SiteId, Vec<u32>)> {
            let of = |c: &Cohort| (c.key.site, c.steps.births.list().iter().map(|b| b.first).collect());
            calls.pinned_lines().map(of).collect()
        };
        for step in 1..=5 {
            pin(&mut calls, u64::from(step));
            calls.mark(step);
        }
        assert_eq!(births(&calls), [(SiteId(7), vec![1, 2, 3, 4])], "what is from the last step is young");
        calls.apply(RuntimeOp::HostFree, DeviceId(0), 2, 0, StackId(0), None);
        calls.mark(6);
        assert_eq!(births(&calls), [(SiteId(7), vec![1, 3, 4, 5])]);
        calls.merge_steps_from(4);
        calls.mark(4);
        assert_eq!(births(&calls), [(SiteId(7), vec![1, 3])], "steps 4 to 6 were one");
        calls.mark(5);
        assert_eq!(births(&calls), [(SiteId(7), vec![1, 3, 4])]);
        // Another power of two is another line.
        calls.apply(RuntimeOp::HostAlloc, DeviceId(0), 90, 4097, StackId(0), Some(SiteId(7)));
        assert_eq!(births(&calls).len(), 2);
        calls.mark(9);
        assert_eq!(births(&calls), [], "steps were not seen");
        pin(&mut calls, 91);
        calls.restart(&[]);
        assert_eq!((births(&calls), calls.pinned.now), (vec![], Bytes(0)));
    }
}
