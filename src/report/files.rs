//! Files as people are told of them: by their path within a package, or below a folder of the job.

use super::model::Facts;

impl Facts<'_> {
    /// The folders that a job's own files are named from: where it ran, and where its script lies, from which Python imports. A path
    /// below the first that fits is shown from there.
    pub(super) fn folders(self) -> Vec<String> {
        let cwd = self.text("cwd").map(|cwd| cwd.trim_end_matches('/').to_owned());
        let script = self.script().and_then(|script| script.rsplit_once('/')).map(|(folder, _)| folder);
        // As Python names the script itself, and as it names what that imports.
        let whole = script.and_then(|folder| whole(cwd.as_deref(), folder));
        let given = script.filter(|folder| folder.starts_with("..")).map(str::to_owned);
        let mut folders: Vec<String> = cwd.into_iter().collect();
        for folder in [whole, given].into_iter().flatten() {
            // All of what lies below another is named from there.
            let is_below = folders.iter().any(|f| folder == *f || folder.starts_with(&format!("{f}/")));
            if !folder.is_empty() && !is_below {
                folders.push(folder);
            }
        }
        folders
    }
}

/// A folder as an absolute path without `..`; `None` where nobody knows what it is relative to.
fn whole(cwd: Option<&str>, folder: &str) -> Option<String> {
    let path = if folder.starts_with('/') { folder.to_owned() } else { format!("{}/{folder}", cwd?) };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    path.starts_with('/').then(|| parts.iter().map(|part| format!("/{part}")).collect())
}

/// A path without what is the same for all: up to `site-packages/`, or the first of these folders that it lies below.
pub(super) fn short_path<'f, S: AsRef<str>>(file: &'f str, folders: &[S]) -> &'f str {
    for root in ["/site-packages/", "/dist-packages/", ".whl/"] {
        if let Some(i) = file.rfind(root) {
            return &file[i + root.len()..];
        }
    }
    let below = |folder: &S| file.strip_prefix(folder.as_ref())?.strip_prefix('/');
    let short = folders.iter().find_map(below).map(|rest| rest.trim_start_matches('/'));
    short.unwrap_or_else(|| file.strip_prefix("./").unwrap_or(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Item, Names};
    use crate::replay::Replay;
    use serde_json::{Value, json};

    #[test]
    fn paths_keep_what_tells_them_apart() {
        let trl = "/home/u/env/lib/python3.12/site-packages/trl/models/activation_offloading.py";
        assert_eq!(short_path(trl, &["/home/u"]), "trl/models/activation_offloading.py");
        assert_eq!(short_path("/home/u/job/train.py", &["/home/u/job"]), "train.py");
        assert_eq!(short_path("/home/u/job2/train.py", &["/home/u/job"]), "/home/u/job2/train.py");
        assert_eq!(short_path("./train.py", &[""; 0]), "train.py");
        assert_eq!(
            short_path("/tmp/trl-1.3.0-py3-none-any.whl/trl/models/a.py", &["/tmp"]),
            "trl/models/a.py"
        );
    }

    /// A job that is started from elsewhere, as launchers start it, has its script's folder for its files.
    #[test]
    fn files_are_named_from_where_the_job_ran_or_its_script_lies() {
        let of = |cwd: Value, command: &[&str], file: &str| {
            let mut replay = Replay::new();
            replay.apply(&Item::Meta(json!({ "cwd": cwd, "command": command })), &Names::default());
            short_path(file, &Facts::of(&replay).folders()).to_owned()
        };
        let jobs = || json!("/jobs/");
        assert_eq!(of(jobs(), &["python", "-u", "../home/u/train.py"], "/home/u/lib/a.py"), "lib/a.py");
        assert_eq!(of(jobs(), &["python", "../home/u/train.py"], "../home/u/train.py"), "train.py");
        assert_eq!(of(jobs(), &["python", "/home/u/train.py"], "/home/v/a.py"), "/home/v/a.py");
        assert_eq!(of(jobs(), &["python", "sub/train.py"], "/jobs/sub/a.py"), "sub/a.py");
        assert_eq!(of(jobs(), &["python", "/train.py"], "/home/a.py"), "/home/a.py", "a root is no folder");
        assert_eq!(of(Value::Null, &["python", "your/file1.py"], "your/file1.py"), "your/file1.py");
        assert_eq!(of(jobs(), &["./bin/a.out", "/home/u/train.py"], "/home/u/a.py"), "/home/u/a.py");
    }
}
