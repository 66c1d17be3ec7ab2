//! A tail in memory that has no name on any file system (`memfd_create(2)`): it takes no room on a container's `/dev/shm`, and is gone
//! as soon as nobody has it open or mapped.
//!
//! `strandline run` keeps it: it listens on an abstract socket, and the descriptor travels there in a message. Once `sendmsg` has
//! returned the kernel has it in the socket's queue, so a `kill -9` of this process loses nothing, whether or not anybody has looked;
//! nobody is waited for. The job keeps no descriptor of it. Without `run` this process keeps one, of a high number, so that a watcher
//! can follow while the process lives.

use super::region::{Tail, map, reserve};
use crate::platform::{descriptor, errno};
use crate::recorder;
use core::ptr::NonNull;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use strandline_core::format::region::Geometry;
use strandline_core::format::tail::Place;

/// Lanes that are made ready when the process is armed: nearly every job uses them (the thread that trains, its autograd worker).
const FIRST: u32 = 4;
/// `MADV_POPULATE_WRITE`, since Linux 5.14.
const POPULATE_WRITE: i32 = 23;
/// `MFD_NOEXEC_SEAL`, since Linux 6.3, where it may be demanded.
const NOEXEC_SEAL: u32 = 8;

/// Memory that is large enough, and not mapped yet.
pub(super) struct Memory {
    pub(super) file: File,
    geometry: Geometry,
}

/// Makes it.
///
/// # Errors
/// What the system says: no descriptor is free, a limit of files' sizes (it holds for memory too), an old kernel.
pub(super) fn make(name: &str, geometry: Geometry) -> io::Result<Memory> {
    let text = CString::new(name)?;
    let create = |flags| {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags;
        // SAFETY: a C string.
        let fd = unsafe { libc::memfd_create(text.as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and belongs to the `File` made of it alone.
        Ok(unsafe { File::from_raw_fd(fd) })
    };
    let file = descriptor::open(|| create(NOEXEC_SEAL).or_else(|_| create(0)))?;
    file.set_len(geometry.bytes() as u64)?;
    // Whoever has it open can never make it shorter, which would turn stores into SIGBUS.
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: an open descriptor and plain numbers.
    if unsafe {
        libc::fchmod(file.as_raw_fd(), 0o600) | libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals)
    } != 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(Memory { file, geometry })
}

impl Memory {
    /// Maps it; the descriptor is given back.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn map(&self, place: Option<Place>) -> io::Result<Tail> {
        let len = self.geometry.bytes();
        let base = map(len, libc::MAP_SHARED, self.file.as_raw_fd())?;
        let lazy = self.populate_first(base).is_ok();
        if !lazy {
            // An older kernel, or one without memory: then that is found now.
            reserve(&self.file, len)?;
        }
        recorder::set_ready_lanes(if lazy { FIRST } else { u32::MAX });
        Ok(Tail { base, len, place, is_whole: !lazy, unnamed: None })
    }

    /// Everything but the lanes that only some threads will claim.
    fn populate_first(&self, base: NonNull<u8>) -> io::Result<()> {
        let g = &self.geometry;
        let first = g.ring_slots(FIRST.min(g.lanes));
        let overflow = g.ring_slots(g.lanes);
        populate(base, first)?;
        // SAFETY: the overflow ring begins within the mapping, of `bytes()`.
        populate(unsafe { base.add(overflow) }, g.bytes() - overflow)
    }

    /// Maps it, with a descriptor that stays open, where a number is free that no job counts on: others can follow it while this
    /// process lives.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn keep(self, name: String) -> io::Result<Tail> {
        let moved = descriptor::moved(self.file.try_clone()?);
        let is_high = moved.as_raw_fd() >= descriptor::HIGH;
        let place = is_high.then(|| Place::Memory { name, keeper: std::process::id() });
        let tail = self.map(place)?;
        if is_high {
            // Never closed: by then the number may be a file of the job's.
            let _ = ManuallyDrop::new(moved);
        }
        Ok(tail)
    }
}

/// Makes the pages of a range. `errno` stays as it is.
///
/// # Errors
/// What the system says: no memory, or a kernel that does not know how.
pub(super) fn populate(base: NonNull<u8>, len: usize) -> io::Result<()> {
    let _errno = errno::keep();
    // SAFETY: the range is part of the region's mapping, which is never unmapped; no byte of it changes.
    match unsafe { libc::madvise(base.as_ptr().cast(), len, POPULATE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives a descriptor to whoever listens at an abstract address, with the path of the recording that it belongs to. Returns its process.
///
/// # Errors
/// Nobody listens there (any more, or in this network namespace), or somebody who is not of this user.
pub(super) fn hand_over(file: &File, address: &std::ffi::OsStr, recording: &Path) -> io::Result<u32> {
    let socket = connect(address.as_bytes())?;
    let keeper = peer(&socket)?;
    send(&socket, Some(file), recording.as_os_str().as_bytes())?;
    Ok(keeper)
}

/// Tells whoever listens there a sentence.
///
/// # Errors
/// As [`hand_over`].
pub(super) fn tell(address: &std::ffi::OsStr, what: &str) -> io::Result<()> {
    let socket = connect(address.as_bytes())?;
    peer(&socket)?;
    send(&socket, None, what.as_bytes())
}

/// A connection to an abstract address; nobody is waited for.
fn connect(name: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers; the descriptor is new and belongs to the `OwnedFd` made of it alone.
    let socket = unsafe {
        let flags = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        match libc::socket(libc::AF_UNIX, flags, 0) {
            fd if fd >= 0 => OwnedFd::from_raw_fd(fd),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: all zeros are an address without a family.
    let mut to: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    to.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // Abstract: the name follows a zero.
    let Some(place) = to.sun_path.get_mut(1..=name.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    place.iter_mut().zip(name).for_each(|(to, from)| *to = *from as libc::c_char);
    let len = core::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: an address of that length, which fits the structure.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const to).cast(), len as libc::socklen_t) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process at the other end, if it is of this user: nobody else may see what a job does.
fn peer(socket: &OwnedFd) -> io::Result<u32> {
    // SAFETY: the structure is plain data, as large as is said, which the call fills; geteuid cannot fail.
    let (who, own) = unsafe {
        let mut who: libc::ucred = core::mem::zeroed();
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        if libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut who).cast(), &mut len) != 0 {
            return Err(io::Error::last_os_error());
        }
        (who, libc::geteuid())
    };
    if who.uid == own { Ok(who.pid.unsigned_abs()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Sends a text, with a descriptor or without.
fn send(socket: &OwnedFd, file: Option<&File>, text: &[u8]) -> io::Result<()> {
    // A control message with one descriptor: 24 bytes, aligned as its header.
    let mut control = [0u64; 4];
    let part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    // SAFETY: the message points at `part` and `control`, which live during the call and are as large as is said; its first
    // control header lies within `control`, and so do the four bytes of data behind it. The kernel only reads the text.
    let sent = unsafe {
        let mut message: libc::msghdr = core::mem::zeroed();
        message.msg_iov = (&raw const part).cast_mut();
        message.msg_iovlen = 1;
        if let Some(file) = file {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as usize;
            let head = libc::CMSG_FIRSTHDR(&message);
            if head.is_null() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            libc::CMSG_DATA(head).cast::<i32>().write_unaligned(file.as_raw_fd());
        }
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
