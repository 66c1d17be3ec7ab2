//! Copies and fills. Bytes move at the call; the stream is occupied for as long as any operation.

use super::stream::synchronize;
use crate::call::runtime;
use crate::code::{Code, Outcome};
use crate::device;
use crate::kernel;
use crate::mapping;
use crate::memory::Range;
use crate::model::{lock, now};
use crate::note;
use crate::stream::Key;

/// `cudaMemcpyKind`.
mod kind {
    pub(super) const TO_DEVICE: i32 = 1;
    pub(super) const TO_HOST: i32 = 2;
    pub(super) const DEVICE: i32 = 3;
    pub(super) const DEFAULT: i32 = 4;
}

/// One side of a copy: rows of bytes.
#[derive(Clone, Copy)]
struct Side {
    address: usize,
    pitch: usize,
}

/// What was found before a byte moves.
struct Checked {
    /// Whether the host must wait afterwards: the target is memory that the device cannot write by itself.
    waits: bool,
    /// Whether both sides are pages of this device.
    owned: bool,
    /// Whether the host reads one byte: a truth value that the program may branch on.
    answers: bool,
}

/// Checks that device addresses are live.
fn check(target: Side, source: Side, width: usize, height: usize, kind: i32) -> Outcome<Checked> {
    let model = lock();
    if !(0..=kind::DEFAULT).contains(&kind) {
        return Err(Code::INVALID_VALUE);
    }
    let span = |side: Side| match height.checked_sub(1) {
        Some(gaps) => gaps.checked_mul(side.pitch).and_then(|bytes| bytes.checked_add(width)),
        None => Some(0),
    };
    let (Some(written), Some(read)) = (span(target), span(source)) else { return Err(Code::INVALID_VALUE) };
    let known = |side: Side| model.memory.find(side.address);
    let must = |side: Side, claimed: bool| claimed || known(side).is_some_and(Range::on_device);
    let into_device = must(target, matches!(kind, kind::TO_DEVICE | kind::DEVICE));
    let from_device = must(source, matches!(kind, kind::TO_HOST | kind::DEVICE));
    if into_device {
        model.memory.reachable(target.address, written, true)?;
    }
    if from_device {
        model.memory.reachable(source.address, read, false)?;
    }
    if target.address == 0 || source.address == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let owned = model.memory.owned(target.address, written) && model.memory.owned(source.address, read);
    let answers = from_device && read == 1 && !must(target, false);
    Ok(Checked { waits: from_device && known(target).is_none(), owned, answers })
}

fn transfer(target: Side, source: Side, width: usize, height: usize, kind: i32, stream: usize) -> Outcome {
    let key = Key::of(stream, lock().current()?);
    if width == 0 || height == 0 {
        return lock().streams.get(key).map(drop);
    }
    let checked = check(target, source, width, height, kind)?;
    let captured = {
        let mut model = lock();
        model.work(key, None, now())?;
        model.streams.get(key)?.capture.is_some()
    };
    if captured {
        return Ok(());
    }
    for row in 0..height {
        // SAFETY: device ranges were found live and large enough above; that host memory is valid for `width`
        // bytes a row, and that nobody frees either side before the call returns, is the caller's part of
        // CUDA's contract. What is owned was reserved by this device.
        unsafe {
            let (to, from) = (target.address + row * target.pitch, source.address + row * source.pitch);
            if checked.owned { mapping::copy_sparse(to, from, width) } else { mapping::copy(to, from, width) }
        }
    }
    if checked.answers && kernel::and_was_last() {
        // SAFETY: as above, of one byte, which was just written.
        unsafe { std::ptr::write(target.address as *mut u8, 1) };
    }
    if checked.waits { synchronize(key) } else { Ok(()) }
}

fn flat(target: usize, source: usize, size: usize, kind: i32, stream: usize) -> Outcome {
    note!("{target:#x} <- {source:#x} size {size} kind {kind} stream {stream:#x}");
    let side = |address| Side { address, pitch: size };
    transfer(side(target), side(source), size, 1, kind, stream)
}

/// Copies from device memory to device memory in a stream.
pub fn within(target: usize, source: usize, size: usize, stream: usize) -> Outcome {
    flat(target, source, size, kind::DEVICE, stream)
}

/// Copies in a stream. Into pageable host memory the host waits, as CUDA documents.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemcpyAsync(
    target: usize,
    source: usize,
    size: usize,
    kind: i32,
    stream: usize,
) -> Code {
    runtime("cudaMemcpyAsync", || flat(target, source, size, kind, stream))
}

/// Copies and waits.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemcpy(target: usize, source: usize, size: usize, kind: i32) -> Code {
    runtime("cudaMemcpy", || {
        lock().captures.potentially_unsafe()?;
        flat(target, source, size, kind, 0)?;
        synchronize(Key::of(0, device::current()))
    })
}

/// Copies between devices in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemcpyPeerAsync(
    target: usize,
    target_device: i32,
    source: usize,
    source_device: i32,
    size: usize,
    stream: usize,
) -> Code {
    runtime("cudaMemcpyPeerAsync", || {
        {
            let model = lock();
            model.numbered(target_device)?;
            model.numbered(source_device)?;
        }
        flat(target, source, size, kind::DEVICE, stream)
    })
}

/// Copies rows in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemcpy2DAsync(
    target: usize,
    target_pitch: usize,
    source: usize,
    source_pitch: usize,
    width: usize,
    height: usize,
    kind: i32,
    stream: usize,
) -> Code {
    runtime("cudaMemcpy2DAsync", || {
        note!("{target:#x} <- {source:#x} {width} by {height} kind {kind} stream {stream:#x}");
        if width > target_pitch || width > source_pitch {
            return Err(Code::INVALID_VALUE);
        }
        let (target, source) =
            (Side { address: target, pitch: target_pitch }, Side { address: source, pitch: source_pitch });
        transfer(target, source, width, height, kind, stream)
    })
}

/// Copies into a variable of a module, which nothing reads here.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemcpyToSymbol(
    _symbol: usize,
    _source: usize,
    _size: usize,
    _offset: usize,
    _kind: i32,
) -> Code {
    runtime("cudaMemcpyToSymbol", || {
        let device = lock().current()?;
        lock().work(Key::of(0, device), None, now())
    })
}

/// Fills in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemsetAsync(target: usize, value: i32, size: usize, stream: usize) -> Code {
    runtime("cudaMemsetAsync", || fill(target, value as u8, size, stream))
}

/// Fills in the default stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaMemset(target: usize, value: i32, size: usize) -> Code {
    runtime("cudaMemset", || {
        lock().captures.potentially_unsafe()?;
        fill(target, value as u8, size, 0)
    })
}

fn fill(target: usize, value: u8, size: usize, stream: usize) -> Outcome {
    note!("{target:#x} value {value} size {size} stream {stream:#x}");
    let mut model = lock();
    let key = Key::of(stream, model.current()?);
    model.memory.reachable(target, size, true)?;
    model.work(key, None, now())?;
    if size == 0 || model.streams.get(key)?.capture.is_some() {
        return Ok(());
    }
    let owned = model.memory.owned(target, size);
    drop(model);
    // SAFETY: the range was found live and writable above, and made by this device where pages are dropped; that
    // nobody frees it before the call returns is the caller's part of CUDA's contract.
    unsafe {
        match value {
            0 if owned => mapping::zero(target, size),
            _ => mapping::fill(target, value, size),
        }
    }
    Ok(())
}
