//! What of us that is no hook is at work, left in the shared memory for whoever reads it after the process's death. Hooks leave their
//! own word, with their token ([`crate::recorder::guard`]).

use crate::recorder;
use strandline_core::event::Room;

/// A thread is in a room of ours as long as this lives. A second thread in the same room takes the note with it when it leaves.
#[must_use]
pub(crate) struct InRoom(Room);

/// Notes it. Without a region there is nowhere to note it.
#[cold]
pub(crate) fn in_room(room: Room) -> InRoom {
    note(room, true);
    InRoom(room)
}

fn note(room: Room, is_in: bool) {
    if let Some(region) = recorder::region() {
        region.note_room(room, is_in);
    }
}

impl Drop for InRoom {
    fn drop(&mut self) {
        note(self.0, false);
    }
}
