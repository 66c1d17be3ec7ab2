//! A simulated CUDA device, for an unmodified PyTorch wheel on a machine without a GPU.
//!
//! The point is memory and time, not arithmetic: PyTorch's *real* caching allocator, its streams, events,
//! graphs and memory pools run on this device exactly as they run on a card, so that a tool which watches them
//! can be tested anywhere, and the peak of a training script can be told on a laptop.
//!
//! # What is modelled
//!
//! * Devices with a capacity, charged in units of 2 MiB; `cudaMalloc`, virtual memory (`cuMemCreate`,
//!   `cuMemMap`, …), stream-ordered pools, pinned and registered host memory, peers. The memory is host memory,
//!   committed lazily, so copies and fills carry real data and a 140 GiB tensor costs nothing until touched.
//! * Time. A stream has an instant until which it is busy; work pushes that instant on, an event copies it,
//!   a wait takes the later of two, a query compares it with the clock. The clock is the machine's or stands
//!   still until a test moves it ([`clock`]). `torch.cuda._sleep` occupies its stream for as long as on an H200.
//! * Capture of graphs: joining of streams, what a capture forbids, replay that occupies a stream.
//! * NCCL's communicators and collectives, which occupy their stream; no rank hears of another ([`libraries::nccl`]).
//! * cuBLAS and cuBLASLt calls, which occupy their stream; cuDNN's convolutions and batch norms, which also take the workspace that they took
//!   on an H200 ([`libraries::cudnn`]). Enough NVML for totals and processes.
//!
//! # What is not
//!
//! Kernels are launched and never run, so *every computed value is meaningless* (memory starts as zeros).
//! Copies and fills take effect at the call, not when their stream gets there. cuDNN's
//! recurrent layers and attention, cuFFT, cuSOLVER, CUPTI, modules loaded at run time, IPC and multicast say their name on stderr and fail ([`stub`]). Two
//! mappings of one physical allocation do not share bytes; small `cudaMalloc`s do not share a 2 MiB unit; a
//! context takes no memory; graphs' own memory nodes are ordinary allocations.
//!
//! # How it is reached
//!
//! Every function is exported as `sim_<its CUDA name>`, or `sim12_…` where a program built for CUDA 12 means another
//! function by that name. The libraries that a wheel asks for (`libcuda.so.1`,
//! `libcudart.so.13`, …) are generated beside it when an environment is provisioned; each of their functions is
//! one jump to the simulator's, or to [`stub`] when there is none.
//!
//! # Settings
//!
//! See [`config`] for the environment variables and [`control`] for what a test can call.

#![allow(non_snake_case, reason = "exported functions are named as CUDA's, behind a prefix")]

pub mod abi;
pub mod call;
pub mod callback;
pub mod capture;
pub mod card;
pub mod clock;
pub mod code;
pub mod config;
pub mod control;
pub mod device;
pub mod driver;
pub mod event;
pub mod graph;
pub mod handle;
pub mod kernel;
pub mod libraries;
pub mod mapping;
pub mod memory;
pub mod model;
pub mod nvml;
pub mod pool;
pub mod runtime;
pub mod stream;
pub mod stub;
pub mod trace;
pub mod vmm;
