//! Raw records → events: pools are folded into the record they belong to, a merged free becomes two events.

use super::closure::Closures;
use super::raw::{Kind, Record, flag};
use crate::event::{
    Addr, Block, Body, Bytes, DeviceId, Event, EventHandle, Fault, Nanos, Phase, PoolId, RuntimeOp,
    SegmentOp, StackId, StreamHandle, ThreadId, Totals,
};

/// What must be remembered from record to record, per ring.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    pools: Vec<Option<PoolId>>,
    closures: Closures,
    unknown: u64,
}

impl Fold {
    /// Records of a kind that this version does not know.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Appends what `r`, the next record of `ring`, says: no event, one, or two.
    #[inline]
    pub fn fold(&mut self, ring: u32, r: &Record, time: Nanos, thread: ThreadId, out: &mut Vec<Event>) {
        let Some(kind) = Kind::from_u8(r.kind) else {
            self.unknown += 1;
            return;
        };
        let phase = Phase::from_bits(r.phase);
        let pool = match r.flags & (flag::POOL | flag::DIRECT) {
            0 => PoolId::DEFAULT,
            flag::POOL => self.pool(ring),
            _ if phase.capture => PoolId::DIRECT_CAPTURED,
            _ => PoolId::DIRECT,
        };
        match kind {
            Kind::Alloc => {
                let b = block(r, pool, self.closures.alloc(phase, thread));
                out.push(Event { time, thread, body: Body::Alloc(b) });
            }
            Kind::FreeRequested => {
                let b = block(r, pool, self.closures.free(phase, thread));
                out.push(Event { time, thread, body: Body::FreeRequested(b) });
                if r.flags & flag::COMPLETED != 0 {
                    out.push(Event { time, thread, body: Body::FreeCompleted(b) });
                }
            }
            _ => {
                let body = self.other(kind, ring, r, pool, thread);
                out.extend(body.map(|body| Event { time, thread, body }));
            }
        }
    }

    /// What a record says that neither hands a block out nor asks for its free.
    fn other(&mut self, kind: Kind, ring: u32, r: &Record, pool: PoolId, thread: ThreadId) -> Option<Body> {
        let device = DeviceId(r.device);
        let (addr, size, stream) = (Addr(r.a), Bytes(r.b), StreamHandle(r.c));
        Some(match kind {
            Kind::Alloc | Kind::FreeRequested | Kind::Thread => return None,
            Kind::FreeCompleted => Body::FreeCompleted(block(r, pool, Phase::from_bits(r.phase))),
            Kind::SegmentAlloc | Kind::SegmentFree | Kind::SegmentMap | Kind::SegmentUnmap => {
                let op = match kind {
                    Kind::SegmentAlloc => SegmentOp::Alloc,
                    Kind::SegmentFree => SegmentOp::Free,
                    Kind::SegmentMap => SegmentOp::Map,
                    _ => SegmentOp::Unmap,
                };
                Body::Segment { op, device, addr, size, stream, pool }
            }
            Kind::Snapshot => Body::Snapshot { active: size },
            Kind::Oom => {
                let stack = StackId(r.stack);
                Body::Oom { device, requested: size, free: Bytes(r.a), stream, stack }
            }
            Kind::Pool => {
                self.set_pool(ring, PoolId(r.a, r.b));
                return None;
            }
            Kind::Report => {
                let by = r.b as i64;
                let rounded = Bytes(by.unsigned_abs());
                Body::Report { device, addr, rounded, allocated: by >= 0, totals: totals(r) }
            }
            Kind::Gap => Body::Gap { lost: r.a },
            Kind::Scope => Body::Scope { device, from: StreamHandle(r.a), to: StreamHandle(r.b) },
            Kind::StreamCreate => Body::StreamCreate { device, stream },
            Kind::StreamDestroy => Body::StreamDestroy(stream),
            Kind::EventRecord => Body::EventRecord { event: EventHandle(r.a), stream },
            Kind::EventDestroy => Body::EventDestroy(EventHandle(r.a)),
            Kind::StreamWait => Body::StreamWait { stream, event: EventHandle(r.a) },
            Kind::StreamDone => Body::StreamDone(stream),
            Kind::EventDone => Body::EventDone(EventHandle(r.a)),
            Kind::DeviceDone => Body::DeviceDone(device),
            Kind::FreeWaits => Body::FreeWaits { device, addr, stream },
            Kind::RecordStream => Body::RecordStream { addr, stream },
            Kind::CaptureBegin => Body::CaptureBegin(stream),
            Kind::CaptureEnd => Body::CaptureEnd(stream),
            Kind::OptimizerBegin | Kind::OptimizerEnd | Kind::BackwardBegin | Kind::BackwardEnd => {
                let nested = r.flags & flag::NESTED != 0;
                if !nested {
                    self.closures.mark(kind, r.b != 0, thread);
                }
                match kind {
                    Kind::OptimizerBegin => Body::OptimizerBegin(r.a),
                    Kind::OptimizerEnd => Body::OptimizerEnd(r.a),
                    Kind::BackwardBegin => Body::BackwardBegin { stack: StackId(r.stack), nested },
                    _ => Body::BackwardEnd { nested },
                }
            }
            Kind::ScalerUpdate => Body::ScalerUpdate,
            Kind::ManualStep => Body::ManualStep(r.a),
            Kind::Mark | Kind::NamedPhase => Body::Mark { name: r.a as u32, phase: kind == Kind::NamedPhase },
            Kind::Runtime => match RuntimeOp::from_number(r.stack) {
                Some(op) => {
                    let stack = StackId(r.rounded_seq as u32);
                    Body::Runtime { op, device, addr, size, stream, stack }
                }
                None => {
                    self.unknown += 1;
                    return None;
                }
            },
            Kind::Failed => Body::Failed(Fault {
                call: r.b as u32,
                status: r.a as u32,
                device,
                stream,
                stack: StackId(r.stack),
            }),
            Kind::MemInfo => Body::MemInfo { device, free: Bytes(r.a), total: size },
        })
    }

    fn pool(&mut self, ring: u32) -> PoolId {
        self.pools.get_mut(ring as usize).and_then(Option::take).unwrap_or_default()
    }

    fn set_pool(&mut self, ring: u32, pool: PoolId) {
        let i = ring as usize & 0xff;
        if i >= self.pools.len() {
            self.pools.resize(i + 1, None);
        }
        if let Some(p) = self.pools.get_mut(i) {
            *p = Some(pool);
        }
    }
}

#[inline]
fn totals(r: &Record) -> Totals {
    Totals { allocated: Bytes(r.allocated), reserved: Bytes(r.reserved) }
}

#[inline]
fn block(r: &Record, pool: PoolId, phase: Phase) -> Block {
    Block {
        device: DeviceId(r.device),
        addr: Addr(r.a),
        size: Bytes(r.b),
        rounded: Bytes(r.rounded()),
        stream: StreamHandle(r.c),
        pool,
        stack: StackId(r.stack),
        phase,
        totals: (r.flags & flag::REPORTED != 0).then(|| totals(r)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_free_is_two_events_and_a_pool_goes_to_the_next_record_of_its_ring() {
        let (mut f, mut out) = (Fold::default(), Vec::new());
        let flags = flag::COMPLETED | flag::REPORTED | flag::POOL;
        let free =
            Record { a: 512, kind: Kind::FreeRequested as u8, flags, allocated: 9, ..Record::default() };
        let pool = Record { a: 0, b: 5, kind: Kind::Pool as u8, ..Record::default() };
        let mut fold = |ring, r: &Record| f.fold(ring, r, Nanos(3), ThreadId(1), &mut out);
        fold(1, &pool);
        fold(2, &free);
        fold(1, &free);
        fold(1, &free);
        let pools: Vec<_> = out
            .iter()
            .map(|e| match e.body {
                Body::FreeRequested(b) => (0, b.pool, b.totals.map(|t| t.allocated)),
                Body::FreeCompleted(b) => (1, b.pool, b.totals.map(|t| t.allocated)),
                _ => panic!("{e:?}"),
            })
            .collect();
        let (none, some, nine) = (PoolId::DEFAULT, PoolId(0, 5), Some(Bytes(9)));
        let both = |p| [(0, p, nine), (1, p, nine)];
        assert_eq!(pools, [both(none), both(some), both(none)].concat());
    }

    #[test]
    fn every_kind_but_pool_and_thread_says_something() {
        for kind in (0..=255).filter_map(Kind::from_u8) {
            let (mut f, mut out) = (Fold::default(), Vec::new());
            f.fold(0, &Record { kind: kind as u8, ..Record::default() }, Nanos(0), ThreadId(0), &mut out);
            assert_eq!(out.is_empty(), matches!(kind, Kind::Pool | Kind::Thread), "{kind:?}");
            assert_eq!(f.unknown(), 0);
        }
        for n in 0..7 {
            assert_eq!(RuntimeOp::from_number(n).map(RuntimeOp::number), Some(n));
        }
        assert_eq!(RuntimeOp::from_number(7), None);
    }
}
