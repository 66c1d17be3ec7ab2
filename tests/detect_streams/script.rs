//! Small jobs of which every event is written down.

use crate::judged::CARD;
use crate::load;
use strandline::event::{
    Addr, Block, Body, Bytes, DeviceId, DriverMemory, Event, Frame, Item, Names, Nanos, Phase, PoolId,
    SegmentOp, StackId, StreamHandle, ThreadId,
};

pub(crate) const MAIN: StreamHandle = StreamHandle(0);
pub(crate) const SIDE: StreamHandle = StreamHandle(640);

/// A job of which every event is written down. Lines: 1 leaks, 2 does not.
pub(crate) struct Script {
    pub(crate) items: Vec<Item>,
    pub(crate) names: Names,
    pub(crate) now: u64,
    pub(crate) steps: u64,
}

impl Script {
    pub(crate) fn new() -> Script {
        let total = Bytes(CARD);
        let driver = DriverMemory { time: Nanos(0), device: DeviceId(0), total, free: total, process: None };
        let mut s = Script { items: vec![Item::Driver(driver)], names: Names::default(), now: 0, steps: 0 };
        s.line(1);
        s.line(2);
        s
    }

    /// A line that allocates later.
    pub(crate) fn line(&mut self, line: u32) {
        let frame = Frame { file: "/job/a.py".into(), line, function: "f".into() };
        self.names.add_stack(StackId(line), [frame]);
        self.items.push(Item::Stack(StackId(line)));
    }

    pub(crate) fn say(&mut self, thread: u16, body: Body) {
        self.now += 1000;
        self.items.push(event(Nanos(self.now), thread, body));
    }

    pub(crate) fn block(addr: u64, size: u64, stream: StreamHandle, line: u32) -> Block {
        Block {
            addr: Addr(addr * 512),
            size: Bytes(size),
            rounded: Bytes(size),
            stream,
            stack: StackId(line),
            phase: Phase::default(),
            ..Block::default()
        }
    }

    pub(crate) fn alloc(&mut self, addr: u64, size: u64, stream: StreamHandle, line: u32) {
        self.alloc_by(0, addr, size, stream, line);
    }

    pub(crate) fn alloc_by(&mut self, thread: u16, addr: u64, size: u64, stream: StreamHandle, line: u32) {
        self.say(thread, Body::Alloc(Script::block(addr, size, stream, line)));
    }

    pub(crate) fn on_side(&mut self, addr: u64, size: u64, line: u32) {
        self.say(0, Body::Scope { device: DeviceId(0), from: MAIN, to: SIDE });
        self.alloc(addr, size, SIDE, line);
        self.say(0, Body::Scope { device: DeviceId(0), from: SIDE, to: MAIN });
    }

    pub(crate) fn free(&mut self, addr: u64, size: u64, stream: StreamHandle) {
        let b = Script::block(addr, size, stream, 0);
        self.say(0, Body::FreeRequested(b));
        self.say(0, Body::FreeCompleted(b));
    }

    fn segments(&mut self, op: SegmentOp, addr: u64, size: u64, stream: StreamHandle, pool: PoolId) {
        let (device, addr, size) = (DeviceId(0), Addr(addr * 512), Bytes(size));
        self.say(0, Body::Segment { op, device, addr, size, stream, pool });
    }

    /// torch takes a segment from the driver.
    pub(crate) fn take(&mut self, addr: u64, size: u64, stream: StreamHandle, pool: PoolId) {
        self.segments(SegmentOp::Alloc, addr, size, stream, pool);
    }

    /// torch gives a segment back to the driver.
    pub(crate) fn give_back(&mut self, addr: u64, size: u64, stream: StreamHandle, pool: PoolId) {
        self.segments(SegmentOp::Free, addr, size, stream, pool);
    }

    /// An allocation fails.
    pub(crate) fn fail(&mut self, requested: u64, free: u64) {
        self.fail_at(StackId(1), requested, free);
    }

    /// One within a step of PyTorch's optimizers.
    pub(crate) fn fail_in_optimizer(&mut self, requested: u64, free: u64) {
        let frame = |file: &str| Frame { file: file.into(), line: 7, function: "f".into() };
        let frames = ["/x/site-packages/torch/optim/adamw.py", "/job/a.py"].map(frame);
        self.names.add_stack(StackId(7), frames);
        self.items.push(Item::Stack(StackId(7)));
        self.fail_at(StackId(7), requested, free);
    }

    /// One that this stack asks for.
    pub(crate) fn fail_at(&mut self, stack: StackId, requested: u64, free: u64) {
        let (device, stream) = (DeviceId(0), MAIN);
        self.say(0, Body::Oom { device, requested: Bytes(requested), free: Bytes(free), stream, stack });
    }

    /// A step in which nothing stays.
    pub(crate) fn idle_step(&mut self) {
        self.alloc(1, 1 << 20, MAIN, 2);
        self.free(1, 1 << 20, MAIN);
        self.step();
    }

    pub(crate) fn step(&mut self) {
        self.steps += 1;
        self.now = self.steps * load::STEP;
        self.say(0, Body::ManualStep(self.steps));
    }
}

pub(crate) fn event(time: Nanos, thread: u16, body: Body) -> Item {
    Item::Event(Event { time, thread: ThreadId(thread), body })
}

pub(crate) fn is_mark(i: &Item) -> bool {
    matches!(i, Item::Event(Event { body: Body::ManualStep(_), .. }))
}
