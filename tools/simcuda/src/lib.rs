//! A simulated CUDA device.
