//! The device through its C functions, as a program without torch would use it.
//!
//! All tests share one device and its clock, so they run one after the other, under a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use strandline_simcuda::abi::{In, Out, Text};
use strandline_simcuda::code::Code;
use strandline_simcuda::control::*;
use strandline_simcuda::driver::table::sim_cuGetProcAddress_v2;
use strandline_simcuda::runtime::device::*;
use strandline_simcuda::runtime::error::*;
use strandline_simcuda::runtime::event::*;
use strandline_simcuda::runtime::graph::*;
use strandline_simcuda::runtime::kernel::*;
use strandline_simcuda::runtime::memory::*;
use strandline_simcuda::runtime::pool::*;
use strandline_simcuda::runtime::stream::*;
use strandline_simcuda::runtime::transfer::*;

const MIB: usize = 1 << 20;
const OK: Code = Code::SUCCESS;

/// Alone with the device: 64 MiB, a clock that stands still, operations of 1 µs.
fn device() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    strandline_sim_set_clock_manual(1);
    strandline_sim_set_op_ns(1_000);
    strandline_sim_set_total(0, 64 * MIB as u64);
    strandline_sim_set_other(0, 0);
    assert_eq!(sim_cudaDeviceSynchronize(), OK);
    sim_cudaGetLastError();
    alone
}

fn out<T: Copy>(place: &mut T) -> Out<T> {
    // SAFETY: the reference is valid for the call that the value is made for.
    unsafe { Out::new(place) }
}

#[track_caller]
fn made(call: impl FnOnce(Out<usize>) -> Code) -> usize {
    let mut value = 0;
    assert_eq!(call(out(&mut value)), OK);
    value
}

#[test]
fn a_failed_allocation_is_remembered_once() {
    let _device = device();
    let mut address = 7;
    assert_eq!(sim_cudaMalloc(out(&mut address), 65 * MIB), Code::OUT_OF_MEMORY);
    assert_eq!(address, 0);
    assert_eq!(sim_cudaPeekAtLastError(), Code::OUT_OF_MEMORY);
    assert_eq!(sim_cudaGetLastError(), Code::OUT_OF_MEMORY);
    assert_eq!(sim_cudaGetLastError(), OK);
    assert_eq!(sim_cudaMalloc(Out::absent(), 1), Code::INVALID_VALUE);
    sim_cudaGetLastError();
}

#[test]
fn other_processes_take_their_part() {
    let _device = device();
    strandline_sim_set_other(0, 40 * MIB as u64);
    let (mut free, mut total) = (0, 0);
    assert_eq!(sim_cudaMemGetInfo(out(&mut free), out(&mut total)), OK);
    assert_eq!((free, total), (24 * MIB, 64 * MIB));
    let mut address = 0;
    assert_eq!(sim_cudaMalloc(out(&mut address), 26 * MIB), Code::OUT_OF_MEMORY);
    assert_eq!(sim_cudaMalloc(out(&mut address), 24 * MIB), OK);
    assert_eq!(sim_cudaFree(address), OK);
    assert_eq!(sim_cudaFree(address), Code::INVALID_VALUE);
}

#[test]
fn bytes_travel_and_stray_copies_are_refused() {
    let _device = device();
    let address = made(|out| sim_cudaMalloc(out, MIB));
    let sent: Vec<u8> = (0..=255).collect();
    let mut received = vec![0u8; 256];
    assert_eq!(sim_cudaMemcpy(address + 100, sent.as_ptr() as usize, 256, 1), OK);
    assert_eq!(sim_cudaMemset(address + 110, 0, 10), OK);
    assert_eq!(sim_cudaMemcpy(received.as_mut_ptr() as usize, address + 100, 256, 2), OK);
    assert_eq!(received[9..21], [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20]);
    assert_eq!(sim_cudaMemcpy(address + MIB - 8, sent.as_ptr() as usize, 16, 1), Code::INVALID_VALUE);
    assert_eq!(sim_cudaFree(address), OK);
    assert_eq!(sim_cudaMemcpy(address, sent.as_ptr() as usize, 16, 1), Code::INVALID_VALUE);
    sim_cudaGetLastError();
}

#[test]
fn an_event_holds_a_stream_back() {
    let _device = device();
    let a = made(|out| sim_cudaStreamCreateWithFlags(out, 1));
    let b = made(|out| sim_cudaStreamCreateWithFlags(out, 1));
    let event = made(|out| sim_cudaEventCreate(out));
    assert_eq!(sim_cudaEventQuery(event), OK);
    assert_eq!(strandline_sim_stream_busy(a, 0, 50_000), 0);
    assert_eq!(sim_cudaEventRecord(event, a), OK);
    assert_eq!(sim_cudaStreamWaitEvent(b, event, 0), OK);
    assert_eq!(sim_cudaEventQuery(event), Code::NOT_READY);
    assert_eq!(sim_cudaStreamQuery(b), Code::NOT_READY);
    assert_eq!(sim_cudaStreamQuery(0), OK);
    strandline_sim_advance(49_999);
    assert_eq!(sim_cudaStreamQuery(b), Code::NOT_READY);
    strandline_sim_advance(1);
    assert_eq!((sim_cudaStreamQuery(b), sim_cudaEventQuery(event)), (OK, OK));
    for stream in [a, b] {
        assert_eq!(sim_cudaStreamDestroy(stream), OK);
        assert_eq!(sim_cudaStreamQuery(stream), Code::INVALID_HANDLE);
    }
    assert_eq!(sim_cudaEventDestroy(event), OK);
    sim_cudaGetLastError();
}

#[test]
fn a_spinning_kernel_takes_its_cycles() {
    let _device = device();
    let host_function = 0x1234_5678;
    // SAFETY: a literal.
    let name = unsafe { Text::new(c"_ZN2at4cuda12_GLOBAL__N_111spin_kernelEl".as_ptr()) };
    sim___cudaRegisterFunction(0, host_function, 0, name, -1, 0, 0, 0, 0, 0);
    let kernel = made(|out| sim___cudaGetKernel(out, host_function));
    let cycles = 1_980_000i64;
    // SAFETY: both point to locals that outlive the launch.
    let argument = unsafe { In::new(&cycles) };
    // SAFETY: as above.
    let arguments = unsafe { In::new(&argument) };
    let (one, begin) = (Default::default(), strandline_sim_now());
    assert_eq!(sim___cudaLaunchKernel(kernel, one, one, arguments, 0, 0), OK);
    assert_eq!(sim_cudaDeviceSynchronize(), OK);
    assert_eq!(strandline_sim_now() - begin, 1_000_000);
}

#[test]
fn a_replay_takes_as_long_as_the_captured_work() {
    let _device = device();
    let (a, b) = (
        made(|out| sim_cudaStreamCreateWithFlags(out, 1)),
        made(|out| sim_cudaStreamCreateWithFlags(out, 1)),
    );
    let event = made(|out| sim_cudaEventCreate(out));
    let work =
        |stream, count| (0..count).for_each(|_| assert_eq!(strandline_sim_stream_busy(stream, 0, 1_000), 0));
    assert_eq!(sim_cudaStreamBeginCapture(a, 0), OK);
    work(a, 2);
    assert_eq!(sim_cudaEventRecord(event, a), OK);
    assert_eq!(sim_cudaStreamWaitEvent(b, event, 0), OK);
    let mut state = 0;
    assert_eq!((sim_cudaStreamIsCapturing(b, out(&mut state)), state), (OK, 1));
    work(b, 5);
    work(a, 1);
    assert_eq!(sim_cudaEventRecord(event, b), OK);
    assert_eq!(sim_cudaStreamWaitEvent(a, event, 0), OK);
    let graph = made(|out| sim_cudaStreamEndCapture(a, out));
    assert_eq!(sim_cudaEventQuery(event), Code::CAPTURED_EVENT);
    let mut nodes = 0;
    assert_eq!((sim_cudaGraphGetNodes(graph, Out::absent(), out(&mut nodes)), nodes), (OK, 8));
    let ready = made(|out| sim_cudaGraphInstantiate(out, graph, 0));
    let begin = strandline_sim_now();
    assert_eq!(sim_cudaGraphLaunch(ready, a), OK);
    assert_eq!(sim_cudaStreamSynchronize(a), OK);
    assert_eq!(strandline_sim_now() - begin, 7_000);
    assert_eq!((sim_cudaGraphDestroy(graph), sim_cudaGraphExecDestroy(ready)), (OK, OK));
    assert_eq!(sim_cudaGraphLaunch(ready, a), Code::INVALID_HANDLE);
    sim_cudaGetLastError();
}

#[test]
fn a_synchronization_spoils_a_capture() {
    let _device = device();
    let stream = made(|out| sim_cudaStreamCreateWithFlags(out, 1));
    assert_eq!(sim_cudaStreamBeginCapture(stream, 0), OK);
    assert_eq!(sim_cudaStreamSynchronize(stream), Code::CAPTURE_UNSUPPORTED);
    assert_eq!(strandline_sim_stream_busy(stream, 0, 1), Code::CAPTURE_INVALIDATED.0);
    let mut graph = 5;
    assert_eq!(sim_cudaStreamEndCapture(stream, out(&mut graph)), Code::CAPTURE_INVALIDATED);
    assert_eq!((graph, strandline_sim_stream_busy(stream, 0, 1)), (0, 0));

    assert_eq!(sim_cudaStreamBeginCapture(stream, 0), OK);
    let mut address = 0;
    assert_eq!(sim_cudaMalloc(out(&mut address), 1), Code::CAPTURE_UNSUPPORTED);
    assert_eq!(sim_cudaStreamEndCapture(stream, out(&mut graph)), Code::CAPTURE_INVALIDATED);
    assert_eq!(sim_cudaStreamBeginCapture(0, 0), Code::CAPTURE_UNSUPPORTED);
    sim_cudaGetLastError();
}

#[test]
fn a_graph_frees_only_what_a_graph_allocated() {
    let _device = device();
    let stream = made(|out| sim_cudaStreamCreateWithFlags(out, 1));
    let outside = made(|out| sim_cudaMallocAsync(out, MIB, stream));
    let mut graph = 0;
    assert_eq!(sim_cudaStreamBeginCapture(stream, 0), OK);
    let inside = made(|out| sim_cudaMallocAsync(out, MIB, stream));
    assert_eq!(sim_cudaFreeAsync(inside, stream), OK);
    assert_eq!(sim_cudaFreeAsync(outside, stream), Code::INVALID_VALUE);
    assert_eq!(sim_cudaStreamEndCapture(stream, out(&mut graph)), Code::CAPTURE_INVALIDATED);
    assert_eq!(sim_cudaFreeAsync(outside, stream), OK);

    let pool = made(|out| sim_cudaDeviceGetDefaultMemPool(out, 0));
    assert_eq!(sim_cudaStreamBeginCapture(stream, 0), OK);
    assert_eq!(sim_cudaMemPoolTrimTo(pool, 0), Code::CAPTURE_UNSUPPORTED);
    assert_eq!(sim_cudaStreamEndCapture(stream, out(&mut graph)), Code::CAPTURE_INVALIDATED);
    sim_cudaGetLastError();
}

#[test]
fn a_pool_keeps_what_it_is_told_to() {
    let _device = device();
    let pool = made(|out| sim_cudaDeviceGetDefaultMemPool(out, 0));
    let read = |attribute| {
        let mut value = 0u64;
        assert_eq!(sim_cudaMemPoolGetAttribute(pool, attribute, out(&mut value)), OK);
        value as usize / MIB
    };
    let address = made(|out| sim_cudaMallocAsync(out, 20 * MIB, 0));
    assert_eq!((read(5), read(7), strandline_sim_used(0) as usize / MIB), (32, 20, 32));
    assert_eq!(sim_cudaFreeAsync(address, 0), OK);
    assert_eq!((read(5), read(7), read(8)), (32, 0, 20));
    let mut keep = u64::MAX;
    assert_eq!(sim_cudaMemPoolSetAttribute(pool, 4, out(&mut keep)), OK);
    assert_eq!(sim_cudaDeviceSynchronize(), OK);
    assert_eq!(read(5), 32);
    keep = 0;
    assert_eq!(sim_cudaMemPoolSetAttribute(pool, 4, out(&mut keep)), OK);
    assert_eq!(sim_cudaDeviceSynchronize(), OK);
    assert_eq!((read(5), strandline_sim_used(0)), (0, 0));
    assert_eq!(sim_cudaMemPoolGetAttribute(pool + 1, 5, Out::absent()), Code::INVALID_VALUE);
    sim_cudaGetLastError();
}

/// Takes the name of the thread that it is called on.
unsafe extern "C" fn called_back(place: *mut std::ffi::c_void) {
    // SAFETY: the test below gives a string of its own, and looks at it after it has waited.
    let place = unsafe { &mut *place.cast::<String>() };
    assert_eq!(sim_cudaDeviceSynchronize(), OK, "it does not wait for itself");
    *place = std::thread::current().name().unwrap_or("").into();
}

#[test]
fn a_function_in_a_stream_runs_on_another_thread_and_in_order() {
    let _device = device();
    strandline_sim_set_op_ns(1_000_000_000_000);
    let mut thread = String::new();
    let data = (&raw mut thread).cast();
    // SAFETY: the string outlives the wait below.
    assert_eq!(unsafe { sim_cudaLaunchHostFunc(0, Some(called_back), data) }, OK);
    assert_eq!(sim_cudaStreamQuery(0), Code::NOT_READY);
    assert_eq!(sim_cudaStreamSynchronize(0), OK);
    assert_eq!(thread, "cuda-callbacks");
    assert_eq!(sim_cudaStreamQuery(0), OK);
    // SAFETY: nothing is called.
    assert_eq!(unsafe { sim_cudaLaunchHostFunc(0, None, data) }, Code::INVALID_VALUE);
    sim_cudaGetLastError();
}

#[test]
fn functions_are_looked_up_by_name() {
    let _device = device();
    let mut status = -1;
    // SAFETY: a literal.
    let name = unsafe { Text::new(c"cuMemCreate".as_ptr()) };
    let found = made(|function| sim_cuGetProcAddress_v2(name, function, 13_000, 0, out(&mut status)));
    assert!(found != 0 && status == 0);
}
