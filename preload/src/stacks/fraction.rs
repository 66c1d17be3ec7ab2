//! What share of a device torch is told to take at most: `torch.cuda.set_per_process_memory_fraction` hands it to the allocator,
//! which keeps it to itself, but asks the driver for the device's size meanwhile. Then the function's own frame has it.

use super::memory::{At, Direct, Memory};
use super::{object, offsets::TYPE, python};
use crate::platform::memory::Pipe;
use crate::platform::real;

/// `PyFloatObject.ob_fval`, the same in every version.
const FLOAT_VALUE: usize = 16;
/// Where torch has had it since 1.8; its first argument is the fraction.
const FUNCTION: &[u8] = b"set_per_process_memory_fraction";
const FILE: &[u8] = b"torch/cuda/memory.py";

/// The fraction that the calling thread sets just now, while it asks for the device's size. `None`: it does something else, or
/// frames are not read. Only reads; no heap, no lock, and system calls only in that very function.
#[cold]
pub(crate) fn being_set() -> Option<f64> {
    // SAFETY: what `innermost` reads was proved, and is this thread's own.
    let (o, frame, code) = python::innermost(&unsafe { Direct::new() })?;
    // SAFETY: the frame runs and keeps its code object alive, whose layout was proved.
    let said = unsafe { object::read(o, code) };
    if said.function.raw() != FUNCTION || !said.file.raw().ends_with(FILE) {
        return None;
    }
    // Where local variables lie was not proved: read through the kernel, a wrong guess is an error and not a fault.
    let memory = Pipe::new()?;
    let value = At::new(memory.read::<u64>(frame, o.locals)? & !o.tag)?;
    let is_float = memory.read::<u64>(value, TYPE)? == real::python(c"PyFloat_Type") as u64;
    let fraction = f64::from_bits(memory.read::<u64>(value, FLOAT_VALUE).filter(|_| is_float)?);
    (0.0..=1.0).contains(&fraction).then_some(fraction)
}
