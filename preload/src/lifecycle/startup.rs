//! The life of the library in one process: what is made at its first CUDA call ([`recorder`](crate::recorder) calls), and what happens when it forks or ends.

use super::drain::{self, DrainThread};
use super::output::Output;
use super::place::{self, Rank};
use super::{chores, exit, panics, watcher};
use crate::platform::config::{Config, Steps};
use crate::platform::own_stack::with_room;
use crate::platform::say::{Blocked, note_stderr, say};
use crate::platform::{clock, config, environment, errno, loader};
use crate::probe::Probe;
use crate::python::version;
use crate::recorder::{self, Session};
use crate::recorder::{devices, thread};
use crate::torch::{attach, tracker};
use crate::{hooks, stacks, tail};
use crossbeam_channel::bounded;
use serde_json::{Value, json};
use strandline_core::buffer::Region;
use strandline_core::format::header::Header;
use strandline_core::format::holders;
use strandline_core::format::region::{Clock, Geometry, Identity};
use strandline_core::format::secrets;
use strandline_core::writer::{Options, Writer};
use strandline_core::{SOURCE, VERSION};

/// Facts that can wait to be written; more are dropped.
const CONTROLS: usize = 256;

/// The constructor: copies some variables, notes what stderr is and asks to be told of forks. Nothing else happens before the first CUDA call.
#[cfg_attr(test, allow(dead_code, reason = "tests have no constructor"))]
pub(crate) fn load() {
    attach::set_callbacks(chores::callbacks());
    if config::disabled() {
        recorder::pass_through();
        return;
    }
    let _errno = errno::keep();
    note_stderr();
    // SAFETY: a constructor, before `main`: the process has one thread, and this is called once.
    unsafe { environment::remember() };
    recorder::on_first_call(begin);
    // SAFETY: the handlers have the required signature and this library is never unloaded.
    unsafe { libc::pthread_atfork(Some(loader::before_fork), Some(loader::after_fork), Some(forked)) };
}

/// In a child forked by a process that records: no state, for ever. Its memory of the parent's is left alone. A child of an
/// inert process is as inert as its parent, and may arm itself: CUDA may be used after a fork that came before it.
unsafe extern "C" fn forked() {
    loader::after_fork_in_child();
    if !recorder::is_inert() {
        recorder::pass_through();
        thread::forget();
    }
}

/// Makes everything ready, or says what could not be made.
fn begin() {
    let _errno = errno::keep();
    panics::explain();
    let _signals = Blocked::all();
    // Whoever calls CUDA first may have little stack left.
    let armed = with_room(make).unwrap_or_else(|| Err(String::new()));
    // `make` has set the state itself; a failure since then has set another, and was said.
    if let Err(why) = armed
        && recorder::pass_through()
        && !why.is_empty()
    {
        say!("{why}");
        // `run` says it again where it would otherwise have to guess why there is no recording.
        tail::tell_failure(&why);
    }
}

fn make() -> Result<(), String> {
    let config = Config::read();
    for remark in &config.remarks {
        say!("{remark}");
    }
    #[cfg(strandline_floor)]
    crate::platform::unwinder::find();
    hooks::resolve_all();
    hooks::refresh_runtimes();
    tracker::set_report_code(hooks::memory_report_address());
    let clock = clock::choose();
    let began = clock::moment();
    let (rank, host, command) = (Rank::read(), host(), command());
    let place::Created { file, path, is_first } = place::create(&config, &rank, &host, &command)?;
    // A file without a recording in it helps nobody.
    let give_up = |what: &str, e: &dyn std::fmt::Display| {
        tail::remove(&path);
        format!("{what}: {e}; nothing is recorded, the job goes on")
    };
    let who = Identity { pid: std::process::id(), start: started(), id: [random(), random()] };
    let geometry = Geometry::default();
    let mut memory = tail::make(&config, &path, geometry, &who, is_first && rank.is_first_on_node())
        .map_err(|e| give_up("no memory for the rings", &e))?;
    // SAFETY: fresh zeroed memory that is never unmapped and that nobody else in this process knows.
    let region = unsafe { Region::init(memory.base, memory.len, geometry, who, clock, began) }
        .map_err(|e| give_up("cannot set up the rings", &e))?;
    let header = Header {
        who,
        tail: memory.place.as_ref().map(ToString::to_string),
        unix_ns: began.unix_ns,
        provenance: provenance(&config, &rank, &host, &command, clock),
    };
    let tail = memory.path();
    let clean = |e| {
        tail.iter().for_each(|p| tail::remove(p));
        e
    };
    stacks::tables::reserve().map_err(|e| clean(give_up("no memory for stacks", &e)))?;
    thread::reserve(region).map_err(|e| clean(give_up("no memory for threads", &e)))?;
    let options = Options { max_size: Some(config.max_size), ..Options::default() };
    let writer = Output::new(file, path.clone())
        .and_then(|o| Writer::new(o, &header, options))
        .map_err(|e| clean(give_up(&format!("cannot write {}", path.display()), &e)))?;
    // Now that the recording names it. A kill before this leaves no tail, and no event that one would hold.
    if let Err(e) = memory.publish() {
        say!(
            "cannot give the file for the latest events its name ({e}): if kill -9 ends the job, the last second of the recording may be lost"
        );
    }
    let Some(consumer) = region.drain() else {
        return Err(clean(give_up("cannot read the rings", &"taken")));
    };
    let (control, receiver) = bounded(CONTROLS);
    let watcher = watcher::Plan::read(&config, &path);
    if !recorder::record(Session { config, region, control, path: path.clone(), rank: rank.rank }) {
        return Err(clean(give_up("armed twice", &"defect")));
    }
    let rings = (memory.base.as_ptr() as usize, memory.len);
    let probe = Probe::new(memory.place.as_ref().map(|place| holders::place(place, &path)));
    let (is_whole, housekeeping) = (memory.is_whole, chores::all(probe));
    let thread = DrainThread {
        writer,
        drain: consumer,
        control: receiver,
        watcher,
        tail,
        is_whole,
        rings,
        housekeeping,
    };
    if let Err(e) = drain::start(thread) {
        memory.path().iter().for_each(|p| tail::remove(p));
        return Err(give_up("cannot start the writing thread", &e));
    }
    exit::end_at_exit();
    Ok(())
}

fn provenance(config: &Config, rank: &Rank, host: &str, command: &[String], clock: Clock) -> Value {
    json!({
        "strandline": VERSION,
        "source": SOURCE,
        "command": command,
        "cwd": std::env::current_dir().map(|d| d.to_string_lossy().into_owned()).ok(),
        "checkout": config.checkout,
        "host": host,
        "pid": std::process::id(),
        "rank": rank.rank,
        "local_rank": rank.local,
        "world_size": rank.world,
        "restart": rank.restart,
        "python": version::python_version().map(|v| v.split_whitespace().next().unwrap_or("").to_string()),
        "probe": match (config.probe, config.probe_all) {
            (Some(_), false) => json!("leaks"),
            (probe, _) => json!(probe.is_some()),
        },
        "clock": if clock == Clock::Tsc { "tsc" } else { "monotonic" },
        "steps": match &config.steps {
            Steps::Auto => "auto".to_string(),
            Steps::None(asked) => asked.clone(),
            Steps::Every(time) => format!("every:{}", time.as_secs_f64()),
        },
        "devices": devices::facts(),
        "coverage": { "level": "segments", "reason": "PyTorch's caching allocator has not been seen" },
        "alloc_conf": alloc_conf(),
        "visible_devices": std::env::var("CUDA_VISIBLE_DEVICES").ok(),
    })
}

/// The allocator's settings, as torch reads them: the newer name first.
fn alloc_conf() -> Option<String> {
    let names = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];
    names.iter().find_map(|n| std::env::var(n).ok())
}

fn command() -> Vec<String> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    secrets::masked(bytes.split(|&b| b == 0).map(|a| String::from_utf8_lossy(a).into_owned()))
}

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: writes at most 255 bytes; the last one stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let name = name.split(|&b| b == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).replace('/', "_");
    if name.is_empty() { "host".into() } else { name }
}

/// Field 22 of `/proc/self/stat`: with it, a pid is not mistaken for an earlier process's.
fn started() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().nth(19).and_then(|f| f.parse().ok()).unwrap_or(0)
}

fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: writes at most 8 bytes into our array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    if got == 8 { u64::from_le_bytes(bytes) } else { clock::rdtsc() ^ u64::from(std::process::id()) << 32 }
}
