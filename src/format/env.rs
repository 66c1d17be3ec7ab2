//! Every environment variable that strandline reads, once. `run` sets them; all of them can be set by hand.

/// Where the recording goes: a directory (a file per process is created in it), or a file ending in `.strand`.
pub const OUT: &str = "STRANDLINE_OUT";
/// `python` (default), `native`, `both` or `none`.
pub const STACKS: &str = "STRANDLINE_STACKS";
/// `auto` (default), `manual`, `every:SECONDS` or `nvtx:NAME`.
pub const STEPS: &str = "STRANDLINE_STEPS";
/// Bound of one recording's size on disk, such as `256MiB` (default).
pub const MAX_SIZE: &str = "STRANDLINE_MAX_SIZE";
/// The command, for the shim to start a watcher with.
pub const BIN: &str = "STRANDLINE_BIN";
/// `1`: the shim does nothing at all.
pub const DISABLE: &str = "STRANDLINE_DISABLE";
/// Files of suppressions for reports, with `:` between them.
pub const SUPPRESSIONS: &str = "STRANDLINE_SUPPRESSIONS";
/// Rate at which growth raises an alert, such as `50MiB/step`.
pub const ALERT_GROWTH: &str = "STRANDLINE_ALERT_GROWTH";
/// Steps to an out-of-memory within which an alert is raised.
pub const ALERT_OOM_WITHIN: &str = "STRANDLINE_ALERT_OOM_WITHIN";
/// Steps before which no alert is raised.
pub const ALERT_AFTER: &str = "STRANDLINE_ALERT_AFTER";
/// What to do on an alert: actions, separated by commas.
pub const ALERT_ON: &str = "STRANDLINE_ALERT_ON";
/// `leaks` (default): threads of the job are paused for moments to look for who holds what may be a leak, for 200 ms and 0.5 % of its time
/// in all; `on`: of every growth (`on:SECONDS`: whatever it takes, once in so many seconds); `off`: never.
pub const PROBE: &str = "STRANDLINE_PROBE";
/// `1`: somebody watches, so the shim starts no watcher. Set by `run`.
pub const WATCHED: &str = "STRANDLINE_WATCHED";
/// `1`: no line on stderr but failures. Set by `run`, which speaks for the shim.
pub const QUIET: &str = "STRANDLINE_QUIET";
/// Where the tail lies: a directory on tmpfs. Not set: in memory that `run` keeps; without it in `/dev/shm`, if that has room to spare.
pub const TAIL: &str = "STRANDLINE_TAIL";
/// Abstract unix socket of the process that keeps tails open (`format::tail`). Set by `run`.
pub const TAIL_SOCKET: &str = "STRANDLINE_TAIL_SOCKET";
/// Where the simulated device's environment is kept (default: the user's cache), and the library where that cache cannot hold it.
pub const CACHE: &str = "STRANDLINE_CACHE";

/// All of them: a variable that begins with `STRANDLINE_` and is none of these is misspelt.
pub const ALL: &[&str] = &[
    OUT,
    STACKS,
    STEPS,
    MAX_SIZE,
    BIN,
    DISABLE,
    SUPPRESSIONS,
    ALERT_GROWTH,
    ALERT_OOM_WITHIN,
    ALERT_AFTER,
    ALERT_ON,
    PROBE,
    WATCHED,
    QUIET,
    TAIL,
    TAIL_SOCKET,
    CACHE,
];
/// Variables of the simulated device; it checks them itself.
pub const SIMULATOR_PREFIX: &str = "STRANDLINE_SIM_";
