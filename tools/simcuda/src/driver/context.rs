//! Contexts: a device has one, its primary; making it current makes the device current.

use crate::abi::Out;
use crate::call::driver;
use crate::code::{Code, Outcome};
use crate::device;
use crate::model::lock;
use crate::note;
use std::cell::RefCell;

/// A primary context's handle: its device behind this number.
const FIRST: usize = 0x71 << 36;

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The handle of a device's context.
pub fn handle(device: usize) -> usize {
    FIRST + device * 0x100
}

fn device_of(context: usize) -> Outcome<usize> {
    let offset = context.checked_sub(FIRST).ok_or(Code::INVALID_CONTEXT)?;
    let device = offset / 0x100;
    lock().device(device).map(|_| device).map_err(|_| Code::INVALID_CONTEXT)
}

/// The thread's context: its device's. (A real thread has none before its first call of the runtime.)
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuCtxGetCurrent(context: Out<usize>) -> Code {
    driver("cuCtxGetCurrent", || context.set(handle(lock().current()?)))
}

/// Makes a context the thread's; none is allowed and changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuCtxSetCurrent(context: usize) -> Code {
    driver("cuCtxSetCurrent", || {
        note!("context {context:#x}");
        if context != 0 {
            device::set_current(device_of(context)?);
        }
        Ok(())
    })
}

/// Makes a context the thread's until it is popped.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuCtxPushCurrent_v2(context: usize) -> Code {
    driver("cuCtxPushCurrent_v2", || {
        let device = device_of(context)?;
        let _ = STACK.try_with(|stack| stack.borrow_mut().push(device::current()));
        device::set_current(device);
        Ok(())
    })
}

/// Pops it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuCtxPopCurrent_v2(context: Out<usize>) -> Code {
    driver("cuCtxPopCurrent_v2", || {
        context.offer(handle(device::current()));
        if let Ok(Some(device)) = STACK.try_with(|stack| stack.borrow_mut().pop()) {
            device::set_current(device);
        }
        Ok(())
    })
}

/// The thread's device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuCtxGetDevice(device: Out<i32>) -> Code {
    driver("cuCtxGetDevice", || device.set(lock().current()? as i32))
}

/// Waits for the thread's device.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuCtxSynchronize() -> Code {
    driver("cuCtxSynchronize", || {
        let device = lock().current()?;
        crate::runtime::device::synchronize(device)
    })
}

/// A device's primary context.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) -> Code {
    driver("cuDevicePrimaryCtxRetain", || {
        let mut model = lock();
        let device = model.numbered(device)?;
        model.enter(device)?;
        context.set(handle(device))
    })
}

/// It stays for the life of the process.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDevicePrimaryCtxRelease_v2(device: i32) -> Code {
    driver("cuDevicePrimaryCtxRelease_v2", || lock().numbered(device).map(drop))
}

/// It is always active.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> Code {
    driver("cuDevicePrimaryCtxGetState", || {
        lock().numbered(device)?;
        flags.offer(0);
        active.offer(1);
        Ok(())
    })
}

/// The first form.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuCtxPushCurrent(context: usize) -> Code {
    sim_cuCtxPushCurrent_v2(context)
}

/// The first form.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuCtxPopCurrent(context: Out<usize>) -> Code {
    sim_cuCtxPopCurrent_v2(context)
}

/// The first form.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuDevicePrimaryCtxRelease(device: i32) -> Code {
    sim_cuDevicePrimaryCtxRelease_v2(device)
}
