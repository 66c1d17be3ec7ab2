//! Every environment variable that strandline reads, once. `run` sets them; all of them can be set by hand.

macro_rules! variables {
    ($($(#[$doc:meta])* $name:ident = $variable:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $variable;)*
        /// All of them: a variable that begins with `STRANDLINE_` and is none of these is misspelt.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

variables! {
    /// Where the recording goes: a directory (a file per process is created in it), or a file ending in `.strand`.
    OUT = "STRANDLINE_OUT";
    /// `python` (default), `native`, `both` or `none`.
    STACKS = "STRANDLINE_STACKS";
    /// `auto` (default), `manual`, `every:SECONDS` or `nvtx:NAME`.
    STEPS = "STRANDLINE_STEPS";
    /// Bound of one recording's size on disk, such as `256MiB` (default).
    MAX_SIZE = "STRANDLINE_MAX_SIZE";
    /// The command, for the shim to start a watcher with.
    BIN = "STRANDLINE_BIN";
    /// `1`: the shim does nothing at all.
    DISABLE = "STRANDLINE_DISABLE";
    /// Files of suppressions for reports, with `:` between them.
    SUPPRESSIONS = "STRANDLINE_SUPPRESSIONS";
    /// Rate at which growth raises an alert, such as `50MiB/step`.
    ALERT_GROWTH = "STRANDLINE_ALERT_GROWTH";
    /// Steps to an out-of-memory within which an alert is raised.
    ALERT_OOM_WITHIN = "STRANDLINE_ALERT_OOM_WITHIN";
    /// Steps before which no alert is raised.
    ALERT_AFTER = "STRANDLINE_ALERT_AFTER";
    /// What to do on an alert: actions, separated by commas.
    ALERT_ON = "STRANDLINE_ALERT_ON";
    /// `leaks` (default): threads of the job are paused for moments to look for who holds what may be a leak, for 200 ms and 0.5 % of its time
    /// in all; `on`: of every growth (`on:SECONDS`: whatever it takes, once in so many seconds); `off`: never.
    PROBE = "STRANDLINE_PROBE";
    /// `1`: somebody watches, so the shim starts no watcher. Set by `run`.
    WATCHED = "STRANDLINE_WATCHED";
    /// `1`: no line on stderr but failures. Set by `run`, which speaks for the shim.
    QUIET = "STRANDLINE_QUIET";
    /// The checkout that the job's source is of: `COMMIT URL FOLDER`. Set by `run`.
    CHECKOUT = "STRANDLINE_CHECKOUT";
    /// Where the tail lies: a directory on tmpfs. Not set: in memory that `run` keeps; without it in `/dev/shm`, if that has room to spare.
    TAIL = "STRANDLINE_TAIL";
    /// Abstract unix socket of the process that keeps tails open (`format::tail`). Set by `run`.
    TAIL_SOCKET = "STRANDLINE_TAIL_SOCKET";
    /// Where the simulated device's environment is kept (default: the user's cache), and the library where that cache cannot hold it.
    CACHE = "STRANDLINE_CACHE";
}

/// Variables of the simulated device; it checks them itself.
pub const SIMULATOR_PREFIX: &str = "STRANDLINE_SIM_";
