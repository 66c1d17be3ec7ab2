//! Streams: each is busy until some instant; work pushes that instant on.

use crate::code::{Code, Outcome};
use crate::handle::Handles;

/// `cudaStreamNonBlocking`: does not order itself against the legacy default stream.
pub const NON_BLOCKING: u32 = 1;

/// Which stream is meant, whatever device is current: a created one by its handle, a default one by its
/// handle (0 legacy, 2 per thread) and device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    handle: usize,
    device: usize,
}

impl Key {
    /// The stream that `handle` names while `device` is current. Null and 1 are the legacy default stream, 2 is
    /// the thread's (here one for all threads of a device).
    pub fn of(handle: usize, device: usize) -> Key {
        match handle {
            0 | 1 => Key { handle: 0, device },
            2 => Key { handle: 2, device },
            _ => Key { handle, device: 0 },
        }
    }

    /// Whether it is a device's legacy default stream.
    pub fn is_legacy(self) -> bool {
        self.handle == 0
    }

    /// Whether it is a default stream, which cannot be destroyed.
    pub fn is_default(self) -> bool {
        self.handle <= 2
    }
}

/// One stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The device it lives on.
    pub device: usize,
    /// Flags it was created with.
    pub flags: u32,
    /// Priority it was created with.
    pub priority: i32,
    /// The instant at which its work so far ends.
    pub busy_until: u64,
    /// The capture it takes part in.
    pub capture: Option<u64>,
}

impl Stream {
    fn new(device: usize, flags: u32, priority: i32) -> Self {
        Stream { device, flags, priority, busy_until: 0, capture: None }
    }
}

/// All streams.
pub struct Streams {
    legacy: Vec<Stream>,
    threads: Vec<Stream>,
    created: Handles<Stream>,
}

impl Streams {
    /// The default streams of `devices` devices.
    pub fn new(devices: usize) -> Self {
        let default = |flags: u32| (0..devices).map(|device| Stream::new(device, flags, 0)).collect();
        Streams { legacy: default(0), threads: default(0), created: Handles::new(0) }
    }

    /// Makes a stream.
    pub fn create(&mut self, device: usize, flags: u32, priority: i32) -> usize {
        self.created.insert(Stream::new(device, flags, priority.clamp(-5, 0)))
    }

    /// Destroys a stream; its work goes on, which nobody can see any more.
    pub fn destroy(&mut self, key: Key) -> Outcome<Stream> {
        if key.is_default() {
            return Err(Code::INVALID_HANDLE);
        }
        self.created.remove(key.handle)
    }

    /// A stream.
    pub fn get(&self, key: Key) -> Outcome<&Stream> {
        match key.handle {
            0 => self.legacy.get(key.device).ok_or(Code::INVALID_HANDLE),
            2 => self.threads.get(key.device).ok_or(Code::INVALID_HANDLE),
            handle => self.created.get(handle),
        }
    }

    /// A stream, to change it.
    pub fn get_mut(&mut self, key: Key) -> Outcome<&mut Stream> {
        match key.handle {
            0 => self.legacy.get_mut(key.device).ok_or(Code::INVALID_HANDLE),
            2 => self.threads.get_mut(key.device).ok_or(Code::INVALID_HANDLE),
            handle => self.created.get_mut(handle),
        }
    }

    /// When work given to the stream now would start: after its own, and after what the legacy default stream's
    /// rule adds.
    pub fn start(&self, key: Key, now: u64) -> Outcome<u64> {
        let stream = self.get(key)?;
        let own = stream.busy_until.max(now);
        if key.is_legacy() {
            return Ok(self
                .of(stream.device)
                .filter(|s| blocking(s))
                .fold(own, |at, s| at.max(s.busy_until)));
        }
        let legacy = self.legacy.get(stream.device).filter(|_| blocking(stream));
        Ok(legacy.map_or(own, |legacy| own.max(legacy.busy_until)))
    }

    /// Occupies the stream for `cost` nanoseconds; returns when that work will be done.
    pub fn occupy(&mut self, key: Key, cost: u64, now: u64) -> Outcome<u64> {
        let done = self.start(key, now)?.saturating_add(cost);
        self.get_mut(key)?.busy_until = done;
        Ok(done)
    }

    /// When everything on the device will be done.
    pub fn device_done(&self, device: usize) -> u64 {
        self.of(device).map(|stream| stream.busy_until).max().unwrap_or(0)
    }

    /// Whether a stream that orders itself against the legacy default stream of `device` is being captured.
    pub fn blocking_capture(&self, device: usize) -> Option<u64> {
        self.of(device).filter(|stream| blocking(stream)).find_map(|stream| stream.capture)
    }

    /// Takes every stream out of a capture.
    pub fn leave_capture(&mut self, id: u64) {
        let defaults = self.legacy.iter_mut().chain(self.threads.iter_mut());
        for stream in defaults.chain(self.created.values_mut()).filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
    }

    fn of(&self, device: usize) -> impl Iterator<Item = &Stream> {
        let defaults = self.legacy.get(device).into_iter().chain(self.threads.get(device));
        defaults.chain(self.created.values()).filter(move |stream| stream.device == device)
    }
}

fn blocking(stream: &Stream) -> bool {
    stream.flags & NON_BLOCKING == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_queues_up_behind_work() {
        let mut streams = Streams::new(1);
        let key = Key::of(streams.create(0, NON_BLOCKING, 0), 0);
        assert_eq!(streams.occupy(key, 100, 1_000), Ok(1_100));
        assert_eq!(streams.occupy(key, 100, 1_050), Ok(1_200));
        assert_eq!(streams.occupy(key, 100, 5_000), Ok(5_100));
        assert_eq!(streams.device_done(0), 5_100);
    }

    #[test]
    fn the_legacy_stream_orders_itself_against_blocking_streams_alone() {
        let mut streams = Streams::new(2);
        let legacy = Key::of(0, 0);
        let free = Key::of(streams.create(0, NON_BLOCKING, 0), 0);
        let bound = Key::of(streams.create(0, 0, 0), 0);
        let elsewhere = Key::of(streams.create(1, 0, 0), 0);
        streams.occupy(free, 500, 0).unwrap();
        streams.occupy(elsewhere, 900, 0).unwrap();
        streams.occupy(bound, 300, 0).unwrap();
        assert_eq!(streams.occupy(legacy, 10, 0), Ok(310));
        assert_eq!(streams.occupy(bound, 1, 0), Ok(311));
        assert_eq!(streams.occupy(free, 1, 0), Ok(501));
    }

    #[test]
    fn destroyed_and_invented_streams_are_refused() {
        let mut streams = Streams::new(1);
        let key = Key::of(streams.create(0, 0, -99), 0);
        assert_eq!(streams.get(key).map(|s| s.priority), Ok(-5));
        assert!(streams.destroy(key).is_ok());
        assert_eq!(streams.occupy(key, 1, 0), Err(Code::INVALID_HANDLE));
        assert!(streams.get(Key::of(0xdead_beef, 0)).is_err());
        assert!(streams.destroy(Key::of(0, 0)).is_err());
    }
}
