//! Local variables of running frames, of every thread: the collector does not see those (3.11 and newer).

use super::objects::{Python, read};
use crate::real;
use std::ffi::CStr;

/// Functions that tell the threads, and where frames lie. None of it makes or counts anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    head: extern "C" fn(u64) -> u64,
    next: extern "C" fn(u64) -> u64,
    /// Thread state: where the chain begins; 0: in the state itself.
    cframe: u64,
    current: u64,
    code: u64,
    previous: u64,
    owner: Option<u64>,
    /// Code: names of the variables, how many.
    names: u64,
    count: u64,
    qualname: u64,
}

/// A frame's variables begin here.
const LOCALS: u64 = 72;
/// Longest chain that is followed.
const DEEPEST: usize = 4096;
/// Frames of the interpreter itself have no code.
const OWNED_BY_INTERPRETER: u8 = 3;

impl Frames {
    /// For a version; `None` where its frames are not known, or are the collector's own objects (up to 3.10).
    pub(super) fn find(minor: u32) -> Option<Frames> {
        let function = |name: &CStr| {
            let p = real::python(name);
            // SAFETY: both functions have had this type since 3.0.
            (!p.is_null()).then(|| unsafe {
                core::mem::transmute::<*mut core::ffi::c_void, extern "C" fn(u64) -> u64>(p)
            })
        };
        let (head, next) = (function(c"PyInterpreterState_ThreadHead")?, function(c"PyThreadState_Next")?);
        let common = Frames {
            head,
            next,
            cframe: 56,
            current: 0,
            code: 0,
            previous: 8,
            owner: Some(70),
            names: 96,
            count: 72,
            qualname: 128,
        };
        match minor {
            11 => Some(Frames { current: 8, code: 32, previous: 48, owner: None, count: 76, ..common }),
            12 => Some(common),
            13 => Some(Frames { cframe: 0, current: 72, ..common }),
            _ => None,
        }
    }

    /// Hands out every variable: its value (that in its cell, where it is in one), and a function that tells its name.
    ///
    /// # Safety
    /// With the GIL held, of this interpreter, whose frames' layout has been proved.
    pub(super) unsafe fn locals(
        &self,
        python: &Python,
        interpreter: u64,
        each: &mut dyn FnMut(u64, &dyn Fn() -> String),
    ) {
        const CELL_VALUE: u64 = 16;
        const TUPLE_ITEMS: u64 = 24;
        let mut thread = (self.head)(interpreter);
        // SAFETY: a thread that does not run has its frames in order, and none runs but this one, which is in a call of ours.
        // A frame holds its code, and has as many variables as that says; each is null or an object that is alive.
        unsafe {
            while thread != 0 {
                let base = if self.cframe != 0 { read(thread + self.cframe) } else { thread };
                let mut frame = if base != 0 { read(base + self.current) } else { 0 };
                for _ in 0..DEEPEST {
                    if frame == 0 {
                        break;
                    }
                    let owned = |at: u64| *((frame + at) as *const u8) >= OWNED_BY_INTERPRETER;
                    if !self.owner.is_some_and(owned) {
                        let code = read(frame + self.code);
                        let count = read(code + self.count) as u32;
                        let names = read(code + self.names);
                        for i in 0..u64::from(count) {
                            let value = read(frame + LOCALS + 8 * i);
                            if value == 0 {
                                continue;
                            }
                            let value = match python.is_cell(value) {
                                true => read(value + CELL_VALUE),
                                false => value,
                            };
                            each(value, &|| {
                                let name = python.text(read(names + TUPLE_ITEMS + 8 * i));
                                format!("{name}, a local of {}", python.text(read(code + self.qualname)))
                            });
                        }
                    }
                    frame = read(frame + self.previous);
                }
                thread = (self.next)(thread);
            }
        }
    }
}
