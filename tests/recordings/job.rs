//! A job that was never run: rings that are filled by hand, a writer that is called by hand, a clock that is set.

use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use strandline::buffer::{Drain, Lane, Region};
use strandline::event::{Body, Event, Item, Nanos};
use strandline::format::definition::{put_code, put_stack, put_text};
use strandline::format::header::Header;
use strandline::format::raw::{Kind, Record, flag};
use strandline::format::region::{Clock, Geometry, Identity, Moment, PART};
use strandline::reader::{Batch, Reader, Source};
use strandline::writer::{Memory, Options, Writer};

pub(crate) const WHO: Identity = Identity { pid: 4711, start: 99, id: [0x1234, 0x5678] };
/// Ticks when the recording begins; a tick is a nanosecond here, so times in events are ticks less this.
pub(crate) const BEGAN: u64 = 1_000_000;

/// A small deterministic generator (xorshift).
pub(crate) fn noise(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) % below
    }
}

pub(crate) struct Job {
    pub(crate) region: Region,
    pub(crate) drain: Drain,
    pub(crate) writer: Option<Writer<Memory>>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) now: u64,
    pub(crate) sequence: [u32; 4],
    base: NonNull<u8>,
    size: usize,
}

impl Job {
    pub(crate) fn new(geometry: Geometry, lanes: usize, options: Options, sink: Memory) -> Job {
        let provenance = serde_json::json!({"framework": "none", "version": "frozen"});
        Job::of(WHO, provenance, geometry, lanes, options, sink)
    }

    /// The same of another process.
    pub(crate) fn of(
        who: Identity,
        provenance: serde_json::Value,
        geometry: Geometry,
        lanes: usize,
        options: Options,
        sink: Memory,
    ) -> Job {
        let size = geometry.bytes();
        let layout = Layout::from_size_align(size, PART).unwrap();
        let now = Moment { ticks: BEGAN, mono_ns: 500, unix_ns: 1_700_000_000_000_000_000 };
        // SAFETY: the size is not 0; the memory is zeroed, leaked and used by nothing else.
        let (base, region) = unsafe {
            let base = NonNull::new(alloc_zeroed(layout)).unwrap();
            (base, Region::init(base, size, geometry, who, Clock::Nanoseconds, now).unwrap())
        };
        let header = Header { who, tail: None, unix_ns: now.unix_ns, provenance };
        let mut lanes: Vec<Lane> = (0..lanes).map(|_| region.claim(u32::MAX).unwrap()).collect();
        for (i, lane) in lanes.iter_mut().enumerate() {
            let mut name = *b"thread 0\0\0\0\0\0\0\0\0";
            name[7] += i as u8;
            lane.announce(BEGAN, 100 + i as u32, name, 0);
        }
        let drain = region.drain().unwrap();
        let writer = Some(Writer::new(sink, &header, options).unwrap());
        Job { region, drain, writer, lanes, now: BEGAN, sequence: [0; 4], base, size }
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment { ticks: self.now, mono_ns: self.now - BEGAN + 500, unix_ns: 0 }
    }

    /// The region's bytes as they are now: what a reader finds when the process dies here.
    pub(crate) fn tail(&self) -> Vec<u8> {
        // SAFETY: the region's memory, which only this thread writes to.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.size) }.to_vec()
    }

    /// What a reader in another process sees of this job.
    pub(crate) fn share(&self) -> Shared {
        let shared = Shared::default();
        shared.update(self);
        shared
    }

    /// Completes a record: time, device sequence.
    pub(crate) fn stamp(&mut self, mut r: Record, after: u64) -> Record {
        self.now += after;
        r.ticks = self.now;
        if r.kind <= Kind::SegmentUnmap as u8 {
            let rounded = r.rounded();
            let n = &mut self.sequence[usize::from(r.device)];
            r.set_sequence(*n);
            r.set_rounded(rounded);
            *n += 1;
        }
        r
    }

    pub(crate) fn sweep(&mut self) -> io::Result<strandline::writer::Sweep> {
        let now = self.moment();
        self.writer.as_mut().unwrap().sweep(&mut self.drain, now)
    }

    /// Everything that is published becomes pages.
    pub(crate) fn seal(&mut self) {
        self.sweep().unwrap();
        self.now += 2_000_000_000;
        self.sweep().unwrap();
        assert!((0..self.drain.rings()).all(|i| self.drain.published(i).is_empty()));
    }

    pub(crate) fn end(&mut self) -> Vec<u8> {
        let now = self.moment();
        let mut w = self.writer.take().unwrap();
        w.end(&mut self.drain, now, &serde_json::json!({"ended": "exit"})).unwrap();
        w.into_sink().bytes
    }

    /// What the file holds now, had the process died here.
    pub(crate) fn die(&mut self) -> Vec<u8> {
        self.writer.take().unwrap().into_sink().bytes
    }

    /// Defines one code object, a stack for each number up to `stacks`, and one text.
    pub(crate) fn define(&self, stacks: u32) {
        use strandline::event::{CodeDef, CodeId, StackId};
        let mut b = Vec::new();
        let code = CodeDef {
            id: CodeId(1),
            file: "train.py",
            function: "step",
            first_line: 10,
            line_table: vec![4, 1, 4, 1, 4, 1],
            python_minor: 10,
        };
        put_code(&mut b, &code);
        assert!(self.region.define(&b));
        for n in 1..=stacks {
            b.clear();
            put_stack(&mut b, StackId(n), [(CodeId(1), n * 4 % 12), (CodeId(1), 0)].into_iter(), false);
            assert!(self.region.define(&b));
        }
        b.clear();
        put_text(&mut b, 1, "warm up");
        assert!(self.region.define(&b));
    }
}

/// A file and a region that a reader holds open while they change.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    bytes: Arc<Mutex<[Vec<u8>; 2]>>,
}

/// One of the two.
pub(crate) struct Part(Shared, usize);

impl Shared {
    pub(crate) fn file(&self) -> Part {
        Part(self.clone(), 0)
    }
    pub(crate) fn region(&self) -> Part {
        Part(self.clone(), 1)
    }
    pub(crate) fn update(&self, job: &Job) {
        let file = job.writer.as_ref().map(|w| w.sink().bytes.clone()).unwrap_or_default();
        *self.bytes.lock().unwrap() = [file, job.tail()];
    }
    pub(crate) fn set_file(&self, file: Vec<u8>) {
        self.bytes.lock().unwrap()[0] = file;
    }
}

impl Source for Part {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        Source::read_at(&self.0.bytes.lock().unwrap()[self.1], at, buf)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.bytes.lock().unwrap()[self.1].len() as u64)
    }
}

/// A random but possible life of a device, spread over the job's lanes. Returns what was recorded, in order.
pub(crate) struct Life {
    live: Vec<(u64, u64)>,
    free: Vec<(u64, u64)>,
    top: u64,
    allocated: u64,
    reserved: u64,
}

impl Life {
    pub(crate) fn new() -> Life {
        Life { live: Vec::new(), free: Vec::new(), top: 0x7f00_0000_0000, allocated: 0, reserved: 0 }
    }

    pub(crate) fn next(&mut self, job: &mut Job, random: &mut impl FnMut(u64) -> u64) -> Record {
        let device = 0;
        let mut r = Record { device, c: 0x5500 + random(2) * 64, ..Record::default() };
        let kind = match random(20) {
            0 => Kind::Scope,
            1 => Kind::SegmentAlloc,
            2..=10 if self.live.len() > 20 => Kind::FreeRequested,
            _ => Kind::Alloc,
        };
        r.kind = kind as u8;
        match kind {
            Kind::Scope => (r.a, r.b, r.c) = (0x5500, 0x5540, 0),
            Kind::SegmentAlloc => {
                (r.a, r.b) = (self.top + (1 << 40), 2 << 20);
                self.top += 4 << 20;
                self.reserved += r.b;
            }
            Kind::FreeRequested => {
                let i = random(self.live.len() as u64) as usize;
                let (addr, size) = self.live.swap_remove(i);
                self.free.push((addr, size));
                (r.a, r.b) = (addr, size);
                r.set_rounded(size.next_multiple_of(512));
                self.allocated -= r.rounded();
                r.flags = flag::REPORTED | flag::COMPLETED;
            }
            _ => {
                let (addr, size) = match self.free.pop() {
                    Some(b) if random(4) > 0 => b,
                    _ => {
                        self.top += 4 << 20;
                        (self.top, 100 + random(100_000))
                    }
                };
                self.live.push((addr, size));
                (r.a, r.b, r.stack) = (addr, size, 1 + random(5) as u32);
                r.set_rounded(size.next_multiple_of(512));
                self.allocated += r.rounded();
                r.flags = flag::REPORTED;
            }
        }
        if r.flags & flag::REPORTED != 0 {
            (r.allocated, r.reserved) = (self.allocated, self.reserved);
        }
        // Further apart than times are rounded: the order of what has no sequence number is by time alone.
        job.stamp(r, 16 + random(20_000))
    }

    pub(crate) fn allocated(&self) -> u64 {
        self.allocated
    }
}

/// What records say, with times as pages round them.
pub(crate) fn expected(records: &[Record]) -> Vec<Event> {
    let mut fold = strandline::format::fold::Fold::default();
    let mut out = Vec::new();
    for r in records {
        fold.fold(0, r, Nanos(r.ticks - BEGAN), strandline::event::ThreadId(0), &mut out);
    }
    out
}

/// Events without what rounding and threads make of them.
pub(crate) fn plain(events: &[Event]) -> Vec<strandline::event::Body> {
    events.iter().map(|e| e.body).collect()
}

pub(crate) struct Read {
    pub(crate) events: Vec<Event>,
    pub(crate) items: Vec<Item>,
    pub(crate) reader: Reader,
}

pub(crate) fn read_from(file: impl Source + 'static, tail: Option<Vec<u8>>) -> Read {
    let tail = tail.map(|t| Box::new(t) as Box<dyn Source>);
    let mut reader = Reader::from_source(Box::new(file), tail).unwrap();
    let (mut events, mut items) = (Vec::new(), Vec::new());
    while let Some(b) = reader.next_batch() {
        match b {
            Batch::Events(e) => events.extend_from_slice(e),
            Batch::Item(i) => items.push(i),
        }
    }
    Read { events, items, reader }
}

/// The records of one of leakbench's event streams: see its README.
pub(crate) fn leakbench(path: &Path, job: &mut Job) -> Vec<Record> {
    let out = std::process::Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    assert!(out.status.success(), "gzip -dc {}", path.display());
    let text = String::from_utf8(out.stdout).unwrap();
    let mut random = noise(1);
    let mut records: Vec<Record> = Vec::new();
    let (mut allocated, mut reserved) = (0u64, 0u64);
    for line in text.lines().skip(1) {
        let mut words = line.split_ascii_whitespace();
        let what = words.next().unwrap();
        let n: Vec<i64> = words.map(|w| w.parse().unwrap()).collect();
        let word = |i: usize| n.get(i).copied().unwrap_or(0) as u64;
        let (a, b, c) = (0x7f00_0000_0000 + word(0) * 512, word(1), 0x5555_0000 + word(2) * 0x40);
        let kind = match what {
            "A" => Kind::Alloc,
            "R" => Kind::FreeRequested,
            "C" => Kind::FreeCompleted,
            "G" => Kind::SegmentAlloc,
            "H" => Kind::SegmentFree,
            _ => Kind::ManualStep,
        };
        if let Some(last) = records.last_mut()
            && kind == Kind::FreeCompleted
            && (last.kind, last.a) == (Kind::FreeRequested as u8, a)
        {
            last.flags |= flag::COMPLETED;
            continue;
        }
        let mut r = Record { a, b, c: if b == 0 { 0 } else { c }, kind: kind as u8, ..Record::default() };
        match kind {
            Kind::Alloc | Kind::FreeRequested => {
                r.set_rounded(b.next_multiple_of(512));
                let by = r.rounded();
                allocated = if kind == Kind::Alloc { allocated + by } else { allocated.saturating_sub(by) };
                (r.flags, r.allocated, r.reserved) = (flag::REPORTED, allocated, reserved);
                if kind == Kind::Alloc {
                    r.stack = n.get(3).map_or(0, |&s| (s + 1) as u32);
                }
            }
            Kind::SegmentAlloc => reserved += b,
            Kind::SegmentFree => reserved = reserved.saturating_sub(b),
            Kind::ManualStep => (r.a, r.c) = (word(0), 0),
            _ => {}
        }
        // A step of a thousand allocations in 10 to 20 ms: some are back to back, some wait for kernels to be queued.
        let gap = 400 + random(3000) + if random(4) == 0 { random(30_000) } else { 0 };
        records.push(job.stamp(r, gap));
    }
    records
}

pub(crate) const SMALL: Geometry = Geometry { lanes: 3, records: 1024, overflow: 1024, definitions: 1 << 16 };

/// Rounding of times in pages, in ticks.
pub(crate) const ROUNDING: u64 = 8;

/// A job of `n` events on three lanes and the overflow ring, swept now and then. Returns its records in order.
pub(crate) fn live(job: &mut Job, life: &mut Life, n: usize, seed: u64) -> Vec<Record> {
    let mut random = noise(seed);
    let mut all = Vec::new();
    for i in 0..n {
        let r = life.next(job, &mut random);
        let lane = random(4) as usize;
        match job.lanes.get_mut(lane) {
            Some(lane) => assert!(lane.push(r)),
            None => assert!(job.region.overflow().push(r)),
        }
        all.push(r);
        if i % 150 == 149 {
            job.sweep().unwrap();
        }
    }
    all
}

pub(crate) fn same(events: &[Event], records: &[Record]) {
    let want = expected(records);
    assert_eq!(events.len(), want.len());
    for (i, (got, want)) in events.iter().zip(&want).enumerate() {
        assert_eq!(got.body, want.body, "event {i}");
        assert!(want.time.0.abs_diff(got.time.0) <= ROUNDING, "event {i}: {got:?} {want:?}");
    }
}

/// Equality that does not print thousands of events where it fails.
pub(crate) fn alike(got: &[Body], want: &[Body]) {
    let same = got.iter().zip(want).take_while(|(g, w)| g == w).count();
    assert!(same == want.len() && got.len() == want.len(), "{same} alike, {} of {}", got.len(), want.len());
}

pub(crate) fn tail_of<T>(all: &[T], n: usize) -> &[T] {
    &all[all.len() - n..]
}
