//! The machine: all parts together, behind one lock, and what one call does to several of them.

use crate::call;
use crate::callback;
use crate::capture::{Captures, Mode};
use crate::card::Card;
use crate::clock::Clock;
use crate::code::{Code, Outcome};
use crate::config::Config;
use crate::device::{self, Device};
use crate::event::{self, Events, Recorded};
use crate::graph::{Graph, Graphs};
use crate::memory::{Kind, Memory};
use crate::pool::Pool;
use crate::stream::{Key, Streams};
use crate::trace;
use crate::vmm::Vmm;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What [`Model::counters`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Device allocations.
    Malloc,
    /// Device frees.
    Free,
    /// Operations given to streams.
    Work,
    /// Physical allocations of virtual memory.
    Create,
    /// Their releases.
    Release,
    /// Events recorded.
    Record,
    /// Events asked about.
    Query,
    /// Waits of the host.
    Wait,
}

/// How many counters there are.
pub const COUNTERS: usize = 8;

/// Everything that a call can change.
pub struct Model {
    /// Settings.
    pub config: Config,
    /// The devices that this process sees, in its order.
    pub devices: Vec<Device>,
    /// What lies where.
    pub memory: Memory,
    /// Virtual memory.
    pub vmm: Vmm,
    /// Streams.
    pub streams: Streams,
    /// Events.
    pub events: Events,
    /// Captures in progress.
    pub captures: Captures,
    /// Graphs.
    pub graphs: Graphs,
    /// Pools: first each device's own, then those that the program made.
    pub pools: Vec<Option<Pool>>,
    /// The pool that `cudaMallocAsync` takes from, for each device.
    pub current_pools: Vec<usize>,
    /// Memory that a captured call allocated: a graph's own, which captured calls may free.
    pub of_graphs: HashSet<usize>,
    /// How often things happened.
    pub counters: [u64; COUNTERS],
}

impl Model {
    /// A machine at rest.
    pub fn new(config: Config) -> Self {
        let devices: Vec<Device> = config
            .visible
            .iter()
            .map(|&physical| {
                let card = config.card.as_ref().map(|folder| Card::new(folder, physical));
                Device::new(physical, config.total, config.other).shared(config.context, card)
            })
            .collect();
        let count = devices.len();
        Model {
            config,
            devices,
            memory: Memory::default(),
            vmm: Vmm::default(),
            streams: Streams::new(count),
            events: Events::default(),
            captures: Captures::default(),
            graphs: Graphs::default(),
            pools: (0..count).map(|device| Some(Pool::new(device))).collect(),
            current_pools: (0..count).collect(),
            of_graphs: HashSet::new(),
            counters: [0; COUNTERS],
        }
    }

    /// Counts something.
    pub fn count(&mut self, counter: Counter) {
        if let Some(count) = self.counters.get_mut(counter as usize) {
            *count += 1;
        }
    }

    /// A device that this process sees.
    pub fn device(&self, device: usize) -> Outcome<&Device> {
        if self.devices.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        self.devices.get(device).ok_or(Code::INVALID_DEVICE)
    }

    /// The device that a call numbers.
    pub fn numbered(&self, device: i32) -> Outcome<usize> {
        let device = usize::try_from(device).map_err(|_| Code::INVALID_DEVICE)?;
        self.device(device).map(|_| device)
    }

    /// The calling thread's device.
    pub fn current(&self) -> Outcome<usize> {
        let device = device::current();
        self.device(device).map(|_| device)
    }

    /// The process has a context on this device from now on.
    pub fn enter(&mut self, device: usize) -> Outcome {
        self.devices.get_mut(device).map_or(Err(Code::INVALID_DEVICE), Device::enter)
    }

    /// Gives a stream an operation of `cost` nanoseconds, or of the ordinary cost.
    pub fn work(&mut self, key: Key, cost: Option<u64>, now: u64) -> Outcome {
        self.count(Counter::Work);
        let cost = cost.unwrap_or(self.config.op_ns);
        let stream = self.streams.get(key)?;
        if let Some(id) = stream.capture {
            return self.captures.operation(id, key, cost).map(drop);
        }
        let device = stream.device;
        if key.is_legacy()
            && let Some(id) = self.streams.blocking_capture(device)
        {
            return Err(self.captures.spoil(id, Code::CAPTURE_IMPLICIT));
        }
        self.streams.occupy(key, cost, now).map(drop)
    }

    /// When a stream's work is done; one that is being captured cannot be asked.
    pub fn stream_done(&mut self, key: Key) -> Outcome<u64> {
        let stream = self.streams.get(key)?;
        if let Some(id) = stream.capture {
            return Err(self.captures.spoil(id, Code::CAPTURE_UNSUPPORTED));
        }
        self.streams.start(key, 0)
    }

    /// When a device's work is done; while a stream of it is captured it cannot be asked.
    pub fn device_done(&mut self, device: usize) -> Outcome<u64> {
        self.captures.potentially_unsafe()?;
        Ok(self.streams.device_done(device))
    }

    /// Records an event in a stream.
    pub fn record(&mut self, event: usize, key: Key, flags: u32, now: u64) -> Outcome {
        self.count(Counter::Record);
        self.events.get(event)?;
        let Some(id) = self.streams.get(key)?.capture else {
            let instant = self.streams.occupy(key, 0, now)?;
            return self.events.record(event, Recorded::At(instant));
        };
        if flags & event::EXTERNAL != 0 {
            let at = self.captures.operation(id, key, 0)?;
            self.captures.sound(id)?.external.push((event, at));
            return Ok(());
        }
        let point = self.captures.point(id, key)?;
        self.events.record(event, Recorded::Captured(id, point))
    }

    /// Makes a stream wait for an event.
    pub fn wait_event(&mut self, key: Key, event: usize, flags: u32, now: u64) -> Outcome {
        let recorded = self.events.get(event)?.recorded.clone();
        let capture = self.streams.get(key)?.capture;
        match (capture, recorded) {
            (_, Recorded::Never) => Ok(()),
            (None, Recorded::At(instant)) => {
                let start = self.streams.start(key, now)?;
                self.streams.get_mut(key)?.busy_until = start.max(instant);
                Ok(())
            }
            (Some(id), _) if flags & event::EXTERNAL != 0 => self.captures.operation(id, key, 0).map(drop),
            (Some(id), Recorded::At(_)) => {
                self.captures.sound(id)?;
                Err(self.captures.spoil(id, Code::CAPTURE_ISOLATION))
            }
            (Some(id), Recorded::Captured(other, _)) if id != other => {
                self.captures.spoil(other, Code::CAPTURE_MERGE);
                Err(self.captures.spoil(id, Code::CAPTURE_MERGE))
            }
            (Some(id), Recorded::Captured(_, point)) => self.captures.join(id, key, &point),
            (None, Recorded::Captured(id, point)) => {
                if self.captures.get(id).is_none() {
                    return Err(Code::CAPTURED_EVENT);
                }
                if key.is_legacy() {
                    return Err(self.captures.spoil(id, Code::CAPTURE_IMPLICIT));
                }
                self.captures.join(id, key, &point)?;
                self.streams.get_mut(key)?.capture = Some(id);
                Ok(())
            }
        }
    }

    /// Destroys a stream.
    pub fn destroy_stream(&mut self, key: Key) -> Outcome {
        if let Some(id) = self.streams.destroy(key)?.capture {
            self.captures.forget(id, key);
        }
        Ok(())
    }

    /// Begins a capture.
    pub fn begin_capture(&mut self, key: Key, mode: Mode) -> Outcome {
        let stream = self.streams.get(key)?;
        if key.is_legacy() {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        if let Some(id) = stream.capture {
            return Err(self.captures.spoil(id, Code::CAPTURE_UNSUPPORTED));
        }
        let graph = self.graphs.create();
        let id = self.captures.begin(key, mode, graph);
        self.streams.get_mut(key)?.capture = Some(id);
        Ok(())
    }

    /// Ends a capture; returns the graph.
    pub fn end_capture(&mut self, key: Key) -> Outcome<usize> {
        let id = self.streams.get(key)?.capture.ok_or(Code::CAPTURE_UNMATCHED)?;
        let (capture, outcome) = self.captures.end(id, key);
        let Some(capture) = capture else { return outcome.map(|_| 0) };
        self.streams.leave_capture(id);
        match outcome {
            Ok(duration) => {
                let graph = Graph { nodes: capture.nodes, duration, external: capture.external };
                self.graphs.complete(capture.graph, graph)?;
                Ok(capture.graph)
            }
            Err(code) => {
                self.graphs.destroy(capture.graph)?;
                Err(code)
            }
        }
    }

    /// Launches a graph in a stream.
    pub fn launch_graph(&mut self, graph: usize, key: Key, now: u64) -> Outcome {
        let Graph { duration, external, .. } = self.graphs.get(graph)?.clone();
        let start = self.streams.start(key, now)?;
        self.work(key, Some(duration), now)?;
        for (event, at) in external {
            // An event that was destroyed since then is nobody's.
            let _ = self.events.record(event, Recorded::At(start.saturating_add(at)));
        }
        Ok(())
    }

    /// The host has waited for something: pools give back what they do not keep.
    pub fn synchronized(&mut self, now: u64) {
        self.count(Counter::Wait);
        for pool in self.pools.iter_mut().flatten() {
            pool.synchronized(&mut self.devices, now);
        }
    }

    /// `cudaMallocAsync`.
    pub fn allocate_async(&mut self, pool: usize, size: usize, key: Key, now: u64) -> Outcome<usize> {
        self.streams.get(key)?;
        let bytes = Pool::rounded(size)?;
        let slot = self.pools.get_mut(pool).and_then(Option::as_mut).ok_or(Code::INVALID_VALUE)?;
        slot.allocate(&mut self.devices, bytes, key, now)?;
        let device = slot.device;
        match self.memory.allocate(&mut self.devices, device, size, Kind::Pooled(pool)) {
            Ok(address) => {
                self.count(Counter::Malloc);
                if self.streams.get(key)?.capture.is_some() {
                    self.of_graphs.insert(address);
                }
                self.work(key, None, now)?;
                Ok(address)
            }
            Err(code) => {
                if let Some(pool) = self.pools.get_mut(pool).and_then(Option::as_mut) {
                    pool.free(bytes, key, now);
                }
                Err(code)
            }
        }
    }

    /// `cudaFreeAsync`. A graph can free what a graph has allocated, and nothing else.
    pub fn free_async(&mut self, address: usize, key: Key, now: u64) -> Outcome {
        let ours = self.of_graphs.remove(&address);
        if let Some(id) = self.streams.get(key)?.capture
            && !ours
        {
            return Err(self.captures.spoil(id, Code::INVALID_VALUE));
        }
        let accepts = |kind: Kind| matches!(kind, Kind::Pooled(_) | Kind::Device);
        let range = self.memory.free(&mut self.devices, address, accepts)?;
        self.count(Counter::Free);
        self.work(key, None, now)?;
        if let Kind::Pooled(pool) = range.kind {
            let done = self.streams.get(key)?.busy_until;
            if let Some(pool) = self.pools.get_mut(pool).and_then(Option::as_mut) {
                pool.free(Pool::rounded(range.size)?, key, done);
            }
        }
        Ok(())
    }
}

/// The process's machine: made at the first call that needs it, so that a program may still set its environment.
pub struct Simulator {
    /// The clock, which is waited for without the lock.
    pub clock: Clock,
    model: Mutex<Model>,
}

/// The process's machine.
pub fn simulator() -> &'static Simulator {
    static SIMULATOR: OnceLock<Simulator> = OnceLock::new();
    SIMULATOR.get_or_init(|| {
        let config = Config::from_env();
        if let Some(path) = &config.trace {
            trace::start(path);
        }
        call::refuse_children();
        Simulator { clock: Clock::new(config.manual), model: Mutex::new(Model::new(config)) }
    })
}

/// The machine, locked. A panic in another thread has left it usable: each call changes it in small steps.
pub fn lock() -> MutexGuard<'static, Model> {
    simulator().model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The present.
pub fn now() -> u64 {
    simulator().clock.now()
}

/// Whether work that ends at `instant` is done, and what the program gave to streams before it.
pub fn is_done(instant: u64) -> bool {
    now() >= instant && callback::are_done(instant)
}

/// Makes the host wait until that is so, and lets pools know.
pub fn wait_until(instant: u64) {
    let clock = &simulator().clock;
    clock.wait_until(instant);
    callback::wait_until(instant);
    lock().synchronized(clock.now());
}
