//! Whether the host's own out-of-memory killer struck in our control group. It concerns host memory, not the GPU's, and
//! people mistake one for the other: the job just ends with 137.

use std::fs;
use std::path::{Path, PathBuf};
use strandline::event::HostKiller;

/// What the kernel has counted of our control group up to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Its processes that the killer ended.
    kills: u64,
    /// How often it reached its own limit, and no memory could be had back from it.
    at_limit: u64,
    /// The file of the limit.
    limit: PathBuf,
    /// Whatever the killer ended on this machine, where that is told: a job may have entered another control group.
    everywhere: Option<u64>,
}

/// The counts; `None` where there are none.
pub(crate) fn counts() -> Option<Counts> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let everywhere = fs::read_to_string("/proc/vmstat").ok().and_then(|text| count(&text, "oom_kill "));
    let counts = folders(&groups).iter().find_map(|folder| counts_of(folder))?;
    Some(Counts { everywhere, ..counts })
}

/// What the killer did since the counts were taken.
pub(crate) fn since(before: Option<&Counts>) -> HostKiller {
    before.zip(counts()).map_or(HostKiller::Uncounted, |(before, now)| between(before, &now))
}

fn between(before: &Counts, now: &Counts) -> HostKiller {
    if now.kills <= before.kills && now.everywhere > before.everywhere {
        HostKiller::Uncounted
    } else if now.kills <= before.kills {
        HostKiller::Spared
    } else if now.at_limit <= before.at_limit {
        HostKiller::Killed
    } else {
        let limit = fs::read_to_string(&now.limit).ok().and_then(|text| text.trim().parse().ok());
        HostKiller::KilledAtLimit { limit }
    }
}

/// Where the counts may lie: version 2, then version 1. Inside a container the path of the host may not exist: the root of what is mounted
/// is ours.
fn folders(groups: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            of if of.split(',').any(|c| c == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        found.push(root.join(path.trim_start_matches('/')));
        found.push(root.to_owned());
    }
    found
}

/// The counts of a control group, of version 2 or 1 (which counts as "at the limit" also what memory was had back for).
fn counts_of(folder: &Path) -> Option<Counts> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    if let Some(events) = read("memory.events") {
        let (kills, at_limit) = (count(&events, "oom_kill ")?, count(&events, "oom ")?);
        return Some(Counts { kills, at_limit, limit: folder.join("memory.max"), everywhere: None });
    }
    let kills = count(&read("memory.oom_control")?, "oom_kill ")?;
    let at_limit = read("memory.failcnt").and_then(|n| n.trim().parse().ok()).unwrap_or(0);
    Some(Counts { kills, at_limit, limit: folder.join("memory.limit_in_bytes"), everywhere: None })
}

fn count(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_found() {
        assert_eq!(folders("0::/user.slice/x\n")[0], Path::new("/sys/fs/cgroup/user.slice/x"));
        let v1 = folders("12:cpu,cpuacct:/a\n5:memory:/job_7\n");
        assert_eq!(v1, ["/sys/fs/cgroup/memory/job_7", "/sys/fs/cgroup/memory"].map(PathBuf::from));
    }

    #[test]
    fn what_was_ended_elsewhere_may_have_been_the_job() {
        let of = |kills, everywhere| Counts { kills, at_limit: 0, limit: PathBuf::new(), everywhere };
        assert_eq!(between(&of(1, Some(4)), &of(1, Some(4))), HostKiller::Spared);
        assert_eq!(between(&of(1, Some(4)), &of(1, Some(5))), HostKiller::Uncounted);
        assert_eq!(between(&of(1, None), &of(1, None)), HostKiller::Spared);
        assert_eq!(between(&of(1, Some(4)), &of(2, Some(5))), HostKiller::Killed);
    }

    #[test]
    fn both_versions_are_read() {
        let folder = std::env::temp_dir().join(format!("strandline-host-{}", std::process::id()));
        let read = |files: &[(&str, &str)]| {
            fs::create_dir_all(&folder).expect("a folder");
            files.iter().for_each(|(file, text)| fs::write(folder.join(file), text).expect("a file"));
            let counts = counts_of(&folder).map(|c| (c.kills, c.at_limit));
            fs::remove_dir_all(&folder).expect("it was made");
            counts
        };
        let v2 = "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(read(&[("memory.events", v2)]), Some((2, 1)));
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        assert_eq!(read(&[("memory.oom_control", v1), ("memory.failcnt", "7\n")]), Some((1, 7)));
        assert_eq!(read(&[("memory.oom_control", "oom_kill_disable 0\n")]), None);
        assert_eq!(read(&[]), None);
    }
}
