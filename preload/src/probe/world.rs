//! What is known of the running Python and its torch.

use super::{frames, heap, objects, tensors};
use crate::platform::memory;
use crate::platform::real;
use crate::python::collector::Collector;
use crate::python::{interpreter, version};
use crate::stacks;

/// What is known of the running Python and its torch.
#[derive(Clone)]
pub(super) struct World {
    pub(super) python: objects::Python,
    pub(super) torch: tensors::Torch,
    pub(super) frames: Option<frames::Frames>,
    pub(super) collector: Collector,
    pub(super) interpreter: u64,
}

/// What needs no GIL and may wait for others, as the loader's lock does: it is looked up before the first slice.
pub(super) struct Prepared {
    pub(super) python: objects::Python,
    pub(super) torch: tensors::Torch,
    pub(super) frames: Option<frames::Frames>,
    /// `PyInterpreterState_Get`.
    pub(super) interpreter: extern "C" fn() -> u64,
}

/// Looks up what needs no GIL, off the job's threads.
pub(super) fn prepare() -> Result<Prepared, String> {
    let Some(minor) = version::python_minor() else {
        return Err("there is no Python in this process".into());
    };
    if version::is_free_threaded() {
        return Err("this Python is a free-threaded build".into());
    }
    if interpreter::is_finalizing() {
        return Err("the job ended first".into());
    }
    if !interpreter::prepare() {
        return Err("functions of Python that the search needs were not found".into());
    }
    heap::look_up();
    if !memory::can_be_copied() {
        return Err("the kernel does not let a process copy its own memory".into());
    }
    // SAFETY: the function has had this type since 3.9.
    let interpreter = unsafe { real::of_python(c"PyInterpreterState_Get") };
    let interpreter = interpreter.ok_or("this Python does not export PyInterpreterState_Get")?;
    let frames = frames::Frames::find(minor).filter(|_| stacks::are_proved());
    let (python, torch) = (objects::Python::look_up(minor)?, tensors::Torch::find()?);
    Ok(Prepared { python, torch, frames, interpreter })
}
