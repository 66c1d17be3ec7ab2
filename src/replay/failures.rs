//! What fails: the first call after which a device's context is broken, and allocations, those that PyTorch's allocator tells of, and those that CUDA itself refused a program.
//!
//! A call that CUDA refuses is no failure yet: PyTorch gives its cache back and asks again, a library does with less, a server
//! answers with an error and goes on. So it is kept as a question until the thread that asked is given something, or others
//! have long gone on; what is still open when the process ends, and does not end well, is what it ended of.

use super::device::{OOMS, OomEvent};
use super::failed::Failed;
use super::progress::PhaseKind;
use super::refused::{Asked, Refused};
use super::scene::Scene;
use super::site::UNKNOWN;
use super::state::Replay;
use crate::event::steps::StepSource;
use crate::event::{Bytes, DeviceId, Event, Fault, Nanos, Phase, ThreadId, total};

/// Threads whose refusals are kept at once.
const THREADS: usize = 64;
/// Refusals whose scene is copied; a program that asks again and again is not copied each time.
const SCENES: u32 = 1000;
/// When other threads have gone on for so long, the process did not end of it.
const GONE_ON: u64 = 10_000_000_000;
/// A process that ends so much later ended of something else, nanoseconds.
const FORGOTTEN: u64 = 600_000_000_000;

impl Replay {
    /// Only the first counts: from then on all calls fail.
    #[cold]
    pub(super) fn fails(&mut self, e: &Event, fault: Fault) {
        if self.failed.is_some() {
            return;
        }
        let stream = (fault.stream.0 != 0).then(|| self.streams.id(fault.device, fault.stream, e.time));
        self.failed = Some(Failed {
            fault,
            time: e.time,
            step: self.now.step,
            phase: self.phase(e.thread),
            stream,
            site: self.sites.of(fault.stack, false, UNKNOWN),
        });
    }

    fn failure(&mut self, e: &Event, a: Asked) -> (usize, OomEvent) {
        let d = self.touch(a.device);
        let stream = self.streams.id(a.device, a.stream, e.time);
        // A thread's phase is that of its last block, and an optimizer may have ended since.
        let phase = match self.phase(e.thread) {
            PhaseKind::Optimizer if self.sites.is_outside_optimizers(a.stack) => {
                PhaseKind::of(Phase::default(), self.trained)
            }
            phase => phase,
        };
        let site = self.sites.of(a.stack, false, UNKNOWN);
        let in_module = self.sites.is_in_module(a.stack);
        let allocs = self.allocs(a.device);
        let dev = &self.devices[d];
        let failure = OomEvent {
            time: e.time,
            event: self.events,
            step: self.now.step,
            phase,
            requested: a.requested,
            free: a.free,
            call: a.call,
            stream,
            stack: a.stack,
            site,
            in_module,
            allocated: dev.allocated,
            reserved: dev.reserved,
            pending: dev.pending,
            allocs,
        };
        (d, failure)
    }

    /// How many blocks have been allocated on a device.
    fn allocs(&self, device: DeviceId) -> u64 {
        total(self.cohorts().iter().filter(|c| c.key.device == device).map(|c| c.allocs))
    }

    /// Whether the job went on after an allocation that failed: more than one step has ended since, but for those that a clock
    /// ends, or it has allocated at least half as often again as in a step before it, in whatever step and on whatever thread. What unwinds
    /// allocates little, and may take its time.
    pub fn lived_on(&self, device: DeviceId, o: &OomEvent) -> bool {
        if o.step < self.steps() && self.step_source() != StepSource::Time {
            return true;
        }
        let since = self.allocs(device).saturating_sub(o.allocs);
        since.saturating_mul(2).saturating_mul(u64::from(o.step.max(1))) >= o.allocs.max(1)
    }

    /// PyTorch's allocator has given up.
    #[cold]
    pub(super) fn out_of_memory(&mut self, e: &Event, a: Asked) {
        // The calls that were refused on the way there are told with it.
        self.refused.retain(|r| r.thread != e.thread);
        let (d, failure) = self.failure(e, a);
        let dev = &mut self.devices[d];
        if dev.ooms.len() < OOMS {
            dev.ooms.push(failure);
            dev.picture(self.events, self.now, a.stream);
        }
    }

    /// CUDA has refused a call.
    #[cold]
    pub(super) fn refuse(&mut self, e: &Event, a: Asked) {
        // PyTorch says itself when it gives up.
        if a.requested.0 == 0 || self.calls.is_torchs(a.stack) {
            return;
        }
        let (device, failure) = self.failure(e, a);
        let known = self.refused.iter().position(|r| r.thread == e.thread);
        let scene = match known.map(|at| self.refused.remove(at)).and_then(|r| r.scene) {
            // Nothing was handed out to this thread since.
            Some(scene) => Some(Scene { event: self.events, ..scene }),
            None if self.scenes < SCENES => {
                self.scenes += 1;
                Some(self.devices[device].scene_of(self.events, self.now, a.stream))
            }
            None => None,
        };
        if self.refused.len() == THREADS {
            self.refused.remove(0);
        }
        self.refused.push(Refused { failure, thread: e.thread, device, scene, others: false });
    }

    /// A thread was given memory: it did not end of what it was refused.
    #[cold]
    pub(super) fn goes_on(&mut self, thread: ThreadId, time: Nanos) {
        self.refused.retain_mut(|r| {
            r.others |= r.thread != thread;
            r.thread != thread && time.0.saturating_sub(r.failure.time.0) < GONE_ON
        });
    }

    /// The program was told what is free: the first time after a refusal, and before anything is freed, that is what it was refused with.
    #[inline]
    pub(super) fn told_free(&mut self, thread: ThreadId, device: DeviceId, free: Bytes) {
        for r in &mut self.refused {
            let held = self.devices.get(r.device).map_or(Bytes(0), |d| d.allocated);
            if r.thread == thread && r.device == usize::from(device.0) && held >= r.failure.allocated {
                r.failure.free.get_or_insert(free);
            }
        }
    }

    /// The process has ended, and not well. `alone`: how it ended is not known, so that a refusal counts only where nobody was
    /// given memory after it. To be called before [`Replay::finish`].
    pub fn died(&mut self, alone: bool) {
        let end = self.time.0;
        let recent = |r: &Refused| end.saturating_sub(r.failure.time.0) < FORGOTTEN;
        for r in std::mem::take(&mut self.refused).into_iter().filter(recent) {
            let Some(dev) = self.devices.get_mut(r.device).filter(|d| d.ooms.len() < OOMS) else { continue };
            if !(alone && r.others) {
                dev.ooms.push(OomEvent { step: r.failure.step.min(self.now.step), ..r.failure });
                dev.scene = r.scene;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Addr, Block, Body, Item, Names, RuntimeOp, StackId, StreamHandle};
    use serde_json::json;

    const GIB: u64 = 1 << 30;

    fn say(r: &mut Replay, seconds: u64, thread: u16, body: Body) {
        let event = Event { time: Nanos(seconds * 1_000_000_000), thread: ThreadId(thread), body };
        r.apply(&Item::Event(event), &Names::default());
    }

    fn refused(size: u64) -> Body {
        let (op, device, stream, stack) = (RuntimeOp::Malloc, DeviceId(0), StreamHandle(0), StackId(0));
        Body::Runtime { op, device, addr: Addr(0), size: Bytes(size), stream, stack }
    }

    fn given(addr: u64) -> Body {
        Body::Alloc(Block { addr: Addr(addr), size: Bytes(512), ..Block::default() })
    }

    /// A process that holds a block, and is refused 8 GiB in its fifth second; what follows; its end.
    fn fails(then: &[(u64, u16, Body)], status: u8) -> Vec<OomEvent> {
        let mut r = Replay::new();
        say(&mut r, 1, 0, given(512));
        say(&mut r, 5, 0, refused(8 * GIB));
        then.iter().for_each(|(seconds, thread, body)| say(&mut r, *seconds, *thread, *body));
        r.apply(&Item::Meta(json!({ "exit_status": status })), &Names::default());
        r.apply(&Item::End(Nanos(60_000_000_000)), &Names::default());
        r.device(DeviceId(0)).map(|d| d.ooms.clone()).unwrap_or_default()
    }

    #[test]
    fn what_a_process_ended_of_is_a_failure() {
        let info = Body::MemInfo { device: DeviceId(0), free: Bytes(GIB), total: Bytes(4 * GIB) };
        let all = fails(&[(5, 0, info)], 1);
        assert_eq!(all.len(), 1);
        let told = (all[0].requested, all[0].free, all[0].allocated, all[0].call);
        assert_eq!(told, (Bytes(8 * GIB), Some(Bytes(GIB)), Bytes(512), Some(RuntimeOp::Malloc)));
        // What is free when the program has given back what it held is not what it was refused with.
        let back = Body::FreeRequested(Block { addr: Addr(512), size: Bytes(512), ..Block::default() });
        assert_eq!(fails(&[(5, 0, back), (5, 0, info)], 1)[0].free, None);
        let later = Body::MemInfo { device: DeviceId(0), free: Bytes(9 * GIB), total: Bytes(9 * GIB) };
        assert_eq!(fails(&[(5, 0, info), (6, 0, later)], 1)[0].free, Some(Bytes(GIB)));
        assert_eq!(fails(&[(6, 1, given(1024))], 1).len(), 1, "another thread had not heard of it yet");
        assert_eq!(
            fails(&[(5, 0, refused(4 * GIB))], 1)[0].requested,
            Bytes(4 * GIB),
            "asked for less in vain"
        );
    }

    #[test]
    fn what_a_process_lived_on_from_is_none() {
        assert_eq!(fails(&[], 0), [], "it ended well");
        assert_eq!(fails(&[(5, 0, given(1024))], 1), [], "the thread did with less");
        assert_eq!(fails(&[(16, 1, given(1024))], 1), [], "others went on");
        let info = Body::MemInfo { device: DeviceId(0), free: Bytes(GIB), total: Bytes(4 * GIB) };
        assert_eq!(fails(&[(700, 1, info)], 1), [], "it went on without");
        let less = Body::Runtime {
            op: RuntimeOp::MallocAsync,
            device: DeviceId(0),
            addr: Addr(4096),
            size: Bytes(GIB),
            stream: StreamHandle(0),
            stack: StackId(0),
        };
        assert_eq!(fails(&[(5, 0, less)], 1), [], "a pool did with less");
    }

    #[test]
    fn of_an_end_that_nobody_told_only_the_last_thing_counts() {
        for (others, expected) in [(false, 1), (true, 0)] {
            let mut r = Replay::new();
            say(&mut r, 1, 0, refused(GIB));
            if others {
                say(&mut r, 2, 1, given(1024));
            }
            r.died(true);
            assert_eq!(r.device(DeviceId(0)).map_or(0, |d| d.ooms.len()), expected);
        }
    }

    #[test]
    fn what_pytorch_tells_of_is_told_once() {
        let (device, requested, free) = (DeviceId(0), Bytes(GIB), Bytes(0));
        let oom = Body::Oom { device, requested, free, stream: StreamHandle(0), stack: StackId(0) };
        let all = fails(&[(5, 0, oom)], 1);
        assert_eq!((all.len(), all[0].call), (1, None));
    }
}
