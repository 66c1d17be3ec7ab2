//! Stream-ordered pools: `cudaMallocAsync` and `cudaFreeAsync`.
//!
//! A pool holds device memory in chunks. What is freed comes back to the pool at once for its own stream, for
//! others once the work before the free is done; it goes back to the device at a synchronization, down to the
//! release threshold. The model counts bytes; it has no fragmentation.

use crate::code::{Code, Outcome};
use crate::device::{Device, UNIT};
use crate::stream::Key;

/// A pool grows and shrinks by this much, as far as the device has it.
const CHUNK: u64 = 32 << 20;
const ALIGN: u64 = 512;

/// Memory freed in a stream's order.
#[derive(Clone, Copy, Debug)]
struct Pending {
    bytes: u64,
    stream: Key,
    done: u64,
}

/// One pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// The device whose memory it holds.
    pub device: usize,
    /// Bytes it keeps at a synchronization.
    pub threshold: u64,
    /// Bytes it holds, now and at most.
    pub reserved: u64,
    /// The most it ever held, since it was reset.
    pub reserved_high: u64,
    /// Bytes in use.
    pub used: u64,
    /// The most in use, since it was reset.
    pub used_high: u64,
    /// The three reuse switches, which are kept and change nothing here.
    pub reuse: [i32; 3],
    pending: Vec<Pending>,
}

impl Pool {
    /// An empty pool.
    pub fn new(device: usize) -> Self {
        Pool { device, reuse: [1; 3], ..Pool::default() }
    }

    /// What an allocation of `size` bytes takes.
    pub fn rounded(size: usize) -> Outcome<u64> {
        (size as u64).checked_next_multiple_of(ALIGN).ok_or(Code::OUT_OF_MEMORY)
    }

    /// Takes `bytes` for a stream.
    pub fn allocate(&mut self, devices: &mut [Device], bytes: u64, stream: Key, now: u64) -> Outcome {
        let device = devices.get_mut(self.device).ok_or(Code::INVALID_DEVICE)?;
        self.pending.retain(|pending| pending.done > now);
        let elsewhere: u64 = self.pending.iter().filter(|p| p.stream != stream).map(|p| p.bytes).sum();
        let available = self.reserved.saturating_sub(self.used).saturating_sub(elsewhere);
        if bytes > available {
            let short = bytes - available;
            let chunks = short.checked_next_multiple_of(CHUNK).ok_or(Code::OUT_OF_MEMORY)?;
            let grown = match device.charge(chunks) {
                Ok(()) => chunks,
                Err(_) => {
                    let units = short.checked_next_multiple_of(UNIT).ok_or(Code::OUT_OF_MEMORY)?;
                    device.charge(units)?;
                    units
                }
            };
            self.reserved += grown;
            self.reserved_high = self.reserved_high.max(self.reserved);
        } else {
            self.reclaim(stream, bytes);
        }
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        Ok(())
    }

    /// Gives `bytes` back behind the work of a stream that will be done at `done`.
    pub fn free(&mut self, bytes: u64, stream: Key, done: u64) {
        self.used = self.used.saturating_sub(bytes);
        self.pending.push(Pending { bytes, stream, done });
    }

    /// The program has waited for something: what is free goes back to the device, down to the threshold.
    pub fn synchronized(&mut self, devices: &mut [Device], now: u64) {
        self.trim(devices, self.threshold, now);
    }

    /// Gives free memory back to the device, but keeps `keep` bytes.
    pub fn trim(&mut self, devices: &mut [Device], keep: u64, now: u64) {
        self.pending.retain(|pending| pending.done > now);
        let held: u64 = self.used + self.pending.iter().map(|p| p.bytes).sum::<u64>();
        let target = held.max(keep).checked_next_multiple_of(CHUNK).unwrap_or(u64::MAX);
        if self.reserved > target {
            if let Some(device) = devices.get_mut(self.device) {
                device.refund(self.reserved - target);
            }
            self.reserved = target;
        }
    }

    /// Memory that the stream itself freed is used again before its work is done.
    fn reclaim(&mut self, stream: Key, mut bytes: u64) {
        let quiet =
            self.reserved.saturating_sub(self.used + self.pending.iter().map(|p| p.bytes).sum::<u64>());
        bytes = bytes.saturating_sub(quiet);
        for pending in self.pending.iter_mut().filter(|p| p.stream == stream) {
            let taken = pending.bytes.min(bytes);
            pending.bytes -= taken;
            bytes -= taken;
        }
        self.pending.retain(|pending| pending.bytes > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn freed_memory_is_the_streams_own_at_once_and_others_later() {
        let mut devices = [Device::new(0, 64 * MIB, 0)];
        let mut pool = Pool::new(0);
        let (a, b) = (Key::of(100, 0), Key::of(200, 0));
        pool.allocate(&mut devices, 20 * MIB, a, 0).unwrap();
        assert_eq!((pool.reserved, devices[0].used), (CHUNK, CHUNK));
        pool.free(20 * MIB, a, 1_000);
        pool.allocate(&mut devices, 20 * MIB, a, 0).unwrap();
        assert_eq!(pool.reserved, CHUNK);
        pool.free(20 * MIB, a, 1_000);
        pool.allocate(&mut devices, 20 * MIB, b, 0).unwrap();
        assert_eq!(pool.reserved, 2 * CHUNK);
        pool.free(20 * MIB, b, 1_000);
        pool.allocate(&mut devices, 60 * MIB, b, 1_000).unwrap();
        assert_eq!(pool.reserved, 2 * CHUNK);
        assert_eq!(pool.used_high, 60 * MIB);
    }

    #[test]
    fn a_synchronization_keeps_the_threshold() {
        let mut devices = [Device::new(0, 256 * MIB, 0)];
        let mut pool = Pool::new(0);
        let stream = Key::of(0, 0);
        pool.allocate(&mut devices, 200 * MIB, stream, 0).unwrap();
        pool.free(200 * MIB, stream, 10);
        pool.synchronized(&mut devices, 5);
        assert_eq!(pool.reserved, 224 * MIB);
        pool.threshold = 64 * MIB;
        pool.synchronized(&mut devices, 10);
        assert_eq!((pool.reserved, devices[0].used), (64 * MIB, 64 * MIB));
        assert_eq!(pool.allocate(&mut devices, 300 * MIB, stream, 10), Err(Code::OUT_OF_MEMORY));
    }
}
