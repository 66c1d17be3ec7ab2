//! NVML (`libnvidia-ml`): totals, names, processes. It sees all devices of the machine, visible or not, and of the
//! processes this one and those that share its card, and as number 1 whoever holds `STRANDLINE_SIM_OTHER`.

use crate::abi::{Out, Text, write_text};
use crate::card::Card;
use crate::code::Code;
use crate::device;
use crate::model::{Model, lock};
use crate::runtime::VERSION;
use std::ffi::c_char;

/// `nvmlReturn_t`.
mod status {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const INVALID_ARGUMENT: i32 = 2;
    pub(super) const NOT_FOUND: i32 = 6;
    pub(super) const INSUFFICIENT_SIZE: i32 = 7;
    pub(super) const VERSION_MISMATCH: i32 = 25;
}

/// A device's handle: its place in the machine behind this number.
const FIRST: usize = 0x81 << 36;

type Status<T = ()> = Result<T, i32>;

fn answer(outcome: Status) -> i32 {
    outcome.err().unwrap_or(status::SUCCESS)
}

fn invalid(_: Code) -> i32 {
    status::INVALID_ARGUMENT
}

fn physical(model: &Model, handle: usize) -> Status<usize> {
    let place = handle.checked_sub(FIRST).ok_or(status::INVALID_ARGUMENT)? / 0x100;
    if place < model.config.devices { Ok(place) } else { Err(status::INVALID_ARGUMENT) }
}

fn find(handle: Out<usize>, is: impl Fn(usize) -> bool) -> i32 {
    let place = (0..lock().config.devices).find(|&place| is(place)).ok_or(status::NOT_FOUND);
    answer(place.and_then(|place| handle.set(FIRST + place * 0x100).map_err(invalid)))
}

/// Who holds what of a device.
struct Held {
    total: u64,
    /// This process first, then those that share the card, then whoever was made up.
    by: Vec<(u32, u64)>,
}

impl Held {
    fn used(&self) -> u64 {
        self.by.iter().map(|(_, bytes)| bytes).sum::<u64>().min(self.total)
    }
}

fn held(model: &Model, handle: usize) -> Status<Held> {
    let place = physical(model, handle)?;
    let config = &model.config;
    let (total, mine, other) = match model.devices.iter().find(|device| device.physical == place) {
        Some(device) => (device.total, device.used, device.other),
        None => (config.total, 0, config.other),
    };
    let mut by = vec![(std::process::id(), mine)];
    by.extend(config.card.iter().flat_map(|folder| Card::new(folder, place).others()));
    by.extend((other > 0).then_some((1, other.min(total))));
    Ok(Held { total, by })
}

/// Starts NVML.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlInit_v2() -> i32 {
    status::SUCCESS
}

/// Starts NVML.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlInit() -> i32 {
    status::SUCCESS
}

/// Starts NVML.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlInitWithFlags(_flags: u32) -> i32 {
    status::SUCCESS
}

/// Ends NVML.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlShutdown() -> i32 {
    status::SUCCESS
}

/// What an error means.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlErrorString(code: i32) -> *const c_char {
    match code {
        status::SUCCESS => c"Success",
        status::INVALID_ARGUMENT => c"Invalid Argument",
        3 => c"Not Supported",
        status::NOT_FOUND => c"Not Found",
        status::INSUFFICIENT_SIZE => c"Insufficient Size",
        status::VERSION_MISMATCH => c"Argument Version Mismatch",
        _ => c"Unknown Error",
    }
    .as_ptr()
}

/// Devices of the machine.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetCount_v2(count: Out<u32>) -> i32 {
    answer(count.set(lock().config.devices as u32).map_err(invalid))
}

/// Devices of the machine.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetCount(count: Out<u32>) -> i32 {
    sim_nvmlDeviceGetCount_v2(count)
}

/// A device by its place.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetHandleByIndex_v2(index: u32, handle: Out<usize>) -> i32 {
    match find(handle, |place| place == index as usize) {
        status::NOT_FOUND => status::INVALID_ARGUMENT,
        code => code,
    }
}

/// A device by its place.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetHandleByIndex(index: u32, handle: Out<usize>) -> i32 {
    sim_nvmlDeviceGetHandleByIndex_v2(index, handle)
}

/// A device by its PCI address, whose domain may have four digits or eight.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetHandleByPciBusId_v2(address: Text, handle: Out<usize>) -> i32 {
    let wanted = address.as_str().to_ascii_uppercase();
    find(handle, |place| {
        !wanted.is_empty() && wanted.trim_start_matches('0') == device::pci(place).trim_start_matches('0')
    })
}

/// A device by its PCI address.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetHandleByPciBusId(address: Text, handle: Out<usize>) -> i32 {
    sim_nvmlDeviceGetHandleByPciBusId_v2(address, handle)
}

/// A device by its identity.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetHandleByUUID(uuid: Text, handle: Out<usize>) -> i32 {
    find(handle, |place| uuid.as_str().strip_prefix("GPU-") == Some(&device::uuid_text(place)))
}

/// A device's place.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetIndex(handle: usize, index: Out<u32>) -> i32 {
    answer(physical(&lock(), handle).and_then(|place| index.set(place as u32).map_err(invalid)))
}

fn text(handle: usize, buffer: Out<u8>, length: u32, text: impl FnOnce(usize) -> String) -> i32 {
    answer(physical(&lock(), handle).and_then(|place| {
        let text = text(place);
        if text.len() >= length as usize {
            return Err(status::INSUFFICIENT_SIZE);
        }
        write_text(buffer, length.into(), &text).map_err(invalid)
    }))
}

/// A device's identity.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetUUID(handle: usize, buffer: Out<u8>, length: u32) -> i32 {
    text(handle, buffer, length, |place| format!("GPU-{}", device::uuid_text(place)))
}

/// A device's name.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetName(handle: usize, buffer: Out<u8>, length: u32) -> i32 {
    text(handle, buffer, length, device::name)
}

/// `nvmlMemory_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

/// Total, free and used bytes of a device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetMemoryInfo(handle: usize, memory: Out<MemoryInfo>) -> i32 {
    answer(held(&lock(), handle).and_then(|held| {
        let (total, used) = (held.total, held.used());
        memory.set(MemoryInfo { total, free: total - used, used }).map_err(invalid)
    }))
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryInfo2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// The version that a caller puts in: the size, and 2 in the highest byte.
const MEMORY_2: u32 = size_of::<MemoryInfo2>() as u32 | 2 << 24;

/// Total, free and used bytes of a device; nothing is reserved.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetMemoryInfo_v2(handle: usize, memory: Out<MemoryInfo2>) -> i32 {
    answer(held(&lock(), handle).and_then(|held| {
        if memory.get().map_err(invalid)?.version != MEMORY_2 {
            return Err(status::VERSION_MISMATCH);
        }
        let (total, used) = (held.total, held.used());
        let info = MemoryInfo2 { version: MEMORY_2, total, reserved: 0, free: total - used, used };
        memory.set(info).map_err(invalid)
    }))
}

/// `nvmlProcessInfo_v1_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProcessInfo1 {
    pid: u32,
    used: u64,
}

/// `nvmlProcessInfo_t` since its second version.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProcessInfo {
    pid: u32,
    used: u64,
    instances: [u32; 2],
}

/// Those that hold something; where there is too little room, how much is needed.
fn processes<T: Copy>(handle: usize, count: Out<u32>, infos: Out<T>, make: fn(u32, u64) -> T) -> i32 {
    answer(held(&lock(), handle).and_then(|held| {
        let list = held.by;
        let room = count.get().map_err(invalid)?;
        count.offer(list.len() as u32);
        if (room as usize) < list.len() {
            return Err(status::INSUFFICIENT_SIZE);
        }
        infos.fill(room as usize, list.into_iter().map(|(pid, used)| make(pid, used)));
        Ok(())
    }))
}

/// Processes on a device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetComputeRunningProcesses(
    handle: usize,
    count: Out<u32>,
    infos: Out<ProcessInfo1>,
) -> i32 {
    processes(handle, count, infos, |pid, used| ProcessInfo1 { pid, used })
}

/// Processes on a device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetComputeRunningProcesses_v2(
    handle: usize,
    count: Out<u32>,
    infos: Out<ProcessInfo>,
) -> i32 {
    processes(handle, count, infos, |pid, used| ProcessInfo { pid, used, instances: [u32::MAX; 2] })
}

/// Processes on a device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlDeviceGetComputeRunningProcesses_v3(
    handle: usize,
    count: Out<u32>,
    infos: Out<ProcessInfo>,
) -> i32 {
    sim_nvmlDeviceGetComputeRunningProcesses_v2(handle, count, infos)
}

/// The driver's version.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlSystemGetDriverVersion(buffer: Out<u8>, length: u32) -> i32 {
    answer(write_text(buffer, length.into(), "580.00").map_err(invalid))
}

/// The version of CUDA that the driver has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) -> i32 {
    answer(version.set(VERSION).map_err(invalid))
}

/// The version of CUDA that the driver has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_nvmlSystemGetCudaDriverVersion(version: Out<i32>) -> i32 {
    sim_nvmlSystemGetCudaDriverVersion_v2(version)
}
