//! The final state: segments and the blocks that fill them without a gap.

use std::io::{self, Write};

use super::layout::{Block, Segment};
use super::out::Out;
use super::source::Source;
use super::track::{Device, SMALL_REQUEST, Tracker};
use crate::event::{Addr, DeviceId, StackId, total};

/// The size of their segments (torch's `kSmallBuffer`).
const SMALL_SEGMENT: u64 = 2 << 20;
/// Expandable segments of large blocks grow by multiples of this (torch's `kLargeBuffer`).
const LARGE_SEGMENT: u64 = 20 << 20;

/// Writes all segments, device by device in order of address; how many, and how many blocks are in use.
pub(super) fn write<W: Write>(
    out: &mut Out<W>,
    source: &Source<'_>,
    state: &Tracker,
) -> io::Result<(u64, u64)> {
    let mut all: Vec<(u64, DeviceId, &Device, &Segment)> = Vec::new();
    for (&id, device) in &state.devices {
        all.extend(device.layout.segments.iter().map(|(&addr, s)| (addr, id, device, s)));
    }
    let mut live = 0;
    out.list()?;
    for &(addr, id, device, segment) in &all {
        let blocks = fill(addr, segment.size, device, |b| rounded(source, id, b.0, b.1));
        live += blocks.iter().filter(|b| b.of.is_some()).count() as u64;
        one(out, source, id, (addr, segment, device.origins.of(addr)), &blocks)?;
    }
    out.close()?;
    Ok((all.len() as u64, live))
}

/// The size of a block: as the replay knows it, which may have learnt it later than the allocation.
fn rounded(source: &Source<'_>, device: DeviceId, addr: u64, b: &Block) -> u64 {
    match source.replay.block(device, Addr(addr)) {
        Some(h) if h.born == b.born && h.block.rounded.0 != 0 => h.block.rounded.0,
        _ => b.size,
    }
}

/// A part of a segment: a block in use, or what lies between two of them.
struct Part<'a> {
    addr: u64,
    size: u64,
    of: Option<&'a Block>,
}

/// Blocks and gaps, from the segment's first byte to its last.
fn fill<'a>(
    addr: u64,
    size: u64,
    device: &'a Device,
    rounded: impl Fn((u64, &Block)) -> u64,
) -> Vec<Part<'a>> {
    let end = addr.saturating_add(size);
    let mut parts = Vec::new();
    let mut at = addr;
    let mut blocks = device.layout.blocks.range(addr..end).filter(|(_, b)| !b.hidden).peekable();
    while let Some((&a, b)) = blocks.next() {
        if a > at {
            parts.push(Part { addr: at, size: a - at, of: None });
        }
        // Sizes that were never reported are guesses, and must not run into the next block.
        let limit = blocks.peek().map_or(end, |&(&next, _)| next);
        let size = rounded((a, b)).min(limit - a);
        parts.push(Part { addr: a, size, of: Some(b) });
        at = a + size;
    }
    if at < end {
        parts.push(Part { addr: at, size: end - at, of: None });
    }
    parts
}

fn one<W: Write>(
    out: &mut Out<W>,
    source: &Source<'_>,
    device: DeviceId,
    (addr, s, origin): (u64, &Segment, StackId),
    parts: &[Part<'_>],
) -> io::Result<()> {
    let sum =
        |f: &dyn Fn(&Part<'_>, &Block) -> u64| total(parts.iter().filter_map(|p| p.of.map(|b| f(p, b))));
    out.dict()?;
    out.key("device")?.int(device.0)?;
    out.key("address")?.int(addr)?;
    out.key("total_size")?.int(s.size)?;
    out.key("allocated_size")?.int(sum(&|p, b| if b.pending { 0 } else { p.size }))?;
    out.key("active_size")?.int(sum(&|p, _| p.size))?;
    out.key("requested_size")?.int(sum(&|p, b| b.requested.min(p.size)))?;
    out.key("stream")?.int(s.stream.0 as i64)?;
    out.key("segment_type")?.text(if is_small(s, parts) { "small" } else { "large" })?;
    out.key("segment_pool_id")?.pool(s.pool)?;
    out.key("is_expandable")?.bool(s.expandable)?;
    out.key("frames")?.stack(source.names, origin)?;
    out.key("blocks")?.list()?;
    for p in parts {
        out.dict()?;
        out.key("address")?.int(p.addr)?;
        out.key("size")?.int(p.size)?;
        out.key("requested_size")?.int(p.of.map_or(0, |b| b.requested.min(p.size)))?;
        out.key("state")?.text(match p.of {
            None => "inactive",
            Some(b) if b.pending => "active_pending_free",
            Some(_) => "active_allocated",
        })?;
        out.key("frames")?.stack(source.names, p.of.map_or(StackId(0), |b| b.stack))?;
        out.close()?;
    }
    out.close()?;
    out.close()
}

/// Whether a segment serves small requests. Expandable segments of both kinds may have any size: their blocks tell, or
/// else the pages they grew by.
fn is_small(s: &Segment, parts: &[Part<'_>]) -> bool {
    if !s.expandable {
        return s.size <= SMALL_SEGMENT;
    }
    if let Some(small) = s.small {
        return small;
    }
    match parts.iter().find_map(|p| p.of.map(|_| p.size)) {
        Some(size) => size <= SMALL_REQUEST,
        None => !s.size.is_multiple_of(LARGE_SEGMENT),
    }
}
