//! Whether the host's own out-of-memory killer struck in our control group. It concerns host memory, not the GPU's, and
//! people mistake one for the other: the job just ends with 137.

use std::fs;
use std::path::{Path, PathBuf};

/// Kills of our control group up to now; `None` where they are not counted.
pub(crate) fn kills() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    files(&groups).iter().find_map(|file| count(&fs::read_to_string(file).ok()?))
}

/// Where the count may lie: version 2, then version 1.
fn files(groups: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = Path::new(path.trim_start_matches('/'));
        if controllers.is_empty() {
            found.push(Path::new("/sys/fs/cgroup").join(path).join("memory.events"));
            // Inside a container the path of the host may not exist: the root of what is mounted is ours.
            found.push("/sys/fs/cgroup/memory.events".into());
        } else if controllers.split(',').any(|c| c == "memory") {
            found.push(Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control"));
            found.push("/sys/fs/cgroup/memory/memory.oom_control".into());
        }
    }
    found
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        assert_eq!(files("0::/user.slice/x\n")[0], Path::new("/sys/fs/cgroup/user.slice/x/memory.events"));
        let v1 = files("12:cpu,cpuacct:/a\n5:memory:/job_7\n");
        assert_eq!(v1[0], Path::new("/sys/fs/cgroup/memory/job_7/memory.oom_control"));
        assert_eq!(count("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n"), Some(2));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), Some(1));
        assert_eq!(count("oom_kill_disable 0\n"), None);
    }
}
