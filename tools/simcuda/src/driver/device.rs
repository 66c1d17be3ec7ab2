//! Initialisation, versions, devices, errors.

use crate::abi::{Out, Text, write_text};
use crate::call::{driver, known_as};
use crate::code::{Code, Outcome};
use crate::device;
use crate::model::lock;
use crate::runtime::VERSION;
use crate::runtime::device::get_attribute;
use std::ffi::c_char;

/// Starts the driver.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuInit(_flags: u32) -> Code {
    driver("cuInit", || if lock().devices.is_empty() { Err(Code::NO_DEVICE) } else { Ok(()) })
}

/// The driver's version.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDriverGetVersion(version: Out<i32>) -> Code {
    driver("cuDriverGetVersion", || version.set(VERSION))
}

/// How many devices this process sees.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetCount(count: Out<i32>) -> Code {
    driver("cuDeviceGetCount", || count.set(lock().devices.len() as i32))
}

/// A device by number.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGet(device: Out<i32>, number: i32) -> Code {
    driver("cuDeviceGet", || device.set(lock().numbered(number)? as i32))
}

/// An attribute by number.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) -> Code {
    driver("cuDeviceGetAttribute", || get_attribute(value, attribute, device))
}

/// A device's place in the machine.
fn physical(device: i32) -> Outcome<usize> {
    let model = lock();
    Ok(model.device(model.numbered(device)?)?.physical)
}

/// A device's name.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetName(text: Out<u8>, length: i32, device: i32) -> Code {
    driver("cuDeviceGetName", || write_text(text, length.into(), &device::name(physical(device)?)))
}

/// A device's capacity.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> Code {
    driver("cuDeviceTotalMem_v2", || {
        let model = lock();
        bytes.set(model.device(model.numbered(device)?)?.total as usize)
    })
}

/// A device's identity.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) -> Code {
    driver("cuDeviceGetUuid", || uuid.set(device::uuid(physical(device)?)))
}

/// A device's identity.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) -> Code {
    driver("cuDeviceGetUuid_v2", || uuid.set(device::uuid(physical(device)?)))
}

/// A device's PCI address.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetPCIBusId(text: Out<u8>, length: i32, device: i32) -> Code {
    driver("cuDeviceGetPCIBusId", || write_text(text, length.into(), &device::pci(physical(device)?)))
}

/// The device at a PCI address.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDeviceGetByPCIBusId(device: Out<i32>, text: Text) -> Code {
    known_as("cuDeviceGetByPCIBusId", || crate::runtime::device::sim_cudaDeviceGetByPCIBusId(device, text))
}

/// What an error means.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuGetErrorString(code: Code, text: Out<*const c_char>) -> Code {
    driver("cuGetErrorString", || {
        code.driver_name().ok_or(Code::INVALID_VALUE)?;
        text.set(code.text().as_ptr())
    })
}

/// An error's name.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuGetErrorName(code: Code, text: Out<*const c_char>) -> Code {
    driver("cuGetErrorName", || text.set(code.driver_name().ok_or(Code::INVALID_VALUE)?.as_ptr()))
}

/// Describes a matrix to the copying units of capability 9.0: nothing copies by it here.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuTensorMapEncodeTiled() -> Code {
    driver("cuTensorMapEncodeTiled", || Ok(()))
}

/// The same for a convolution.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuTensorMapEncodeIm2col() -> Code {
    driver("cuTensorMapEncodeIm2col", || Ok(()))
}
