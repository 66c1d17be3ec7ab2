//! The words of an entry: a million of them are written, so they are numbers until the first one goes out.

use crate::event::named;

named! {
    /// A text that every entry repeats.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) enum Word {
        Action = "action",
        Addr = "addr",
        DeviceFree = "device_free",
        Size = "size",
        Stream = "stream",
        TimeUs = "time_us",
        CompileContext = "compile_context",
        NotAvailable = "N/A",
        UserMetadata = "user_metadata",
        PoolId = "pool_id",
        Category = "category",
        Frames = "frames",
        Stage = "stage",
        Name = "name",
        Device = "device",
        Start = "START",
        End = "END",
        Alloc = "alloc",
        FreeRequested = "free_requested",
        FreeCompleted = "free_completed",
        SegmentAlloc = "segment_alloc",
        SegmentFree = "segment_free",
        SegmentMap = "segment_map",
        SegmentUnmap = "segment_unmap",
        #[default]
        Snapshot = "snapshot",
        Oom = "oom",
    }
}
