//! Which device a thread works on, for those who choose it through the driver: a context is made on a device, and a thread
//! has a stack of contexts. Nothing is recorded here, and nothing arms: launchers look at devices too.

use super::filled::filled;
use super::functions::{P, SUCCESS, Status};
use super::sticky_error::hooks;
use crate::platform::tls;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Contexts that are told apart; those beyond count for the device that their thread chose before.
const CONTEXTS: usize = 64;
/// Devices that fit into a byte beside "none".
const DEVICES: i32 = 254;

/// A context's handle and its device. Handles of destroyed ones are overwritten when they come again.
static KNOWN: [[AtomicU64; 2]; CONTEXTS] = [const { [const { AtomicU64::new(0) }; 2] }; CONTEXTS];

/// The device of a context.
fn device(context: P) -> Option<u8> {
    let of = |[c, _]: &&[AtomicU64; 2]| c.load(Relaxed) == context as u64;
    let [_, device] = KNOWN.iter().take_while(|[c, _]| c.load(Relaxed) != 0).find(of)?;
    Some(device.load(Relaxed) as u8)
}

/// After a context was made, or asked for, on a device.
///
/// # Safety
/// `context` must be what the successful call filled.
unsafe fn made(status: Status, context: *mut P, on: i32) -> Option<u8> {
    // SAFETY: the caller's promise.
    let handle = unsafe { filled(status, context) }.filter(|_| (0..DEVICES).contains(&on))? as u64;
    for [c, device] in &KNOWN {
        let taken = c.compare_exchange(0, handle, Relaxed, Relaxed);
        if handle != 0 && (taken.is_ok() || taken == Err(handle)) {
            device.store(on as u64, Relaxed);
            break;
        }
    }
    Some(on as u8)
}

/// After a context was made that is the current one from now on.
///
/// # Safety
/// As of [`made`].
unsafe fn entered(status: Status, context: *mut P, on: i32) {
    // SAFETY: the caller's promise.
    if let Some(device) = unsafe { made(status, context, on) } {
        tls::push_device(Some(device));
    }
}

hooks! {
    retain: CU_PRIMARY_CTX_RETAIN(context: *mut P, on: i32), after |_hook, status| {
        // SAFETY: the call has returned.
        unsafe { made(status, context, on) }
    };
    create: CU_CTX_CREATE(context: *mut P, flags: u32, on: i32), after |_hook, status| {
        // SAFETY: the call has returned.
        unsafe { entered(status, context, on) }
    };
    create_v4: CU_CTX_CREATE_V4(context: *mut P, parameters: P, flags: u32, on: i32), after |_hook, status| {
        // SAFETY: the call has returned.
        unsafe { entered(status, context, on) }
    };
    set_current: CU_CTX_SET_CURRENT(context: P), after |_hook, status| {
        if status == SUCCESS && let Some(device) = device(context) {
            tls::set_device(device);
        }
    };
    push: CU_CTX_PUSH_CURRENT(context: P), after |_hook, status| {
        if status == SUCCESS {
            tls::push_device(device(context));
        }
    };
    pop: CU_CTX_POP_CURRENT(context: *mut P), after |_hook, status| {
        if status == SUCCESS {
            tls::pop_device();
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_works_on_the_device_of_its_uppermost_context() {
        let (mut a, mut b) = (0x1000 as P, 0x2000 as P);
        // SAFETY: both are live pointers.
        let kept =
            unsafe { [made(SUCCESS, &mut a, 3), made(SUCCESS, &mut b, 1), made(SUCCESS + 1, &mut b, 2)] };
        assert_eq!(kept, [Some(3), Some(1), None]);
        assert_eq!([device(a), device(b), device(0x3000 as P)], [Some(3), Some(1), None]);
        tls::set_device(3);
        tls::push_device(device(b));
        assert_eq!(tls::device(), 1);
        tls::push_device(None);
        assert_eq!(tls::device(), 1, "of a context that is not known nothing is known");
        tls::set_device(2);
        assert_eq!(tls::device(), 2);
        tls::pop_device();
        assert_eq!(tls::device(), 1);
        tls::pop_device();
        tls::pop_device();
        assert_eq!(tls::device(), 3, "more were popped than pushed");
    }
}
