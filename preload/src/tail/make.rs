//! Where a process's rings come to lie: each place is tried in turn.

use super::region::{Tail, map};
use super::{file, memory};
use crate::platform::config::Config;
use crate::platform::environment;
use crate::platform::say::say;
use crate::recorder;
use std::io;
use std::path::{Path, PathBuf};
use strandline_core::buffer::Region;
use strandline_core::format::env;
use strandline_core::format::region::{Geometry, Identity};
use strandline_core::format::tail::{Place, name};

/// Where a tail lies if nobody says otherwise and it has room to spare.
const SHARED: &str = "/dev/shm";

/// Makes the tail. `recording`: whose it is; `speaks`: this process says for its whole job what could be lost.
///
/// # Errors
/// What the kernel says when it has no memory either.
pub(crate) fn make(
    config: &Config,
    recording: &Path,
    geometry: Geometry,
    who: &Identity,
    speaks: bool,
) -> io::Result<Tail> {
    // SAFETY: getuid cannot fail.
    let name = name(unsafe { libc::getuid() }, who);
    let len = geometry.bytes();
    let asked = config.tail.as_deref().map(|folder| (folder, file::make(folder, &name, len)));
    let refused = match asked {
        Some((_, Ok(tail))) => return Ok(tail),
        Some((folder, Err(e))) => {
            Some(format!("no room for the file of the latest events in {} ({e})", folder.display()))
        }
        None => None,
    };
    let memory = memory::make(&name, geometry);
    let kept = match (&memory, &config.tail_socket) {
        (Ok(memory), Some(address)) => memory::hand_over(&memory.file, address, recording).ok(),
        _ => None,
    };
    if let (Ok(memory), Some(keeper)) = (&memory, kept) {
        return memory.map(Some(Place::Memory { name, keeper }));
    }
    let shared = Path::new(SHARED);
    if refused.is_none()
        && file::has_room(shared, len)
        && let Ok(tail) = file::make(shared, &name, len)
    {
        return Ok(tail);
    }
    if speaks || refused.is_some() {
        let why = refused.unwrap_or_else(|| format!("no room for the file of the latest events in {SHARED}"));
        say!("{why}: kill -9 may lose the last second of the recording");
    }
    memory.and_then(|m| m.keep(name)).or_else(|_| anonymous(len))
}

fn anonymous(len: usize) -> io::Result<Tail> {
    let base = map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // A store into private memory finds a page, or the kernel ends somebody: there is no SIGBUS to be kept away.
    Ok(Tail { base, len, place: None, is_whole: false, unnamed: None })
}

/// Makes the pages of further lanes, so that some are always ready: what the writing thread does now and then, since a thread's first
/// event makes no system call. Where there is no memory the threads go on to share a ring.
#[cold]
pub(crate) fn make_ready(region: &Region) {
    const AHEAD: u32 = 2;
    let ready = recorder::ready_lanes();
    if region.unclaimed_below(ready) >= AHEAD {
        return;
    }
    let next = (ready..u32::MAX).map_while(|i| region.lane_memory(i)).take(AHEAD as usize);
    let made = next.take_while(|(base, len)| memory::populate(*base, *len).is_ok()).count() as u32;
    recorder::set_ready_lanes(ready.saturating_add(made));
}

/// Tells whoever keeps tails why there is none of this process, nor a recording.
#[cold]
pub(crate) fn tell_failure(why: &str) {
    if let Some(address) = environment::variable(env::TAIL_SOCKET) {
        // Where nobody listens nobody needs to know.
        let _ = memory::tell(&address, why);
    }
}

impl Tail {
    /// The recording names it now: a file gets its name. Before, nothing was left of a process that was killed.
    ///
    /// # Errors
    /// What the system says; the rings are as good as anonymous memory then.
    pub(crate) fn publish(&mut self) -> io::Result<()> {
        match (self.unnamed.take(), self.path()) {
            (Some(file), Some(path)) => file::link(&file, &path),
            _ => Ok(()),
        }
    }

    /// Its file's path, where it is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.place.as_ref().and_then(Place::file).map(PathBuf::from)
    }
}
