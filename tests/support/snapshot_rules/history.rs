//! The history, replayed backwards from the final state.

use std::collections::BTreeMap;

/// A segment, as the rules need it.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: i128,
}

/// A block in use.
#[derive(Clone, Copy)]
pub(super) struct Live {
    pub(super) address: u64,
    pub(super) pending: bool,
}

/// An entry of a history, as far as it changes the state.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) action: &'static str,
    pub(super) addr: u64,
    pub(super) size: u64,
    pub(super) stream: i128,
}

/// From the final state back to the first event, as "Allocator State History" draws any point of it. There, a block in
/// use outside every segment, a request to free a block that is not there, and a segment that vanishes without having
/// been there are errors.
pub(super) fn replay_backwards(
    events: &[Event],
    segments: Vec<Segment>,
    blocks: Vec<Live>,
) -> Result<(), String> {
    let mut segments: BTreeMap<u64, Segment> = segments.into_iter().map(|s| (s.address, s)).collect();
    let mut blocks: BTreeMap<u64, bool> = blocks.into_iter().map(|b| (b.address, b.pending)).collect();
    for (i, e) in events.iter().enumerate().rev() {
        let wrong = |what: &str| Err(format!("entry {i}: {} {:#x}: {what}", e.action, e.addr));
        match e.action {
            "alloc" if blocks.remove(&e.addr).is_none() => {
                return wrong("the block is not there afterwards");
            }
            "free_completed" => {
                let inside = segments.range(..=e.addr).next_back();
                if inside.is_none_or(|(_, s)| e.addr - s.address >= s.size) {
                    return wrong("the block lies in no segment");
                }
                if blocks.insert(e.addr, true).is_some() {
                    return wrong("the block is in use afterwards");
                }
            }
            "free_requested" => match blocks.get_mut(&e.addr) {
                Some(pending @ true) => *pending = false,
                Some(false) => return wrong("the block is allocated afterwards"),
                None => return wrong("the block is gone afterwards, but nothing completed the free"),
            },
            "segment_free" => {
                let s = Segment { address: e.addr, size: e.size, stream: e.stream };
                let there = segments.insert(e.addr, s).is_some();
                if there {
                    return wrong("a segment is there afterwards");
                }
            }
            "segment_alloc" => {
                match segments.remove(&e.addr) {
                    Some(s) if s.size == e.size => {}
                    Some(s) => return wrong(&format!("the segment has {} bytes afterwards", s.size)),
                    None => return wrong("no such segment afterwards"),
                }
                if let Some((b, _)) = blocks.range(e.addr..e.addr.saturating_add(e.size)).next() {
                    return wrong(&format!("block {b:#x} was in it before"));
                }
            }
            "segment_unmap" => {
                let mut s = Segment { address: e.addr, size: e.size, stream: e.stream };
                if let Some((&a, before)) = segments.range(..e.addr).next_back()
                    && a.saturating_add(before.size) == e.addr
                    && before.stream == e.stream
                {
                    s = Segment { address: a, size: before.size.saturating_add(s.size), stream: s.stream };
                }
                if let Some(next) = segments.get(&e.addr.saturating_add(e.size)).copied()
                    && next.stream == e.stream
                {
                    segments.remove(&next.address);
                    s.size = s.size.saturating_add(next.size);
                }
                segments.insert(s.address, s);
            }
            "segment_map" => {
                let end = e.addr.saturating_add(e.size);
                let Some(s) = segments
                    .range(..=e.addr)
                    .next_back()
                    .map(|(_, s)| *s)
                    .filter(|s| end <= s.address.saturating_add(s.size))
                else {
                    return wrong("no segment contains it afterwards");
                };
                segments.remove(&s.address);
                if s.address < e.addr {
                    segments.insert(s.address, Segment { size: e.addr - s.address, ..s });
                }
                if end < s.address.saturating_add(s.size) {
                    segments.insert(end, Segment { address: end, size: s.address + s.size - end, ..s });
                }
                if let Some((b, _)) = blocks.range(e.addr..end).next() {
                    return wrong(&format!("block {b:#x} was in it before"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
