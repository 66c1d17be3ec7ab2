//! The vocabulary: what can happen to GPU memory, and the names of the things it happens to.
//!
//! Nothing here reads, writes or judges. The shim produces these events, the format encodes them, the analyser
//! replays them; all three agree because they share this room. Units are in the type or in the field's doc:
//! sizes are [`Bytes`], times are [`Nanos`] since the recording began.

mod at_work;
mod block;
mod body;
mod checkpoint;
mod fault;
mod installed;
mod item;
mod named;
mod names;
mod printable;
mod segments;
mod signal;
pub mod steps;
mod unit;
mod waited;
mod word_list;

pub use at_work::{AtWork, HookId, Room};
pub use block::{Block, Phase, SegmentOp, Totals};
pub use body::{Body, Event, RuntimeOp};
pub use checkpoint::{Checkpoint, DeviceTotals, HeldCall, LiveBlock, OpenSegment, StepRow};
pub use fault::{CALLS, Fault, stays};
pub use installed::{PackageFolders, is_generated, is_of_python, is_torch, typed};
pub use item::{DriverMemory, Dropped, Item, ThreadInfo};
pub use named::named;
pub use names::{CodeDef, Frame, Names, NativeFrame, StackDef};
pub use printable::{is_hidden, make_json_printable, make_printable, printable, printable_lines};
pub use segments::Segments;
pub use signal::{SIGKILL, SIGTERM, signal_name};
pub use unit::{
    Addr, Bytes, CodeId, DeviceId, EventHandle, Nanos, PoolId, SiteId, StackId, StreamHandle, StreamId,
    ThreadId, add, thousands, total,
};
pub use waited::{HostKiller, Waited};
pub use word_list::WordList;
