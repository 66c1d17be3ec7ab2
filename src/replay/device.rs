//! One device: what is allocated, reserved, pending; peaks; one row per step.

use super::cohort::Now;
use super::private_pools::{PrivatePool, PrivatePools};
use super::progress::PhaseKind;
use super::scene::Scene;
use super::table::Table;
use crate::event::{
    Bytes, DeviceId, DriverMemory, Nanos, RuntimeOp, Segments, SiteId, StackId, StepRow, StreamHandle,
    StreamId, Totals,
};

/// The moment at which a device held most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// How much.
    pub bytes: Bytes,
    /// When.
    pub time: Nanos,
    /// In which step (from 1: the one that ran).
    pub step: u32,
    /// Doing what.
    pub phase: PhaseKind,
    /// Number of the event (from 0, over all events of the recording) that reached it.
    pub event: u64,
}

/// An allocation that failed for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OomEvent {
    /// When.
    pub time: Nanos,
    /// Number of the event (from 0).
    pub event: u64,
    /// In which step (the one that ran, from 1).
    pub step: u32,
    /// Doing what (from the last allocator event of the thread).
    pub phase: PhaseKind,
    /// What was asked for.
    pub requested: Bytes,
    /// What the driver called free; `None` where nobody asked.
    pub free: Option<Bytes>,
    /// The call that CUDA refused; `None` where PyTorch's allocator told of it.
    pub call: Option<RuntimeOp>,
    /// Which stream asked.
    pub stream: StreamId,
    /// Who asked.
    pub stack: StackId,
    /// The line of it.
    pub site: SiteId,
    /// While a module of PyTorch's was called, as in a forward.
    pub in_module: bool,
    /// Allocated then.
    pub allocated: Bytes,
    /// Reserved then.
    pub reserved: Bytes,
    /// Pending then.
    pub pending: Bytes,
    /// How many blocks had been allocated on the device by then.
    pub allocs: u64,
}

impl OomEvent {
    /// What PyTorch's native allocator asks the driver for to serve the request, and says in its message: 2 MiB for what has up to
    /// 1 MiB, 20 MiB below 10 MiB, else whole pieces of 2 MiB.
    pub fn tried(&self) -> Bytes {
        const MIB: u64 = 1 << 20;
        match self.requested.0 {
            n if n <= MIB => Bytes(2 * MIB),
            n if n < 10 * MIB => Bytes(20 * MIB),
            n => Bytes(n.div_ceil(2 * MIB).saturating_mul(2 * MIB)),
        }
    }
}

/// Freed blocks that wait for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingWait {
    /// The stream they wait for; `None` where it was not seen.
    pub stream: Option<StreamId>,
    /// How many.
    pub blocks: u64,
    /// Rounded sizes.
    pub bytes: Bytes,
}

/// How large the device is and what of it others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Total bytes as the driver counts them.
    pub total: Bytes,
    /// Total less free less what this process had reserved, when it was read: context, libraries, other
    /// processes.
    pub others: Bytes,
    /// Who said it: `driver` (a reading of the watcher), `program` (its own query), `oom` (the failing
    /// allocation), `properties` (the recording's facts: the size alone, `others` is not known and 0).
    pub source: &'static str,
}

/// A device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// CUDA ordinal.
    pub id: DeviceId,
    /// Allocated now (rounded sizes, as torch's `allocated_bytes.all.current`).
    pub allocated: Bytes,
    /// Reserved now.
    pub reserved: Bytes,
    /// Freed, but not reusable yet.
    pub pending: Bytes,
    /// Live blocks now.
    pub blocks: u64,
    /// Allocated before the recording began and not freed since (known from torch's totals).
    pub before_recording: Bytes,
    /// There was such memory at some time.
    pub had_from_before: bool,
    /// Blocks that were open across a loss, and may be gone.
    pub unverified_blocks: u64,
    /// Their rounded sizes.
    pub unverified: Bytes,
    /// Largest difference ever between our own totals and torch's.
    pub accounting_drift: Bytes,
    /// Events at which torch's totals were known and compared.
    pub compared: u64,
    /// Highest `allocated`.
    pub peak_allocated: Peak,
    /// Highest `reserved`.
    pub peak_reserved: Peak,
    /// One row per step that has ended; of very long runs neighbours are merged (the later row, the higher
    /// peak).
    pub rows: Vec<StepRow>,
    /// Out of memory, in order; the first 1,000.
    pub ooms: Vec<OomEvent>,
    /// What it looked like when the last of them failed (of many in one step, when the first of those beyond 64 did).
    pub scene: Option<Scene>,
    /// Bytes of segments that torch gave back to the driver in each of the last steps, oldest first.
    pub given_back: [Bytes; 8],
    /// Size of the device, where something told.
    pub capacity: Option<Capacity>,
    /// The last reading of the watcher.
    pub driver: Option<DriverMemory>,
    /// Allocated through the CUDA runtime by whoever called it, torch's segments included.
    pub runtime: Bytes,
    /// Highest `allocated` since the last step ended.
    pub(super) step_peak: u64,
    /// Of `reserved`, what came since the last block did: the block that it was got for comes next.
    pub(super) unused: u64,
    /// Given back to the driver since the last step ended.
    pub(super) step_given_back: u64,
    /// What blocks of no cache hold ([`crate::event::PoolId::is_direct`]): they are in `allocated` and `reserved`, and in
    /// no total of torch's.
    pub(super) direct: u64,
    /// How many of them came and went; and by when the last step ended.
    direct_calls: [[u64; 2]; 2],
    pub(super) table: Table,
    pub(super) segments: Segments,
    pub(super) private_pools: PrivatePools,
    pub(super) waits: Vec<PendingWait>,
    /// torch's totals less what our blocks and segments sum to: what was there before, or what a loss hid.
    outside: [i64; 2],
    /// The next totals are taken over, not compared: nothing is known yet, or events were lost.
    trust: Trust,
    seen: bool,
}

/// Whether torch's totals have been taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// Not yet.
    #[default]
    Take,
    /// From the first event on: what is outside was there before the recording.
    Compare,
}

/// Rows that are kept before neighbours are merged.
const ROWS: usize = 1 << 13;
/// Failures that are each copied.
const PICTURES: usize = 64;
/// Out-of-memory events that are kept.
pub(super) const OOMS: usize = 1000;

/// Sizes of real memory fit; others are cut.
fn signed(bytes: u64) -> i64 {
    bytes.min(i64::MAX as u64) as i64
}

impl Device {
    /// Something happened on this device.
    pub(super) fn is_seen(&self) -> bool {
        self.seen
    }
    pub(super) fn note(&mut self, id: DeviceId) {
        (self.id, self.seen) = (id, true);
    }

    /// Forgets what totals are known to mean: records were lost.
    pub(super) fn distrust(&mut self) {
        self.trust = Trust::Take;
        self.private_pools.lost();
    }

    /// Compares torch's totals after an event with our own, or takes them over.
    #[inline]
    pub(super) fn compare(&mut self, t: Totals) {
        self.compared += 1;
        let own = [self.allocated, self.reserved].map(|total| total.0.saturating_sub(self.direct));
        if own == [t.allocated.0, t.reserved.0] && self.trust == Trust::Compare {
            return;
        }
        let off = [t.allocated.0.wrapping_sub(own[0]) as i64, t.reserved.0.wrapping_sub(own[1]) as i64];
        if self.trust == Trust::Take {
            self.trust = Trust::Compare;
            self.outside[0] = self.outside[0].saturating_add(off[0]);
            self.outside[1] = self.outside[1].saturating_add(off[1]);
            let with_direct = |total: Bytes| Bytes(total.0.saturating_add(self.direct));
            (self.allocated, self.reserved) = (with_direct(t.allocated), with_direct(t.reserved));
            self.see_outside();
            return;
        }
        let worst = off[0].unsigned_abs().max(off[1].unsigned_abs());
        self.accounting_drift = self.accounting_drift.max(Bytes(worst));
    }

    /// What is allocated outside of the recording's blocks has become more or less.
    fn see_outside(&mut self) {
        self.before_recording = Bytes(self.outside[0].max(0) as u64);
        self.had_from_before |= self.before_recording.0 > 0;
    }

    /// A block comes from no cache, or goes back to none: what it holds is reserved for it alone.
    pub(super) fn direct(&mut self, rounded: u64, comes: bool) {
        let moved =
            |total: u64| if comes { total.saturating_add(rounded) } else { total.saturating_sub(rounded) };
        (self.direct, self.reserved.0) = (moved(self.direct), moved(self.reserved.0));
        self.direct_calls[0][usize::from(!comes)] += 1;
    }

    /// Blocks that CUDA itself had handed out, and those that it had been given back, when the last step ended.
    pub fn calls_at_mark(&self) -> [u64; 2] {
        self.direct_calls[1]
    }

    /// A block that was there before us was freed. False where there cannot have been one.
    pub(super) fn free_outside(&mut self, rounded: u64) -> bool {
        let known = self.trust == Trust::Take || self.outside[0] >= signed(rounded);
        self.outside[0] = self.outside[0].saturating_sub(signed(rounded));
        self.allocated.0 = self.allocated.0.saturating_sub(rounded);
        self.see_outside();
        known
    }

    /// A segment that was there before us was given back. False where there cannot have been one.
    pub(super) fn segment_outside(&mut self, size: u64) -> bool {
        let known = self.trust == Trust::Take || self.outside[1] >= signed(size);
        if known {
            self.outside[1] = self.outside[1].saturating_sub(signed(size));
        }
        known
    }

    /// A block we held turned out to be gone since a loss: torch's total has been without it since.
    pub(super) fn was_gone(&mut self, rounded: u64) {
        self.outside[0] = self.outside[0].saturating_add(signed(rounded));
        self.see_outside();
    }

    /// A freed block begins to wait for a stream.
    pub(super) fn wait_begins(&mut self, stream: Option<StreamId>, bytes: u64) {
        let w = self.waiting(stream);
        w.blocks += 1;
        w.bytes.0 = w.bytes.0.saturating_add(bytes);
    }

    /// It waits no more.
    pub(super) fn wait_ends(&mut self, stream: Option<StreamId>, bytes: u64) {
        let w = self.waiting(stream);
        w.blocks = w.blocks.saturating_sub(1);
        w.bytes.0 = w.bytes.0.saturating_sub(bytes);
    }

    fn waiting(&mut self, stream: Option<StreamId>) -> &mut PendingWait {
        let at = self.waits.iter().position(|w| w.stream == stream).unwrap_or_else(|| {
            self.waits.push(PendingWait { stream, blocks: 0, bytes: Bytes(0) });
            self.waits.len() - 1
        });
        &mut self.waits[at]
    }

    /// What it looks like now, when failure `event` of an allocation for `stream` has happened.
    pub(super) fn scene_of(&self, event: u64, now: Now, stream: StreamHandle) -> Scene {
        let scene = Scene::of(&self.table, &self.segments, event, now, stream);
        Scene { before_recording: self.before_recording, ..scene }
    }

    /// Copies what it looks like at a failure. A job that fails again and again within a step is not copied each time.
    #[cold]
    pub(super) fn picture(&mut self, event: u64, now: Now, stream: StreamHandle) {
        let steps = self.ooms.len().checked_sub(2).map(|i| self.ooms[i].step);
        if self.ooms.len() <= PICTURES || steps != Some(now.step) {
            self.scene = Some(self.scene_of(event, now, stream));
        }
    }

    /// A segment comes from the driver; `for_block`: for a block that is recorded next.
    pub(super) fn takes(&mut self, size: Bytes, for_block: bool) {
        self.reserved.0 = self.reserved.0.saturating_add(size.0);
        self.unused = if for_block { self.unused.saturating_add(size.0) } else { 0 };
    }

    /// Appends the row of a step that ends now. A step ends with the first allocation of the next one, whose segment is there already.
    pub(super) fn end_step(&mut self, step: u32, time: Nanos) {
        let row = StepRow {
            step,
            time,
            allocated: self.allocated,
            reserved: Bytes(self.reserved.0.saturating_sub(self.unused)),
            pending: self.pending,
            peak: Bytes(self.step_peak),
            blocks: self.blocks.min(u64::from(u32::MAX)) as u32,
        };
        self.rows.push(row);
        self.direct_calls[1] = self.direct_calls[0];
        self.given_back.rotate_left(1);
        self.given_back[7] = Bytes(std::mem::take(&mut self.step_given_back));
        self.step_peak = self.allocated.0;
        if self.rows.len() >= ROWS {
            StepRow::thin(&mut self.rows);
        }
    }

    /// Takes back the rows from `step` on: they were parts of a step that still runs.
    pub(super) fn merge_steps_from(&mut self, step: u32) {
        while let Some(r) = self.rows.pop_if(|r| r.step >= step) {
            self.step_peak = self.step_peak.max(r.peak.0);
        }
        for s in [&mut self.peak_allocated.step, &mut self.peak_reserved.step] {
            *s = (*s).min(step);
        }
        self.ooms.iter_mut().for_each(|o| o.step = o.step.min(step));
        self.private_pools.merge_steps_from(step);
    }

    /// Its private pools that had memory when the last step ended, in no order.
    pub fn private_pools(&self) -> &[PrivatePool] {
        self.private_pools.at_mark()
    }
}
