//! Captures and graphs. A replay occupies its stream for as long as the captured work takes; it moves no data.

use super::stream::named;
use crate::abi::{Out, Text};
use crate::call::runtime;
use crate::capture::{self, Mode};
use crate::code::Code;
use crate::model::{lock, now};
use crate::note;

/// Begins a capture.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamBeginCapture(stream: usize, mode: i32) -> Code {
    runtime("cudaStreamBeginCapture", || {
        note!("stream {stream:#x} mode {mode}");
        let key = named(stream)?;
        lock().begin_capture(key, Mode::of(mode)?)
    })
}

/// Ends a capture.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamEndCapture(stream: usize, graph: Out<usize>) -> Code {
    runtime("cudaStreamEndCapture", || {
        note!("stream {stream:#x}");
        graph.offer(0);
        let key = named(stream)?;
        let made = lock().end_capture(key)?;
        note!("stream {stream:#x} = graph {made:#x}");
        graph.set(made)
    })
}

/// What a stream is doing: 0 not capturing, 1 capturing, 2 in a capture that was spoilt; with the capture's id and
/// graph.
fn status(stream: usize) -> Result<(i32, u64, usize), Code> {
    let key = named(stream)?;
    let model = lock();
    let Some(id) = model.streams.get(key)?.capture else { return Ok((0, 0, 0)) };
    Ok(match model.captures.get(id) {
        Some(capture) if capture.invalid => (2, id, 0),
        Some(capture) => (1, id, capture.graph),
        None => (0, 0, 0),
    })
}

/// Whether a stream is being captured.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamIsCapturing(stream: usize, state: Out<i32>) -> Code {
    runtime("cudaStreamIsCapturing", || state.set(status(stream)?.0))
}

/// The capture a stream takes part in. What it depends on is not kept: there are no dependencies to tell.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamGetCaptureInfo(
    stream: usize,
    state: Out<i32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> Code {
    runtime("cudaStreamGetCaptureInfo", || {
        let (now, number, made) = status(stream)?;
        state.set(now)?;
        if now == 1 {
            id.offer(number);
            graph.offer(made);
        }
        dependencies.offer(0);
        edges.offer(0);
        count.offer(0);
        Ok(())
    })
}

/// The same for programs built for CUDA 12, which know no edges.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamGetCaptureInfo_v2(
    stream: usize,
    state: Out<i32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<usize>,
    count: Out<usize>,
) -> Code {
    sim_cudaStreamGetCaptureInfo(stream, state, id, graph, dependencies, Out::absent(), count)
}

/// Exchanges the thread's mode.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaThreadExchangeStreamCaptureMode(mode: Out<i32>) -> Code {
    runtime("cudaThreadExchangeStreamCaptureMode", || {
        let now = Mode::of(mode.get()?)?;
        let before = capture::exchange_mode(now);
        note!("{} instead of {}", now.number(), before.number());
        mode.set(before.number())
    })
}

/// How many operations a graph has, or numbers that stand for them.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> Code {
    runtime("cudaGraphGetNodes", || {
        let have = lock().graphs.get(graph)?.nodes;
        if !nodes.wanted() {
            return count.set(have);
        }
        let room = count.get()?;
        nodes.fill(room, 1..=have);
        count.set(room.min(have))
    })
}

/// A node's dependencies, which are not kept.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGraphNodeGetDependencies(
    _node: usize,
    _nodes: usize,
    _edges: usize,
    count: Out<usize>,
) -> Code {
    runtime("cudaGraphNodeGetDependencies", || count.set(0))
}

/// The same for programs built for CUDA 12, which know no edges.
#[unsafe(no_mangle)]
pub extern "C" fn sim12_cudaGraphNodeGetDependencies(_node: usize, _nodes: usize, count: Out<usize>) -> Code {
    runtime("cudaGraphNodeGetDependencies", || count.set(0))
}

/// Makes a graph ready to launch.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGraphInstantiateWithFlags(made: Out<usize>, graph: usize, _flags: u64) -> Code {
    runtime("cudaGraphInstantiateWithFlags", || made.set(lock().graphs.instantiate(graph)?))
}

/// Makes a graph ready to launch.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGraphInstantiate(made: Out<usize>, graph: usize, _flags: u64) -> Code {
    runtime("cudaGraphInstantiate", || made.set(lock().graphs.instantiate(graph)?))
}

/// Launches a graph.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGraphLaunch(graph: usize, stream: usize) -> Code {
    runtime("cudaGraphLaunch", || {
        note!("graph {graph:#x} stream {stream:#x}");
        let key = named(stream)?;
        lock().launch_graph(graph, key, now())
    })
}

/// Destroys a graph.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGraphDestroy(graph: usize) -> Code {
    runtime("cudaGraphDestroy", || lock().graphs.destroy(graph))
}

/// Destroys a graph that was made ready.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGraphExecDestroy(graph: usize) -> Code {
    runtime("cudaGraphExecDestroy", || lock().graphs.destroy(graph))
}

/// Draws nothing: the graph's shape is not kept.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGraphDebugDotPrint(graph: usize, _path: Text, _flags: u32) -> Code {
    runtime("cudaGraphDebugDotPrint", || lock().graphs.get(graph).map(drop))
}
