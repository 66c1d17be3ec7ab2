//! Devices: capacity, identity, attributes, and which one a thread has made current.

use crate::card::Card;
use crate::code::{Code, Outcome};
use std::cell::Cell;
use std::collections::BTreeSet;

/// Memory is charged in units of this many bytes.
pub const UNIT: u64 = 2 << 20;

/// One device.
pub struct Device {
    /// Its place in the machine, which `CUDA_VISIBLE_DEVICES` may hide or reorder.
    pub physical: usize,
    /// Capacity in bytes.
    pub total: u64,
    /// Bytes held by this process.
    pub used: u64,
    /// Bytes held by other processes.
    pub other: u64,
    /// Devices whose memory it has been allowed to reach.
    pub peers: BTreeSet<usize>,
    /// What a context takes, which this process has none of yet.
    context: u64,
    /// Where other processes say what they hold.
    pub card: Option<Card>,
}

impl Device {
    /// An empty device.
    pub fn new(physical: usize, total: u64, other: u64) -> Self {
        Device { physical, total, used: 0, other, peers: BTreeSet::new(), context: 0, card: None }
    }

    /// The same, with contexts of so many bytes, on a card that other processes may share.
    pub fn shared(self, context: u64, card: Option<Card>) -> Self {
        Device { context, card, ..self }
    }

    /// Bytes that others hold: whoever was made up, and processes that share the card.
    pub fn others(&self) -> u64 {
        let shared = self.card.as_ref().map_or(0, |card| card.others().iter().map(|(_, bytes)| bytes).sum());
        self.other.saturating_add(shared)
    }

    /// Bytes that nobody holds.
    pub fn free(&self) -> u64 {
        self.total.saturating_sub(self.used).saturating_sub(self.others())
    }

    /// The process has a context here from now on, for its life.
    pub fn enter(&mut self) -> Outcome {
        let context = std::mem::take(&mut self.context);
        if context == 0 {
            return Ok(());
        }
        self.take(context).inspect_err(|_| self.context = context)
    }

    /// Takes `bytes`, or says that there are not as many.
    pub fn charge(&mut self, bytes: u64) -> Outcome {
        self.enter()?;
        self.take(bytes)
    }

    fn take(&mut self, bytes: u64) -> Outcome {
        if bytes > self.free() {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.used += bytes;
        self.tell();
        Ok(())
    }

    /// Gives `bytes` back.
    pub fn refund(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        self.tell();
    }

    fn tell(&self) {
        if let Some(card) = &self.card {
            card.tell(self.used);
        }
    }
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The device that this thread has made current.
pub fn current() -> usize {
    CURRENT.try_with(Cell::get).unwrap_or(0)
}

/// Makes a device current on this thread.
pub fn set_current(device: usize) {
    let _ = CURRENT.try_with(|current| current.set(device));
}

/// The name of a device of the machine.
pub fn name(physical: usize) -> String {
    format!("Simulated device {physical}")
}

/// The 16 bytes that identify a device of the machine.
pub fn uuid(physical: usize) -> [u8; 16] {
    let mut bytes = *b"strandline-sim\0\0";
    bytes[15] = physical as u8 + 1;
    bytes
}

/// The identity as text, without the `GPU-` in front.
pub fn uuid_text(physical: usize) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid(physical).iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The PCI address of a device of the machine.
pub fn pci(physical: usize) -> String {
    format!("0000:{:02X}:00.0", physical + 1)
}

/// The number of the PCI bus of a device of the machine.
pub fn pci_bus(physical: usize) -> i32 {
    physical as i32 + 1
}

/// `cudaDeviceAttr` / `CUdevice_attribute` by number. The figures are an A100's, an H200's from capability 9.0.
/// What the device does not have reads 0, as on a real one.
pub fn attribute(number: i32, capability: (i32, i32), physical: usize) -> i32 {
    let hopper = capability.0 >= 9;
    match number {
        1..=3 => {
            if number == 3 {
                64
            } else {
                1024
            }
        }
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 => 65_536,
        13 => {
            if hopper {
                1_980_000
            } else {
                1_410_000
            }
        }
        14 => 512,
        16 => {
            if hopper {
                132
            } else {
                108
            }
        }
        19 => 1,
        31 => 1,
        33 => pci_bus(physical),
        36 => {
            if hopper {
                3_201_000
            } else {
                1_215_000
            }
        }
        37 => {
            if hopper {
                6_144
            } else {
                5_120
            }
        }
        38 => {
            if hopper {
                60 << 20
            } else {
                40 << 20
            }
        }
        39 => 2_048,
        40 => 3,
        41 => 1,
        75 => capability.0,
        76 => capability.1,
        78..=80 => 1,
        81 => {
            if hopper {
                228 << 10
            } else {
                164 << 10
            }
        }
        82 => 65_536,
        83 => 1,
        89..=91 | 95 => 1,
        97 => {
            if hopper {
                227 << 10
            } else {
                163 << 10
            }
        }
        99 | 102 | 103 | 115 => 1,
        106 => 32,
        111 => 1_024,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_counts_other_processes() {
        let mut device = Device::new(0, 10 * UNIT, 4 * UNIT);
        assert_eq!(device.charge(7 * UNIT), Err(Code::OUT_OF_MEMORY));
        assert_eq!(device.charge(6 * UNIT), Ok(()));
        assert_eq!(device.free(), 0);
        device.refund(UNIT);
        assert_eq!(device.free(), UNIT);
    }

    #[test]
    fn a_context_is_taken_once_and_before_anything_else() {
        let mut device = Device::new(0, 10 * UNIT, 0).shared(3 * UNIT, None);
        assert_eq!(device.free(), 10 * UNIT, "there is none yet");
        assert_eq!(device.charge(8 * UNIT), Err(Code::OUT_OF_MEMORY));
        assert_eq!(device.charge(7 * UNIT), Ok(()));
        assert_eq!((device.enter(), device.free()), (Ok(()), 0));
        device.refund(7 * UNIT);
        assert_eq!(device.free(), 7 * UNIT, "it stays");
    }

    #[test]
    fn identities_differ() {
        assert_eq!(uuid_text(0).len(), 36);
        assert_ne!(uuid_text(0), uuid_text(1));
        assert_ne!(pci(0), pci(1));
    }
}
