//! `strandline run` is invisible: what reaches the job, what it gives back and how it looks to a shell are as they are
//! without it. The jobs here never touch CUDA: recordings are other tests' subject.

#[path = "run_wrapper/as_bare.rs"]
mod as_bare;
#[path = "cli/support.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use support::{Folder, root, strandline};

/// `strandline run` with these words, in a folder, with a cache of its own.
fn run(folder: &Folder, words: &[&str]) -> Command {
    let mut command = Command::new(strandline());
    command.arg("run").args(words).current_dir(folder.path());
    command.env("XDG_CACHE_HOME", folder.path().join("cache")).env_remove("LD_PRELOAD");
    for variable in strandline::format::env::ALL {
        command.env_remove(variable);
    }
    command
}

fn output(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (shell_status(status), text(&stdout), text(&stderr))
}

/// As a shell says it: 128 and the number of a signal.
fn shell_status(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().expect("it has ended"))
}

#[test]
fn the_status_is_the_jobs_own() {
    let folder = Folder::new("status");
    for (script, status) in [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        assert_eq!(output(run(&folder, &["sh", "-c", script])).0, status, "{script}");
    }
    let text = folder.file("text", "not a program");
    let (status, _, stderr) = output(run(&folder, &[text.to_str().unwrap()]));
    assert_eq!(status, 126, "{stderr}");
    let (status, _, stderr) = output(run(&folder, &["no-such-command"]));
    assert_eq!((status, stderr.contains("no-such-command: command not found")), (127, true), "{stderr}");
    let (status, _, stderr) = output(run(&folder, &["--no-such-option", "true"]));
    assert_eq!((status, stderr.contains("--no-such-option")), (2, true), "{stderr}");
    assert!(!folder.path().join("strandline/no-such-command").exists());
}

/// Who may read the repository is nobody's business.
#[test]
fn a_job_in_a_checkout_is_recorded_with_its_commit_and_without_the_remotes_token() {
    let folder = Folder::new("checkout");
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b.c"]).args(words).current_dir(folder.path());
        let output = git.output().expect("git starts");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let told = || output(run(&folder, &["sh", "-c", "echo \"told: $STRANDLINE_CHECKOUT\""])).1;
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "begin"]);
    assert_eq!(told(), "told: \n", "it has no remote");
    git(&["remote", "add", "origin", "https://user:secret@github.com/owner/name.git"]);
    let (commit, root) = (git(&["rev-parse", "HEAD"]), git(&["rev-parse", "--show-toplevel"]));
    assert_eq!(told(), format!("told: {commit} https://github.com/owner/name {root}\n"));
}

#[test]
fn a_gate_that_could_not_judge_says_so_and_a_failed_job_keeps_its_status() {
    let folder = Folder::new("gate");
    assert_eq!(output(run(&folder, &["--fail-on-leak", "true"])).0, 83);
    assert_eq!(output(run(&folder, &["--fail-on-leak", "--allow-inconclusive", "true"])).0, 0);
    assert_eq!(output(run(&folder, &["--fail-on-leak", "sh", "-c", "exit 5"])).0, 5);
}

#[test]
fn standard_streams_are_the_jobs() {
    let folder = Folder::new("streams");
    let mut child = run(&folder, &["--", "sh", "-c", "cat; echo to-stderr >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    child.stdin.take().expect("piped").write_all(b"one\0two\n\xff").expect("the job reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"one\0two\n\xff", "byte for byte, and nothing of ours");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let foreign: Vec<&str> =
        stderr.lines().filter(|l| !l.starts_with("strandline: ") && !l.starts_with("  next ")).collect();
    assert_eq!(foreign, ["to-stderr"]);
}

#[test]
fn blindness_is_said_with_its_reason() {
    let folder = Folder::new("nothing");
    let (status, stdout, stderr) = output(run(&folder, &["/bin/true"]));
    assert_eq!((status, stdout.as_str()), (0, ""));
    assert!(
        stderr.contains("strandline: NOTHING RECORDED: ") && stderr.contains("so no CUDA call was seen"),
        "{stderr}"
    );
    assert!(stderr.contains("strandline doctor -- /bin/true"), "{stderr}");
    let mut disabled = run(&folder, &["/bin/true"]);
    disabled.env(strandline::format::env::DISABLE, "1");
    assert!(output(disabled).2.contains("NOTHING RECORDED: STRANDLINE_DISABLE=1 is set"));
    let failed = output(run(&folder, &["sh", "-c", "exit 1"])).2;
    assert!(failed.contains("the job failed before its first CUDA call"), "{failed}");
    let made = std::fs::read_dir(folder.path().join("strandline")).expect("made").flatten();
    let left: Vec<_> = made.map(|entry| entry.file_name()).collect();
    assert_eq!(left, [".gitignore"], "a run without a recording leaves no folder of its own");
    assert_eq!(output(run(&folder, &["--quiet", "/bin/true"])).2, "", "--quiet is quiet");
}

#[test]
fn an_existing_preload_keeps_its_place_and_ours_is_absolute() {
    let folder = Folder::new("preload");
    let mut command = run(&folder, &["sh", "-c", "echo $LD_PRELOAD; echo $STRANDLINE_OUT"]);
    // libm is as harmless as a preload can be.
    command.env("LD_PRELOAD", "libm.so.6");
    let (_, stdout, _) = output(command);
    let mut lines = stdout.lines();
    let (first, ours) = lines.next().and_then(|l| l.split_once(':')).expect("two libraries");
    assert_eq!(first, "libm.so.6");
    assert!(
        ours.starts_with('/') && ours.ends_with("/libstrandline.so") && Path::new(ours).exists(),
        "{ours}"
    );
    let out = lines.next().expect("a folder");
    assert!(Path::new(out).is_absolute() && out.contains("/strandline/sh-"), "{out}");
}

#[test]
fn a_script_gets_python_before_it() {
    let folder = Folder::new("python");
    folder.file("script.py", "import sys; print('ran', sys.argv[1:])");
    assert_eq!(output(run(&folder, &["script.py", "--quiet", "-o", "x"])).1, "ran ['--quiet', '-o', 'x']\n");
    assert_eq!(output(run(&folder, &["-q", "-m", "script", "a"])).1, "ran ['a']\n");
}

#[test]
fn two_runs_never_share_a_folder() {
    let folder = Folder::new("folders");
    let start = || {
        let mut command = run(&folder, &["sh", "-c", "echo $STRANDLINE_OUT"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts")
    };
    let children: Vec<Child> = (0..4).map(|_| start()).collect();
    let mut folders: Vec<String> = Vec::new();
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        folders.push(String::from_utf8_lossy(&output.stdout).trim().to_string());
    }
    // Runs that have ended free their (empty) folder, so names may come again; at the same time they never do. Kept
    // folders show it without a race:
    let kept = Folder::new("kept");
    let named = |n: &str| output(run(&kept, &["-o", n, "sh", "-c", "echo x > $STRANDLINE_OUT/h-r0.txt"])).0;
    assert_eq!(named("a"), 0);
    assert_eq!(named("a"), 2, "never overwritten");
    assert!(folders.iter().all(|f| f.contains("/strandline/sh-")), "{folders:?}");
}

/// The job that tells what reaches it, under `strandline run`.
struct Job {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    facts: String,
    _folder: Folder,
}

impl Job {
    fn start() -> Job {
        use std::os::unix::process::CommandExt;
        let folder = Folder::new("signals");
        let facts = folder.path().join("facts");
        let script = root().join("tests/cli/job.py");
        let mut command = run(&folder, &["--quiet", script.to_str().unwrap()]);
        command.env("JOB_FACTS", &facts).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("text"), "ready");
        let facts = std::fs::read_to_string(facts).expect("the job wrote them");
        Job { child, lines, facts, _folder: folder }
    }

    fn next(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }

    /// `kill -NAME` to the wrapper, or to its whole group.
    fn kill(&self, name: &str, group: bool) {
        let target = format!("{}{}", if group { "-" } else { "" }, self.child.id());
        let status = Command::new("kill").args([&format!("-{name}"), "--", &target]).status().expect("kill");
        assert!(status.success());
    }

    /// Waits until the wrapper has taken what it was sent: a signal that comes while another like it is still pending is one
    /// with it, whoever wraps what.
    fn taken(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        let pending = || {
            let text = std::fs::read_to_string(&status).expect("it runs");
            let signals = text.lines().find_map(|l| l.strip_prefix("ShdPnd:")).expect("signals");
            signals.trim().contains(|c| c != '0')
        };
        while pending() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

#[test]
fn a_signal_reaches_the_job_once_whoever_it_was_sent_to() {
    let mut job = Job::start();
    assert!(job.facts.contains(&format!("group={}", job.child.id())), "one process group: {}", job.facts);
    assert!(job.facts.contains(&format!("parent={}", job.child.id())), "{}", job.facts);
    for (name, group) in [
        ("USR1", false),
        ("USR1", true),
        ("USR1", false),
        ("INT", false),
        ("INT", true),
        ("HUP", true),
        ("ILL", false),
        ("FPE", true),
    ] {
        job.kill(name, group);
        assert_eq!(job.next(), format!("got SIG{name}"));
        job.taken();
    }
    // The wrapper passes signals on one after the other: when this one has come, any double of an earlier one has.
    job.kill("TERM", false);
    assert_eq!(job.next(), "got SIGTERM");
    assert_eq!(job.next(), "counts SIGFPE=1 SIGHUP=1 SIGILL=1 SIGINT=2 SIGTERM=1 SIGUSR1=3");
    assert_eq!(job.child.wait().expect("it ends").code(), Some(7), "the status of the job's own handler");
}

/// Runs the job in a terminal under a small shell; what `tests/cli/terminal.py` says.
fn terminal(keys: &[&str]) -> (String, String) {
    let job = root().join("tests/cli/job.py").to_string_lossy().into_owned();
    terminal_with(keys, &[&job])
}

/// The same with this job.
fn terminal_with(keys: &[&str], job: &[&str]) -> (String, String) {
    let folder = Folder::new("terminal");
    let facts = folder.path().join("facts");
    let mut command = Command::new("python3");
    command.arg(root().join("tests/cli/terminal.py")).args(keys).arg("--").arg(strandline());
    command.args(["run", "--quiet"]).args(job).current_dir(folder.path());
    command
        .env("JOB_FACTS", &facts)
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .env_remove("LD_PRELOAD");
    let (_, stdout, stderr) = output(command);
    assert!(stdout.contains("status"), "{stdout}\n{stderr}");
    (stdout, std::fs::read_to_string(facts).expect("the job wrote them"))
}

#[test]
fn the_terminal_is_the_jobs_and_its_keys_come_once() {
    let (said, facts) =
        terminal(&["ready", "^C", "got SIGINT", "^C", "got SIGINT", "winch", "got SIGWINCH", "term"]);
    assert!(facts.contains("tty=[1, 1, 1] foreground=1"), "{facts}");
    assert!(said.contains("counts SIGINT=2 SIGTERM=1 SIGWINCH=1\n"), "{said}");
    assert!(said.ends_with("status 7\n"), "{said}");
}

/// `timeout` makes a group of its own where it does not lead one, and so does a job that asks for it: alone, both would lead the terminal's.
#[test]
fn the_keys_reach_a_job_that_has_left_the_terminals_group() {
    let job = root().join("tests/cli/job.py").to_string_lossy().into_owned();
    let keys = ["ready", "^C", "got SIGINT", "term"];
    let (said, _) = terminal_with(&keys, &["timeout", "30", "python3", &job]);
    assert!(said.ends_with("status 7\n"), "{said}");
    for leave in ["setpgrp", "setsid"] {
        let leaves = format!("import os, runpy; os.{leave}(); runpy.run_path({job:?}, run_name='__main__')");
        let (said, _) = terminal_with(&keys, &["python3", "-c", &leaves]);
        assert!(said.contains("counts SIGINT=1 SIGTERM=1\n"), "{leave}: {said}");
    }
}

/// As a suspended job of a scheduler, or one under `cpulimit`: whoever continues the job, or ends it, knows of nobody before it.
#[test]
fn a_job_that_is_stopped_and_continued_alone_goes_on() {
    for (then, says, status) in [("CONT", "continued\n", 3), ("KILL", "", 128 + 9)] {
        let script = format!(
            "trap 'echo continued' CONT; (sleep 0.5; kill -{then} $$) >/dev/null & kill -STOP $$; wait; exit 3"
        );
        let mut command = Command::new("timeout");
        command.arg("20").arg(strandline()).args(["run", "--quiet", "--", "sh", "-c", &script]);
        let (ended, stdout, stderr) = output(command);
        assert_eq!((ended, stdout.as_str()), (status, says), "{then}: {stderr}");
    }
}

#[test]
fn the_shell_can_stop_and_continue_it() {
    let (said, _) = terminal(&["ready", "^Z", "stopped", "fg", "got SIGCONT", "^C", "got SIGINT", "term"]);
    assert!(said.contains("shell says stopped, the job is T"), "{said}");
    assert!(said.contains("counts SIGCONT=1 SIGINT=1 SIGTERM=1\n"), "{said}");
    assert!(said.ends_with("status 7\n"), "{said}");
}
