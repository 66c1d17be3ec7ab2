//! How a process ended, as whoever waited for it knows.

/// What `waitpid(2)` said of a process, and what else was known then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// What `waitpid(2)` said.
    pub status: i32,
    /// What the host's out-of-memory killer had done until then.
    pub killer: HostKiller,
}

/// What Linux's out-of-memory killer, which is about host memory, did in the job's control group while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostKiller {
    /// Its kills are not counted here, or nobody counted.
    #[default]
    Uncounted,
    /// It ended no process of the group.
    Spared,
    /// It ended one: the machine, or a group that contains this one, had no memory left.
    Killed,
    /// It ended one, for the group had reached its own limit.
    KilledAtLimit {
        /// The limit in bytes, where it can be read.
        limit: Option<u64>,
    },
}

impl HostKiller {
    /// It ended a process.
    pub fn killed(self) -> bool {
        matches!(self, HostKiller::Killed | HostKiller::KilledAtLimit { .. })
    }
}
