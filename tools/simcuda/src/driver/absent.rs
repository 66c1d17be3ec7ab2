//! Driver functions that programs look up by name and that are not simulated: they must be found, and fail when called.

macro_rules! absent {
    ($($name:ident),* $(,)?) => {
        $(
            #[doc = concat!("Says that `", stringify!($name), "` is not simulated.")]
            #[unsafe(export_name = concat!("sim_", stringify!($name)))]
            pub extern "C" fn $name() -> i32 {
                let name = concat!(stringify!($name), "\0").as_ptr().cast();
                // SAFETY: both are literals that end in a zero.
                unsafe { crate::stub::sim_stub(name, c"libcuda.so.1".as_ptr(), crate::code::Code::NOT_SUPPORTED.0) }
            }
        )*
    };
}

absent! {
    cuMemExportToShareableHandle,
    cuMemImportFromShareableHandle,
    cuMulticastCreate,
    cuMulticastAddDevice,
    cuMulticastBindMem,
    cuMulticastUnbind,
    cuGreenCtxCreate,
    cuGreenCtxDestroy,
    cuGreenCtxStreamCreate,
    cuCtxFromGreenCtx,
    cuDeviceGetDevResource,
    cuDevSmResourceSplitByCount,
    cuDevResourceGenerateDesc,
}
