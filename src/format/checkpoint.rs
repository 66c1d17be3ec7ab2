//! A Checkpoint page: `event::Checkpoint` as varints; zstd does the rest.

use super::fold::{runtime_number, runtime_op};
use super::wire::{Cursor, Malformed, put, put_bytes, put_signed};
use crate::event::{
    Addr, Block, Bytes, Checkpoint, DeviceId, DeviceTotals, HeldCall, LiveBlock, Nanos, OpenSegment, Phase,
    PoolId, StackId, StepRow, StreamHandle, Totals,
};

const PENDING: u8 = 1;
const UNVERIFIED: u8 = 2;
const TOTALS: u8 = 4;
const VERSION: u64 = 1;

/// As a payload.
pub fn encode(c: &Checkpoint) -> Vec<u8> {
    let mut b = Vec::with_capacity(256 + c.blocks.len() * 24 + c.rows.len() * 32);
    let counts = [VERSION, c.time.0, u64::from(c.steps), u64::from(c.microbatches), c.events, c.lost];
    counts.into_iter().for_each(|n| put(&mut b, n));
    put_bytes(&mut b, &c.step_machine);
    put(&mut b, c.blocks.len() as u64);
    let mut addr = 0;
    for l in &c.blocks {
        put_block(&mut b, l, addr);
        addr = l.block.addr.0;
    }
    put(&mut b, c.segments.len() as u64);
    for s in &c.segments {
        b.extend_from_slice(&[s.device.0, u8::from(s.expandable)]);
        [s.addr.0, s.size.0, s.stream.0, s.pool.0, s.pool.1].into_iter().for_each(|n| put(&mut b, n));
    }
    put(&mut b, c.devices.len() as u64);
    for d in &c.devices {
        b.push(d.device.0);
        let step = u64::from(d.peak_step);
        let all = [d.allocated.0, d.reserved.0, d.pending.0, d.peak_allocated.0, d.peak_time.0, step];
        all.into_iter().chain([d.peak_reserved.0, d.drift.0]).for_each(|n| put(&mut b, n));
    }
    put(&mut b, c.rows.len() as u64);
    for (device, r) in &c.rows {
        b.push(device.0);
        let (step, blocks) = (u64::from(r.step), u64::from(r.blocks));
        let all = [step, r.time.0, r.allocated.0, r.reserved.0, r.pending.0, r.peak.0, blocks];
        all.into_iter().for_each(|n| put(&mut b, n));
    }
    put(&mut b, c.streams.len() as u64);
    for (device, s) in &c.streams {
        b.push(device.0);
        put(&mut b, s.0);
    }
    // Came later: who does not know it stops before it.
    if let Some(calls) = &c.calls {
        put(&mut b, calls.len() as u64);
        for h in calls {
            b.push(h.device.0);
            let (op, stack) = (u64::from(runtime_number(h.op)), u64::from(h.stack.0));
            [op, h.addr.0, h.size.0, stack].into_iter().for_each(|n| put(&mut b, n));
        }
    }
    b
}

fn put_block(b: &mut Vec<u8>, l: &LiveBlock, addr_before: u64) {
    let k = &l.block;
    let bit = |is: bool, bit: u8| if is { bit } else { 0 };
    let flags = bit(l.pending, PENDING) | bit(l.unverified, UNVERIFIED) | bit(k.totals.is_some(), TOTALS);
    b.extend_from_slice(&[k.device.0, flags, k.phase.to_bits()]);
    put_signed(b, k.addr.0.wrapping_sub(addr_before) as i64);
    let (step, micro) = (u64::from(l.step), u64::from(l.microbatch));
    let all = [k.size.0, k.rounded.0, k.stream.0, k.pool.0, k.pool.1, u64::from(k.stack.0), l.born.0];
    all.into_iter().chain([step, micro]).for_each(|n| put(b, n));
    if let Some(t) = k.totals {
        put(b, t.allocated.0);
        put(b, t.reserved.0);
    }
}

/// Out of a payload.
///
/// # Errors
/// [`Malformed`].
pub fn decode(b: &[u8]) -> Result<Checkpoint, Malformed> {
    let mut c = Cursor::new(b);
    if c.number("version")? != VERSION {
        return Err(c.bad("checkpoint version"));
    }
    let mut out = Checkpoint {
        time: Nanos(c.number("time")?),
        steps: c.number32("steps")?,
        microbatches: c.number32("microbatches")?,
        events: c.number("events")?,
        lost: c.number("lost")?,
        step_machine: c.bytes("step machine")?.to_vec(),
        ..Checkpoint::default()
    };
    let mut addr = 0;
    for _ in 0..c.count("blocks")? {
        let l = block(&mut c, addr)?;
        addr = l.block.addr.0;
        out.blocks.push(l);
    }
    for _ in 0..c.count("segments")? {
        out.segments.push(OpenSegment {
            device: DeviceId(c.byte("device")?),
            expandable: c.byte("expandable")? != 0,
            addr: Addr(c.number("address")?),
            size: Bytes(c.number("size")?),
            stream: StreamHandle(c.number("stream")?),
            pool: PoolId(c.number("pool")?, c.number("pool")?),
        });
    }
    for _ in 0..c.count("devices")? {
        out.devices.push(DeviceTotals {
            device: DeviceId(c.byte("device")?),
            allocated: Bytes(c.number("allocated")?),
            reserved: Bytes(c.number("reserved")?),
            pending: Bytes(c.number("pending")?),
            peak_allocated: Bytes(c.number("peak")?),
            peak_time: Nanos(c.number("peak time")?),
            peak_step: c.number32("peak step")?,
            peak_reserved: Bytes(c.number("peak reserved")?),
            drift: Bytes(c.number("drift")?),
        });
    }
    for _ in 0..c.count("rows")? {
        let device = DeviceId(c.byte("device")?);
        let row = StepRow {
            step: c.number32("step")?,
            time: Nanos(c.number("time")?),
            allocated: Bytes(c.number("allocated")?),
            reserved: Bytes(c.number("reserved")?),
            pending: Bytes(c.number("pending")?),
            peak: Bytes(c.number("peak")?),
            blocks: c.number32("blocks")?,
        };
        out.rows.push((device, row));
    }
    for _ in 0..c.count("streams")? {
        out.streams.push((DeviceId(c.byte("device")?), StreamHandle(c.number("stream")?)));
    }
    if !c.is_empty() {
        let mut calls = Vec::new();
        for _ in 0..c.count("calls")? {
            let (device, op) = (DeviceId(c.byte("device")?), c.number32("call")?);
            let addr = Addr(c.number("address")?);
            let (size, stack) = (Bytes(c.number("size")?), StackId(c.number32("stack")?));
            // A call of a later version is left out.
            calls.extend(runtime_op(op).map(|op| HeldCall { op, device, addr, size, stack }));
        }
        out.calls = Some(calls);
    }
    Ok(out)
}

fn block(c: &mut Cursor<'_>, addr_before: u64) -> Result<LiveBlock, Malformed> {
    let device = DeviceId(c.byte("device")?);
    let flags = c.byte("flags")?;
    let phase = Phase::from_bits(c.byte("phase")?);
    let mut block = Block {
        device,
        addr: Addr(addr_before.wrapping_add(c.signed("address")? as u64)),
        size: Bytes(c.number("size")?),
        rounded: Bytes(c.number("rounded size")?),
        stream: StreamHandle(c.number("stream")?),
        pool: PoolId(c.number("pool")?, c.number("pool")?),
        stack: StackId(c.number32("stack")?),
        phase,
        totals: None,
    };
    let born = Nanos(c.number("birth")?);
    let (step, microbatch) = (c.number32("step")?, c.number32("microbatch")?);
    if flags & TOTALS != 0 {
        let allocated = Bytes(c.number("allocated")?);
        block.totals = Some(Totals { allocated, reserved: Bytes(c.number("reserved")?) });
    }
    let (pending, unverified) = (flags & PENDING != 0, flags & UNVERIFIED != 0);
    Ok(LiveBlock { block, born, step, microbatch, pending, unverified })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Checkpoint {
        let block = |n: u64| LiveBlock {
            block: Block {
                addr: Addr((n << 60) ^ (n * 512)),
                size: Bytes(n),
                pool: PoolId(n % 2, 7),
                totals: n
                    .is_multiple_of(3)
                    .then_some(Totals { allocated: Bytes(n), reserved: Bytes(1 << 40) }),
                ..Block::default()
            },
            step: n as u32,
            pending: n.is_multiple_of(2),
            unverified: n.is_multiple_of(5),
            ..LiveBlock::default()
        };
        Checkpoint {
            time: Nanos(5),
            step_machine: vec![1, 2, 3],
            blocks: (0..20).map(block).collect(),
            segments: vec![OpenSegment { size: Bytes(9), expandable: true, ..OpenSegment::default() }],
            devices: vec![DeviceTotals { device: DeviceId(1), drift: Bytes(512), ..DeviceTotals::default() }],
            rows: vec![(DeviceId(1), StepRow { step: 3, blocks: 8, ..StepRow::default() })],
            streams: vec![(DeviceId(1), StreamHandle(0x55)), (DeviceId(0), StreamHandle(0))],
            calls: Some(vec![HeldCall {
                op: crate::event::RuntimeOp::Malloc,
                device: DeviceId(1),
                addr: Addr(1 << 40),
                size: Bytes(7),
                stack: StackId(3),
            }]),
            ..Checkpoint::default()
        }
    }

    #[test]
    fn a_checkpoint_comes_back_and_cuts_are_errors() {
        let b = encode(&sample());
        assert_eq!(decode(&b), Ok(sample()));
        let older = Checkpoint { calls: None, ..sample() };
        let length = encode(&older).len();
        assert_eq!(decode(&b[..length]), Ok(older));
        assert!((0..b.len()).all(|n| n == length || decode(&b[..n]).is_err()));
    }
}
