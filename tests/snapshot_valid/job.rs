//! A caching allocator that is made up.

use std::collections::BTreeMap;

use strandline::event::{
    Addr, Block, Body, Bytes, DeviceId, Event, Item, Nanos, Phase, PoolId, SegmentOp, StackId, StreamHandle,
    ThreadId,
};

/// Numbers that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A caching allocator that does what it likes, within the law: blocks of one segment never overlap, a segment is freed
/// only when it is empty, and an expandable one is mapped and unmapped at its end.
pub(crate) struct Job {
    random: Random,
    pub(crate) items: Vec<Item>,
    /// Address → size, stream, expandable.
    pub(crate) segments: BTreeMap<u64, (u64, StreamHandle, bool)>,
    /// Address → block, pending.
    pub(crate) blocks: BTreeMap<u64, (Block, bool)>,
    pub(crate) time: u64,
    next: u64,
}

const EXPANDABLE: u64 = 0x6000_0000_0000;
const PAGE: u64 = 2 << 20;

impl Job {
    pub(crate) fn run(seed: u64, length: usize) -> Job {
        let mut j = Job {
            random: Random(seed),
            items: Vec::new(),
            segments: BTreeMap::new(),
            blocks: BTreeMap::new(),
            time: 0,
            next: 0x7f00_0000_0000,
        };
        j.go_on(length);
        j
    }

    pub(crate) fn go_on(&mut self, length: usize) {
        for _ in 0..length {
            match self.random.below(100) {
                0..50 => self.alloc(),
                50..80 => self.request(),
                80..93 => self.complete(),
                93..96 => self.shrink(),
                96..98 => self.release(),
                98 => self.say(Body::Oom {
                    device: DeviceId(0),
                    requested: Bytes(1 << 40),
                    free: Bytes(77),
                    stream: StreamHandle(0),
                    stack: StackId(1),
                }),
                _ => self.say(Body::Snapshot { active: Bytes(5) }),
            }
        }
    }

    fn say(&mut self, body: Body) {
        self.time += 1 + self.random.below(3000);
        self.items.push(Item::Event(Event { time: Nanos(self.time), thread: ThreadId(0), body }));
    }

    fn segment(&mut self, op: SegmentOp, addr: u64, size: u64, stream: StreamHandle) {
        self.say(Body::Segment {
            op,
            device: DeviceId(0),
            addr: Addr(addr),
            size: Bytes(size),
            stream,
            pool: PoolId::DEFAULT,
        });
    }

    fn hole(&mut self, rounded: u64, stream: StreamHandle) -> Option<u64> {
        for (&a, &(size, s, _)) in &self.segments {
            let mut at = a;
            for (&b, (block, _)) in self.blocks.range(a..a + size) {
                if b - at >= rounded && s == stream {
                    return Some(at);
                }
                at = b + block.rounded.0;
            }
            if a + size - at >= rounded && s == stream {
                return Some(at);
            }
        }
        None
    }

    fn alloc(&mut self) {
        let magnitude = 4 + self.random.below(18);
        let size = 1 + self.random.below(1 << magnitude);
        let rounded = size.next_multiple_of(512);
        let stream = StreamHandle([0, 0, 0x5555_0000][self.random.below(3) as usize]);
        let addr = match self.hole(rounded, stream) {
            Some(a) => a,
            None => self.grow(rounded, stream),
        };
        let phase = Phase { backward: self.random.below(2) == 0, ..Phase::default() };
        let stack = StackId(self.random.below(4) as u32);
        let block = Block {
            addr: Addr(addr),
            size: Bytes(size),
            // What torch reports comes with the event, except where a ring overflowed.
            rounded: Bytes(if self.random.below(20) == 0 { 0 } else { rounded }),
            stream,
            stack,
            phase,
            ..Block::default()
        };
        self.say(Body::Alloc(block));
        self.blocks.insert(addr, (Block { rounded: Bytes(rounded), ..block }, false));
    }

    fn grow(&mut self, need: u64, stream: StreamHandle) -> u64 {
        let size = need.next_multiple_of(PAGE);
        if stream.0 == 0 && self.random.below(2) == 0 {
            let end = self.segments.get(&EXPANDABLE).map_or(EXPANDABLE, |s| EXPANDABLE + s.0);
            self.segment(SegmentOp::Map, end, size, stream);
            self.segments.entry(EXPANDABLE).or_insert((0, stream, true)).0 += size;
            return end;
        }
        let at = self.next;
        // Some segments touch, as the driver likes to do it.
        self.next += size + PAGE * self.random.below(2);
        self.segment(SegmentOp::Alloc, at, size, stream);
        self.segments.insert(at, (size, stream, false));
        at
    }

    fn any(&mut self, pending: bool) -> Option<(u64, Block)> {
        let of: Vec<_> = self.blocks.iter().filter(|b| b.1.1 == pending).map(|b| (*b.0, b.1.0)).collect();
        if of.is_empty() { None } else { Some(of[self.random.below(of.len() as u64) as usize]) }
    }

    fn request(&mut self) {
        let Some((addr, mut block)) = self.any(false) else { return };
        block.stack = StackId(0);
        self.say(Body::FreeRequested(block));
        self.blocks.get_mut(&addr).unwrap().1 = true;
        if self.random.below(4) != 0 {
            self.say(Body::FreeCompleted(block));
            self.blocks.remove(&addr);
        }
    }

    fn complete(&mut self) {
        let Some((addr, mut block)) = self.any(true) else { return };
        block.stack = StackId(0);
        self.say(Body::FreeCompleted(block));
        self.blocks.remove(&addr);
    }

    fn release(&mut self) {
        let empty = |j: &Job, a: u64, size: u64| j.blocks.range(a..a + size).next().is_none();
        let of = self.segments.iter().find(|(a, s)| !s.2 && empty(self, **a, s.0)).map(|(a, s)| (*a, *s));
        if let Some((a, (size, stream, _))) = of {
            self.segment(SegmentOp::Free, a, size, stream);
            self.segments.remove(&a);
        }
    }

    fn shrink(&mut self) {
        let Some(&(size, stream, _)) = self.segments.get(&EXPANDABLE) else { return };
        let used = self.blocks.range(EXPANDABLE..EXPANDABLE + size).next_back();
        let used = used.map_or(0, |(a, b)| a + b.0.rounded.0 - EXPANDABLE).next_multiple_of(PAGE);
        if used < size {
            self.segment(SegmentOp::Unmap, EXPANDABLE + used, size - used, stream);
            self.segments.insert(EXPANDABLE, (used, stream, true));
            if used == 0 {
                self.segments.remove(&EXPANDABLE);
            }
        }
    }
}
