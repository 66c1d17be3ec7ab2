//! When a device will be full.
