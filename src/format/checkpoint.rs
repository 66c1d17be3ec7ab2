//! A Checkpoint page: `event::Checkpoint` as varints; zstd does the rest.

use super::fields::{Field, fields};
use super::wire::{Cursor, Malformed, put, put_bytes, put_signed};
use crate::event::{
    Addr, Block, Checkpoint, DeviceId, DeviceTotals, HeldCall, LiveBlock, Nanos, OpenSegment, Phase,
    RuntimeOp, StepRow, Totals,
};

const PENDING: u8 = 1;
const UNVERIFIED: u8 = 2;
const TOTALS: u8 = 4;
const VERSION: u64 = 1;

fields! {
    Totals { allocated, reserved }
    OpenSegment { device, expandable, addr, size, stream, pool }
    DeviceTotals {
        device, allocated, reserved, pending, peak_allocated, peak_time, peak_step, peak_reserved, drift
    }
    StepRow { step, time, allocated, reserved, pending, peak, blocks }
}

/// As a payload.
pub fn encode(c: &Checkpoint) -> Vec<u8> {
    let mut b = Vec::with_capacity(256 + c.blocks.len() * 24 + c.rows.len() * 32);
    put(&mut b, VERSION);
    c.time.put(&mut b);
    (c.steps, c.microbatches).put(&mut b);
    (c.events, c.lost).put(&mut b);
    put_bytes(&mut b, &c.step_machine);
    put(&mut b, c.blocks.len() as u64);
    let mut addr = 0;
    for l in &c.blocks {
        put_block(&mut b, l, addr);
        addr = l.block.addr.0;
    }
    c.segments.put(&mut b);
    c.devices.put(&mut b);
    c.rows.put(&mut b);
    c.streams.put(&mut b);
    // Came later: who does not know it stops before it.
    if let Some(calls) = &c.calls {
        put(&mut b, calls.len() as u64);
        for h in calls {
            (h.device, h.op.number()).put(&mut b);
            (h.addr, (h.size, h.stack)).put(&mut b);
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
    ((k.size, k.rounded), (k.stream, k.pool)).put(b);
    ((k.stack, l.born), (l.step, l.microbatch)).put(b);
    if let Some(totals) = k.totals {
        totals.put(b);
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
    out.segments = Field::take(&mut c, "segments")?;
    out.devices = Field::take(&mut c, "devices")?;
    out.rows = Field::take(&mut c, "rows")?;
    out.streams = Field::take(&mut c, "streams")?;
    if !c.is_empty() {
        let mut calls = Vec::new();
        for _ in 0..c.count("calls")? {
            let (device, op): (DeviceId, u32) = Field::take(&mut c, "call")?;
            let (addr, (size, stack)) = Field::take(&mut c, "call")?;
            // A call of a later version is left out.
            calls.extend(RuntimeOp::from_number(op).map(|op| HeldCall { op, device, addr, size, stack }));
        }
        out.calls = Some(calls);
    }
    Ok(out)
}

fn block(c: &mut Cursor<'_>, addr_before: u64) -> Result<LiveBlock, Malformed> {
    let (device, flags): (DeviceId, u8) = Field::take(c, "block")?;
    let phase = Phase::from_bits(c.byte("phase")?);
    let addr = Addr(addr_before.wrapping_add(c.signed("address")? as u64));
    let ((size, rounded), (stream, pool)) = Field::take(c, "block")?;
    let ((stack, born), (step, microbatch)) = Field::take(c, "block")?;
    let totals = if flags & TOTALS != 0 { Some(Field::take(c, "totals")?) } else { None };
    let block = Block { device, addr, size, rounded, stream, pool, stack, phase, totals };
    let (pending, unverified) = (flags & PENDING != 0, flags & UNVERIFIED != 0);
    Ok(LiveBlock { block, born, step, microbatch, pending, unverified })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bytes, PoolId, StackId, StreamHandle};

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
                op: RuntimeOp::Malloc,
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
