//! The table of what lies where: device, pinned, registered and virtually mapped ranges.

use crate::code::{Code, Outcome};
use crate::device::{Device, UNIT};
use crate::mapping::{self, Access};
use std::collections::BTreeMap;

/// What a range is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `cudaMalloc`.
    Device,
    /// `cudaMallocAsync`, from the pool of that handle.
    Pooled(usize),
    /// `cudaMallocManaged`.
    Managed,
    /// `cudaHostAlloc`.
    Pinned,
    /// `cudaHostRegister`: the program's own memory.
    Registered,
    /// `cuMemMap`, reachable once `cuMemSetAccess` has said so.
    Mapped(Access),
}

/// One live range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Its first address.
    pub base: usize,
    /// Bytes asked for.
    pub size: usize,
    /// Bytes of address space behind it.
    pub extent: usize,
    /// What it is.
    pub kind: Kind,
    /// The device it lies on, or was made from.
    pub device: usize,
}

impl Range {
    /// Whether it takes device memory.
    pub fn on_device(&self) -> bool {
        !matches!(self.kind, Kind::Pinned | Kind::Registered)
    }

    /// `cudaMemoryType`: 1 host, 2 device, 3 managed.
    pub fn memory_type(&self) -> i32 {
        match self.kind {
            Kind::Pinned | Kind::Registered => 1,
            Kind::Managed => 3,
            _ => 2,
        }
    }
}

/// All live ranges by their first address.
#[derive(Default)]
pub struct Memory {
    ranges: BTreeMap<usize, Range>,
}

impl Memory {
    /// Allocates `size` bytes; what lies on a device is charged to it, in whole units.
    pub fn allocate(
        &mut self,
        devices: &mut [Device],
        device: usize,
        size: usize,
        kind: Kind,
    ) -> Outcome<usize> {
        let extent = size.checked_next_multiple_of(UNIT as usize).ok_or(Code::OUT_OF_MEMORY)?;
        let charged = matches!(kind, Kind::Device | Kind::Managed);
        let owner = devices.get_mut(device).ok_or(Code::INVALID_DEVICE)?;
        if charged {
            owner.charge(extent as u64)?;
        }
        match mapping::reserve(extent, UNIT as usize, Access::ReadWrite) {
            Ok(base) => {
                self.insert(Range { base, size, extent, kind, device });
                Ok(base)
            }
            Err(code) => {
                if charged {
                    owner.refund(extent as u64);
                }
                Err(code)
            }
        }
    }

    /// Frees a range that `accepts` names; its first address must be given exactly.
    pub fn free(&mut self, devices: &mut [Device], base: usize, accepts: fn(Kind) -> bool) -> Outcome<Range> {
        let range = *self.ranges.get(&base).ok_or(Code::INVALID_VALUE)?;
        if !accepts(range.kind) {
            return Err(Code::INVALID_VALUE);
        }
        self.ranges.remove(&base);
        if matches!(range.kind, Kind::Device | Kind::Managed)
            && let Some(owner) = devices.get_mut(range.device)
        {
            owner.refund(range.extent as u64);
        }
        mapping::release(base, range.extent);
        Ok(range)
    }

    /// Enters a range that others have made.
    pub fn insert(&mut self, range: Range) {
        self.ranges.insert(range.base, range);
    }

    /// Takes a range out of the table without touching what lies behind it.
    pub fn forget(&mut self, base: usize) -> Option<Range> {
        self.ranges.remove(&base)
    }

    /// The range that starts at `base`, to change it.
    pub fn at_mut(&mut self, base: usize) -> Option<&mut Range> {
        self.ranges.get_mut(&base)
    }

    /// The range that holds `address`.
    pub fn find(&self, address: usize) -> Option<&Range> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address - range.base < range.size.max(1)).then_some(range)
    }

    /// Whether any range has a byte in [base, base + size).
    pub fn overlaps(&self, base: usize, size: usize) -> bool {
        let end = base.saturating_add(size);
        self.ranges.range(..end).next_back().is_some_and(|(_, r)| r.base.saturating_add(r.size) > base)
    }

    /// Whether a program may reach all of [address, address + size): through one range, or through virtual
    /// ones that follow each other without a gap.
    pub fn reachable(&self, address: usize, size: usize, write: bool) -> Outcome {
        let end = address.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        let mut at = address;
        while at < end {
            let range = self.find(at).ok_or(Code::INVALID_VALUE)?;
            match range.kind {
                Kind::Mapped(Access::None) => return Err(Code::ILLEGAL_ADDRESS),
                Kind::Mapped(Access::Read) if write => return Err(Code::ILLEGAL_ADDRESS),
                _ => at = range.base + range.size,
            }
        }
        Ok(())
    }

    /// Whether the pages of [address, address + size) are private ones of this device, all of them.
    pub fn owned(&self, address: usize, size: usize) -> bool {
        self.find(address)
            .is_some_and(|range| range.kind != Kind::Registered && address + size <= range.base + range.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> [Device; 1] {
        [Device::new(0, 8 * UNIT, 0)]
    }

    #[test]
    fn memory_is_charged_in_units_and_given_back() {
        let (mut memory, mut devices) = (Memory::default(), device());
        let a = memory.allocate(&mut devices, 0, 1, Kind::Device).unwrap();
        assert_eq!(devices[0].used, UNIT);
        let b = memory.allocate(&mut devices, 0, UNIT as usize + 1, Kind::Device).unwrap();
        assert_eq!(devices[0].used, 3 * UNIT);
        assert_eq!(
            memory.allocate(&mut devices, 0, 6 * UNIT as usize, Kind::Device),
            Err(Code::OUT_OF_MEMORY)
        );
        assert_eq!(memory.free(&mut devices, a + 1, |_| true), Err(Code::INVALID_VALUE));
        assert!(memory.free(&mut devices, a, |_| true).is_ok());
        assert_eq!(memory.free(&mut devices, a, |_| true), Err(Code::INVALID_VALUE));
        assert!(memory.free(&mut devices, b, |_| true).is_ok());
        assert_eq!(devices[0].used, 0);
    }

    #[test]
    fn host_memory_costs_the_device_nothing() {
        let (mut memory, mut devices) = (Memory::default(), device());
        let base = memory.allocate(&mut devices, 0, 100 * UNIT as usize, Kind::Pinned).unwrap();
        assert_eq!(devices[0].used, 0);
        assert_eq!(memory.free(&mut devices, base, |kind| kind == Kind::Device), Err(Code::INVALID_VALUE));
        assert!(memory.free(&mut devices, base, |kind| kind == Kind::Pinned).is_ok());
    }

    #[test]
    fn addresses_find_their_range() {
        let mut memory = Memory::default();
        let range = |base, size, kind| Range { base, size, extent: size, kind, device: 0 };
        memory.insert(range(100, 50, Kind::Device));
        memory.insert(range(150, 50, Kind::Mapped(Access::Read)));
        memory.insert(range(300, 50, Kind::Mapped(Access::None)));
        assert_eq!(memory.find(149).map(|r| r.base), Some(100));
        assert_eq!(memory.find(200), None);
        assert!(memory.find(99).is_none());
        assert_eq!(memory.reachable(120, 80, false), Ok(()));
        assert_eq!(memory.reachable(120, 80, true), Err(Code::ILLEGAL_ADDRESS));
        assert_eq!(memory.reachable(120, 81, false), Err(Code::INVALID_VALUE));
        assert_eq!(memory.reachable(300, 1, false), Err(Code::ILLEGAL_ADDRESS));
        assert!(memory.overlaps(199, 10) && !memory.overlaps(200, 100) && memory.overlaps(0, 101));
    }
}
