//! The memory that the rings lie in: where it comes from, and who keeps it when the process is killed.
//!
//! | tried, in this order                                  | after `kill -9`             |
//! |-------------------------------------------------------|-----------------------------|
//! | a file in `STRANDLINE_TAIL`, where that is set        | it is there                 |
//! | memory that `strandline run` keeps open (`memory`)    | it is there                 |
//! | a file in `/dev/shm`, where that has room to spare    | it is there                 |
//! | memory that only this process has open                | gone: a second at most      |
//! | anonymous memory                                      | gone, and nobody follows it |
//!
//! A store into the rings never raises SIGBUS: every page exists before it is stored to. A file is reserved whole, since others fill
//! its file system too. Memory is on no mount, so its pages are made ahead of the threads that claim them ([`make_ready`]): a process pays for what it uses.

mod file;
mod memory;

use crate::platform::config::Config;
use crate::platform::say::say;
use crate::recorder;
use core::ptr::NonNull;
pub(crate) use file::{is_remote, remove};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use strandline_core::buffer::Region;
use strandline_core::format::env;
use strandline_core::format::region::{Geometry, Identity};
use strandline_core::format::tail::{Place, name};

/// Where a tail lies if nobody says otherwise and it has room to spare.
const SHARED: &str = "/dev/shm";

/// The mapped region.
pub(crate) struct Tail {
    /// First byte; zeroed, page-aligned, mapped for the rest of the process's life.
    pub(crate) base: NonNull<u8>,
    /// Bytes.
    pub(crate) len: usize,
    /// Where others find it; `None`: nowhere.
    pub(crate) place: Option<Place>,
    /// Every page exists already; else those of the first [`recorder::ready_lanes`].
    pub(crate) is_whole: bool,
    /// A file that has no name yet.
    unnamed: Option<File>,
}

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
        Some((folder, Err(e))) => Some(format!("no room for the tail in {} ({e})", folder.display())),
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
        let why = refused.unwrap_or_else(|| format!("no room for the tail in {SHARED}"));
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
    let next = (ready..).map_while(|i| region.lane_memory(i)).take(AHEAD as usize);
    let made = next.take_while(|(base, len)| memory::populate(*base, *len).is_ok()).count() as u32;
    recorder::set_ready_lanes(ready.saturating_add(made));
}

/// Tells whoever keeps tails why there is none of this process, nor a recording.
#[cold]
pub(crate) fn tell_failure(why: &str) {
    if let Some(address) = std::env::var_os(env::TAIL_SOCKET) {
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

fn map(len: usize, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let p =
        unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(p.cast()).ok_or_else(|| io::Error::other("mapped at 0"))
}

/// Makes every page of a file.
fn reserve(file: &File, len: usize) -> io::Result<()> {
    let len = libc::off_t::try_from(len).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for writing. Every page exists after this, so no store can raise SIGBUS.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}
