//! Keeps the tails of a job's processes: memory that they hand over as they begin to record, so that a `kill -9` of one loses nothing.
//!
//! Each message on the socket is a descriptor and the path of the recording that it belongs to, or a sentence alone: why a process
//! cannot record (`preload/src/tail/memory.rs` sends them).
//! While it is open here, whoever reads the recording finds it below `/proc/<our pid>/fd`. When its process has ended, what is in
//! no page is written beside the recording, and the memory is given back.

use super::exited::Process;
use super::host;
use super::kernel_log::KernelLog;
use crate::background::spawn;
use crate::job::Ended;
use crate::recording;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use strandline::detect::is_fault;
use strandline::event::{Room, Waited};
use strandline::format::region::{at, died};
use strandline::reader::Reader;

/// How often it is looked for new ones, and for processes that have ended.
const INTERVAL: Duration = Duration::from_millis(100);
/// Connections that wait to be taken: as many as the kernel lets be.
const WAITING: i32 = 4096;
/// Longest path of a recording.
const LONGEST: usize = 4096;

/// A socket that tails are handed over to.
pub(crate) struct Socket {
    listener: OwnedFd,
    name: String,
}

/// Tails that are kept by a thread of their own; where none can be started, they wait in the socket until the job has ended.
pub(crate) struct Tails {
    listener: Arc<OwnedFd>,
    stop: Sender<(u32, i32)>,
    thread: Option<JoinHandle<Kept>>,
}

/// What was kept when the job ended; tails that are in no file yet live as long as this.
#[derive(Default)]
pub(crate) struct Kept {
    held: Vec<Held>,
    /// Every recording that a process has begun.
    begun: Vec<PathBuf>,
    /// Why the first process that could not record could not.
    failure: Option<String>,
    /// The job's own process.
    child: u32,
    /// What the kernel had counted of our control group as the job began.
    before: Option<host::Counts>,
    /// The kernel's log since then, where it can be read.
    log: Option<KernelLog>,
}

/// The tail of a process.
struct Held {
    memory: File,
    recording: PathBuf,
    process: Process,
}

impl Socket {
    /// Listens, at an address that no other run has.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn listen() -> io::Result<Socket> {
        let mut random = [0u8; 8];
        // SAFETY: writes at most eight bytes into an array of eight; geteuid touches no memory.
        let user = unsafe {
            libc::getrandom(random.as_mut_ptr().cast(), random.len(), libc::GRND_NONBLOCK);
            libc::geteuid()
        };
        let name = format!("strandline-{user}-{}-{:016x}", std::process::id(), u64::from_ne_bytes(random));
        // SAFETY: all zeros are an address without a family.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        // Abstract: the name follows a zero, and there is no file.
        let to = address.sun_path.iter_mut().skip(1);
        to.zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
        let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let flags = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain numbers; the descriptor is new and belongs to the `OwnedFd` alone; the address is as long as is said.
        unsafe {
            let socket = libc::socket(libc::AF_UNIX, flags, 0);
            if socket < 0 {
                return Err(io::Error::last_os_error());
            }
            let listener = OwnedFd::from_raw_fd(socket);
            if libc::bind(socket, (&raw const address).cast(), len as libc::socklen_t) != 0
                || libc::listen(socket, WAITING) != 0
            {
                return Err(io::Error::last_os_error());
            }
            Ok(Socket { listener, name })
        }
    }

    /// What the preload must be told: the value of `STRANDLINE_TAIL_SOCKET`.
    pub(crate) fn address(&self) -> OsString {
        self.name.clone().into()
    }

    /// Keeps what comes, on a thread that inherits the signals that are blocked now.
    /// `child`: the job's own process. `before`: what the kernel had counted of our control group as the job began.
    pub(crate) fn keep(self, child: u32, before: Option<host::Counts>) -> Tails {
        let (stop, stopped) = crossbeam_channel::bounded(1);
        let listener = Arc::new(self.listener);
        let own = listener.clone();
        let kept = Kept { child, before, log: KernelLog::from_now(), ..Kept::default() };
        let work = move || work(kept, &own, &stopped);
        let thread = spawn("sl-tails", work).ok();
        Tails { listener, stop, thread }
    }
}

impl Tails {
    /// The job has ended: what it handed over last is taken, and what is only there is written beside the recordings.
    /// `pid` and `ended`: what its own process came to.
    pub(crate) fn finish(self, pid: u32, ended: Ended) -> Kept {
        let known = (pid, ended.wait_status());
        let Some(thread) = self.thread else {
            let mut kept = Kept::default();
            kept.look(&self.listener, Some(known));
            return kept;
        };
        let _ = self.stop.send(known);
        drop(self.stop);
        thread.join().unwrap_or_default()
    }
}

impl Kept {
    /// Why a process that wanted to record could not.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// A recording that was begun and is not there any more.
    pub(crate) fn deleted(&self) -> Option<&Path> {
        self.begun.iter().map(PathBuf::as_path).find(|path| !path.exists())
    }

    /// Takes what waits, and gives back what is not needed any more.
    fn look(&mut self, listener: &OwnedFd, known: Option<(u32, i32)>) {
        while let Some(process) = accept(listener) {
            let Some((text, memory)) = receive(&process.0) else { continue };
            let Some(memory) = memory else {
                let why = String::from_utf8_lossy(&text).into_owned();
                self.failure.get_or_insert(why);
                continue;
            };
            let recording = PathBuf::from(OsString::from_vec(text));
            self.begun.push(recording.clone());
            self.held.push(Held { memory, recording, process: Process::at(&process.0, process.1) });
        }
        // How our own child ended is known for certain once it was waited for.
        let is_waited_for = |held: &Held| known.is_none() && held.process.pid == self.child;
        let (before, log) = (self.before.as_ref(), &mut self.log);
        self.held.retain(|held| is_waited_for(held) || held.is_needed(known, before, log));
    }
}

fn work(mut kept: Kept, listener: &OwnedFd, stopped: &Receiver<(u32, i32)>) -> Kept {
    loop {
        match stopped.recv_timeout(INTERVAL) {
            Err(RecvTimeoutError::Timeout) => kept.look(listener, None),
            over => {
                kept.look(listener, over.ok());
                return kept;
            }
        }
    }
}

impl Held {
    /// The process lives, or its tail cannot be written beside its recording.
    /// `known`: a process that somebody has waited for.
    fn is_needed(
        &self,
        known: Option<(u32, i32)>,
        before: Option<&host::Counts>,
        log: &mut Option<KernelLog>,
    ) -> bool {
        if self.process.is_alive() {
            return true;
        }
        let waited = known.filter(|(pid, _)| *pid == self.process.pid).map(|(_, status)| status);
        // Whoever reads the tail is to know; a tail that cannot be written to is read as it is.
        if let Some(status) = waited.or_else(|| self.process.wait_status()) {
            let word = died::word(Waited { status, killer: host::since(before) });
            let _ = self.memory.write_all_at(&word.to_le_bytes(), at::DIED as u64);
            let died_of_a_fault = libc::WIFSIGNALED(status) && is_fault(libc::WTERMSIG(status));
            let log = log.as_mut().filter(|_| died_of_a_fault);
            let room = log.and_then(|log| log.fault([self.process.pid, self.word(at::WRITER) as u32]));
            room.into_iter().for_each(|room| self.note(room));
        }
        let Ok(memory) = self.memory.try_clone() else { return true };
        // A recording without a header has no event either.
        let Ok(mut reader) = Reader::with_tail(&self.recording, memory) else { return false };
        recording::keep(&self.recording, &mut reader).is_err()
    }

    /// Where the process was when it died, besides what it has noted itself.
    fn note(&self, room: Room) {
        let rooms = self.word(at::ROOMS) | room.bit();
        let _ = self.memory.write_all_at(&rooms.to_le_bytes(), at::ROOMS as u64);
    }

    /// A word of the memory; 0 where it cannot be read.
    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at as u64).map_or(0, |()| u64::from_le_bytes(bytes))
    }
}

/// The next connection of a process of this user.
fn accept(listener: &OwnedFd) -> Option<(OwnedFd, u32)> {
    loop {
        // SAFETY: the address is not asked for; the descriptor is new and belongs to the `OwnedFd` alone.
        let socket = unsafe {
            let null = std::ptr::null_mut();
            let socket = libc::accept4(listener.as_raw_fd(), null, null.cast(), libc::SOCK_CLOEXEC);
            (socket >= 0).then(|| OwnedFd::from_raw_fd(socket))?
        };
        // SAFETY: the structure is plain data of the size that is said, which the call fills; geteuid touches no memory.
        let (who, own) = unsafe {
            let mut who: libc::ucred = std::mem::zeroed();
            let mut len = size_of::<libc::ucred>() as libc::socklen_t;
            let place = (&raw mut who).cast();
            let did =
                libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut len);
            (who, did == 0 && who.uid == libc::geteuid())
        };
        if own {
            return Some((socket, who.pid.unsigned_abs()));
        }
    }
}

/// What a process sends: a text, with a descriptor or without. Whoever sends nothing is waited for a moment, no longer.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, Option<File>)> {
    let mut text = vec![0u8; LONGEST];
    let mut control = [0u64; 8];
    // SAFETY: the message points at `text` and `control`, which live during the call and are as large as is said; control headers
    // are read only as far as the kernel says that it wrote some. Each descriptor is new, and belongs to one `File`.
    let (got, memory) = unsafe {
        let patience = libc::timeval { tv_sec: 1, tv_usec: 0 };
        let size = size_of::<libc::timeval>() as libc::socklen_t;
        let place = (&raw const patience).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, place, size);
        let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let got = libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC);
        let head = libc::CMSG_FIRSTHDR(&message);
        let is_one = got > 0
            && !head.is_null()
            && ((*head).cmsg_level, (*head).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
            && (*head).cmsg_len >= libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
        (got, is_one.then(|| File::from_raw_fd(libc::CMSG_DATA(head).cast::<i32>().read_unaligned())))
    };
    text.truncate(usize::try_from(got).ok().filter(|n| *n > 0)?);
    Some((text, memory))
}
