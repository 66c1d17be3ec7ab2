//! Devices.

use crate::abi::{Out, Text, write_text};
use crate::call::runtime;
use crate::code::{Code, Outcome};
use crate::device;
use crate::model::{lock, wait_until};
use crate::note;

/// How many devices this process sees; none is an error.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetDeviceCount(count: Out<i32>) -> Code {
    runtime("cudaGetDeviceCount", || {
        let devices = lock().devices.len();
        count.set(devices as i32)?;
        note!("{devices}");
        if devices == 0 { Err(Code::NO_DEVICE) } else { Ok(()) }
    })
}

/// The thread's device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetDevice(device: Out<i32>) -> Code {
    runtime("cudaGetDevice", || device.set(lock().current()? as i32))
}

/// Makes a device the thread's.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaSetDevice(device: i32) -> Code {
    runtime("cudaSetDevice", || {
        note!("device {device}");
        device::set_current(lock().numbered(device)?);
        Ok(())
    })
}

/// An attribute by number.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) -> Code {
    runtime("cudaDeviceGetAttribute", || get_attribute(value, attribute, device))
}

/// The same for the driver.
pub fn get_attribute(value: Out<i32>, attribute: i32, device: i32) -> Outcome {
    let model = lock();
    let device = model.numbered(device)?;
    value.set(device::attribute(attribute, model.config.capability, model.device(device)?.physical))
}

/// A device's PCI address as text.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceGetPCIBusId(text: Out<u8>, length: i32, device: i32) -> Code {
    runtime("cudaDeviceGetPCIBusId", || {
        let model = lock();
        let device = model.numbered(device)?;
        write_text(text, length.into(), &device::pci(model.device(device)?.physical))
    })
}

/// The device at a PCI address.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceGetByPCIBusId(device: Out<i32>, text: Text) -> Code {
    runtime("cudaDeviceGetByPCIBusId", || {
        let model = lock();
        let wanted = text.as_str();
        let found = model.devices.iter().position(|d| device::pci(d.physical).eq_ignore_ascii_case(wanted));
        device.set(found.ok_or(Code::INVALID_DEVICE)? as i32)
    })
}

/// Least and greatest priority of streams.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> Code {
    runtime("cudaDeviceGetStreamPriorityRange", || {
        least.offer(0);
        greatest.offer(-5);
        Ok(())
    })
}

/// Waits for the device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceSynchronize() -> Code {
    runtime("cudaDeviceSynchronize", || {
        let device = lock().current()?;
        note!("device {device}");
        synchronize(device)
    })
}

/// Waits for a device.
pub fn synchronize(device: usize) -> Outcome {
    let done = lock().device_done(device)?;
    wait_until(done);
    Ok(())
}

/// Whether one device can reach another's memory: each can.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> Code {
    runtime("cudaDeviceCanAccessPeer", || {
        let model = lock();
        let (device, peer) = (model.numbered(device)?, model.numbered(peer)?);
        can.set((device != peer).into())
    })
}

/// Lets the thread's device reach a peer's memory. Copies do not ask whether it may.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceEnablePeerAccess(peer: i32, flags: u32) -> Code {
    runtime("cudaDeviceEnablePeerAccess", || {
        note!("peer {peer}");
        let mut model = lock();
        let (device, peer) = (model.current()?, model.numbered(peer)?);
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if device == peer {
            return Err(Code::INVALID_DEVICE);
        }
        match model.devices.get_mut(device).map(|device| device.peers.insert(peer)) {
            Some(true) => Ok(()),
            _ => Err(Code::PEER_ALREADY_ENABLED),
        }
    })
}

/// The opposite.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDeviceDisablePeerAccess(peer: i32) -> Code {
    runtime("cudaDeviceDisablePeerAccess", || {
        let mut model = lock();
        let (device, peer) = (model.current()?, model.numbered(peer)?);
        match model.devices.get_mut(device).map(|device| device.peers.remove(&peer)) {
            Some(true) => Ok(()),
            _ => Err(Code::PEER_NOT_ENABLED),
        }
    })
}
