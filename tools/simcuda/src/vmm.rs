//! Virtual memory: addresses reserved apart from the physical memory that is mapped there, which is what
//! PyTorch's expandable segments are made of.

use crate::code::{Code, Outcome};
use crate::device::{Device, UNIT};
use crate::handle::Handles;
use crate::mapping::{self, Access};
use crate::memory::{Kind, Memory, Range};
use std::collections::BTreeMap;

/// Physical memory made by `cuMemCreate`.
#[derive(Clone, Copy, Debug)]
struct Physical {
    size: usize,
    device: Option<usize>,
    handle_types: i32,
    references: usize,
    mappings: usize,
}

/// Where memory is made: a device, or the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Properties {
    /// The device; none for host memory.
    pub device: Option<usize>,
    /// Kinds of handle it may be exported as; only remembered.
    pub handle_types: i32,
}

/// Reserved addresses, physical memory and what is mapped where.
pub struct Vmm {
    reservations: BTreeMap<usize, usize>,
    physical: Handles<Physical>,
    mappings: BTreeMap<usize, (usize, usize)>,
}

impl Default for Vmm {
    fn default() -> Self {
        Vmm { reservations: BTreeMap::new(), physical: Handles::new(8), mappings: BTreeMap::new() }
    }
}

fn whole_units(size: usize) -> Outcome {
    if size > 0 && size.is_multiple_of(UNIT as usize) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

impl Vmm {
    /// `cuMemAddressReserve`.
    pub fn reserve(&mut self, size: usize, align: usize) -> Outcome<usize> {
        whole_units(size)?;
        let align = align.max(UNIT as usize);
        if !align.is_power_of_two() {
            return Err(Code::INVALID_VALUE);
        }
        let base = mapping::reserve(size, align, Access::None)?;
        self.reservations.insert(base, size);
        Ok(base)
    }

    /// `cuMemAddressFree`: a whole reservation, with nothing mapped in it.
    pub fn free(&mut self, base: usize, size: usize) -> Outcome {
        if self.reservations.get(&base) != Some(&size) || self.mapped_within(base, size).next().is_some() {
            return Err(Code::INVALID_VALUE);
        }
        self.reservations.remove(&base);
        mapping::release(base, size);
        Ok(())
    }

    /// `cuMemCreate`.
    pub fn create(&mut self, devices: &mut [Device], size: usize, properties: Properties) -> Outcome<usize> {
        whole_units(size)?;
        if let Some(device) = properties.device {
            devices.get_mut(device).ok_or(Code::INVALID_DEVICE)?.charge(size as u64)?;
        }
        let Properties { device, handle_types } = properties;
        Ok(self.physical.insert(Physical { size, device, handle_types, references: 1, mappings: 0 }))
    }

    /// `cuMemRelease`: the memory lives on while it is mapped.
    pub fn release(&mut self, devices: &mut [Device], handle: usize) -> Outcome {
        let physical = self.physical.get_mut(handle).map_err(|_| Code::INVALID_VALUE)?;
        physical.references = physical.references.checked_sub(1).ok_or(Code::INVALID_VALUE)?;
        self.bury(devices, handle);
        Ok(())
    }

    /// `cuMemMap`.
    pub fn map(
        &mut self,
        memory: &mut Memory,
        base: usize,
        size: usize,
        offset: usize,
        handle: usize,
    ) -> Outcome {
        whole_units(size)?;
        let end = base.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        let reserved = self.reservations.range(..=base).next_back();
        if reserved.is_none_or(|(&start, &length)| end > start + length) || memory.overlaps(base, size) {
            return Err(Code::INVALID_VALUE);
        }
        let physical = self.physical.get_mut(handle).map_err(|_| Code::INVALID_VALUE)?;
        if physical.references == 0 || offset.checked_add(size).is_none_or(|end| end > physical.size) {
            return Err(Code::INVALID_VALUE);
        }
        physical.mappings += 1;
        let device = physical.device.unwrap_or(0);
        memory.insert(Range { base, size, extent: size, kind: Kind::Mapped(Access::None), device });
        self.mappings.insert(base, (size, handle));
        Ok(())
    }

    /// `cuMemSetAccess`: whole mappings, without gaps.
    pub fn set_access(&mut self, memory: &mut Memory, base: usize, size: usize, access: Access) -> Outcome {
        self.exact(base, size)?;
        mapping::protect(base, size, access)?;
        for (&start, _) in self.mapped_within(base, size) {
            if let Some(range) = memory.at_mut(start) {
                range.kind = Kind::Mapped(access);
            }
        }
        Ok(())
    }

    /// `cuMemUnmap`: whole mappings, without gaps.
    pub fn unmap(
        &mut self,
        memory: &mut Memory,
        devices: &mut [Device],
        base: usize,
        size: usize,
    ) -> Outcome {
        self.exact(base, size)?;
        mapping::empty(base, size)?;
        let gone: Vec<(usize, usize)> =
            self.mapped_within(base, size).map(|(&start, &(_, handle))| (start, handle)).collect();
        for (start, handle) in gone {
            self.mappings.remove(&start);
            memory.forget(start);
            if let Ok(physical) = self.physical.get_mut(handle) {
                physical.mappings -= 1;
            }
            self.bury(devices, handle);
        }
        Ok(())
    }

    /// `cuMemRetainAllocationHandle`: the memory behind an address, held once more.
    pub fn retain(&mut self, address: usize) -> Outcome<usize> {
        let (&start, &(size, handle)) =
            self.mappings.range(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
        if address - start >= size {
            return Err(Code::INVALID_VALUE);
        }
        self.physical.get_mut(handle)?.references += 1;
        Ok(handle)
    }

    /// `cuMemGetAllocationPropertiesFromHandle`.
    pub fn properties(&self, handle: usize) -> Outcome<Properties> {
        let physical = self.physical.get(handle).map_err(|_| Code::INVALID_VALUE)?;
        Ok(Properties { device: physical.device, handle_types: physical.handle_types })
    }

    fn mapped_within(&self, base: usize, size: usize) -> impl Iterator<Item = (&usize, &(usize, usize))> {
        self.mappings.range(base..base.saturating_add(size))
    }

    /// Whether [base, base + size) is made of whole mappings that follow each other.
    fn exact(&self, base: usize, size: usize) -> Outcome {
        let end = base.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        let mut at = base;
        while at < end {
            let (length, _) = self.mappings.get(&at).ok_or(Code::INVALID_VALUE)?;
            at += length;
        }
        if at == end && size > 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn bury(&mut self, devices: &mut [Device], handle: usize) {
        let dead = self.physical.get(handle).is_ok_and(|p| p.references == 0 && p.mappings == 0);
        if dead
            && let Ok(physical) = self.physical.remove(handle)
            && let Some(device) = physical.device.and_then(|device| devices.get_mut(device))
        {
            device.refund(physical.size as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: usize = UNIT as usize;
    const ON_0: Properties = Properties { device: Some(0), handle_types: 0 };

    #[test]
    fn memory_lives_until_it_is_released_and_unmapped() {
        let (mut vmm, mut memory, mut devices) =
            (Vmm::default(), Memory::default(), [Device::new(0, 4 * UNIT, 0)]);
        let base = vmm.reserve(8 * U, 0).unwrap();
        let handle = vmm.create(&mut devices, 2 * U, ON_0).unwrap();
        assert_eq!(vmm.map(&mut memory, base, 2 * U, 0, handle), Ok(()));
        assert_eq!(memory.reachable(base, 1, false), Err(Code::ILLEGAL_ADDRESS));
        assert_eq!(vmm.set_access(&mut memory, base, 2 * U, Access::ReadWrite), Ok(()));
        assert_eq!(memory.reachable(base, 2 * U, true), Ok(()));
        assert_eq!(vmm.release(&mut devices, handle), Ok(()));
        assert_eq!(devices[0].used, 2 * UNIT);
        assert_eq!(vmm.free(base, 8 * U), Err(Code::INVALID_VALUE));
        assert_eq!(vmm.unmap(&mut memory, &mut devices, base, U), Err(Code::INVALID_VALUE));
        assert_eq!(vmm.unmap(&mut memory, &mut devices, base, 2 * U), Ok(()));
        assert_eq!(devices[0].used, 0);
        assert_eq!(vmm.free(base, 8 * U), Ok(()));
    }

    #[test]
    fn mappings_stay_inside_reservations_and_apart() {
        let (mut vmm, mut memory, mut devices) =
            (Vmm::default(), Memory::default(), [Device::new(0, 4 * UNIT, 0)]);
        let base = vmm.reserve(2 * U, 0).unwrap();
        let a = vmm.create(&mut devices, U, ON_0).unwrap();
        assert_eq!(vmm.map(&mut memory, base + 2 * U, U, 0, a), Err(Code::INVALID_VALUE));
        assert_eq!(vmm.map(&mut memory, base + U, U, 0, a), Ok(()));
        assert_eq!(vmm.map(&mut memory, base + U, U, 0, a), Err(Code::INVALID_VALUE));
        assert_eq!(vmm.map(&mut memory, base, 2 * U, 0, a), Err(Code::INVALID_VALUE));
        assert_eq!(vmm.set_access(&mut memory, base, 2 * U, Access::ReadWrite), Err(Code::INVALID_VALUE));
        assert_eq!(vmm.retain(base + U + 5), Ok(a));
        assert_eq!(vmm.release(&mut devices, a), Ok(()));
        assert_eq!(vmm.unmap(&mut memory, &mut devices, base + U, U), Ok(()));
        assert_eq!(vmm.properties(a), Ok(ON_0));
        assert_eq!(vmm.release(&mut devices, a), Ok(()));
        assert_eq!(vmm.properties(a), Err(Code::INVALID_VALUE));
        assert_eq!(vmm.create(&mut devices, 5 * U, ON_0), Err(Code::OUT_OF_MEMORY));
    }
}
