//! Jobs that die of different shortages, on the simulated device: the recording alone tells them apart.

mod support;

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Folder, Job, report, shell_status, strandline};

/// What is said of a job that dies of `cause` on a card of `total`, of which others hold `other`: its verdict's reason,
/// the failure, and the text.
#[track_caller]
fn died(cause: &str, total: &str, other: &str) -> (String, Value, String) {
    died_with("", cause, total, other)
}

/// The same with PyTorch's allocator configured.
#[track_caller]
fn died_with(settings: &str, cause: &str, total: &str, other: &str) -> (String, Value, String) {
    let folder = Folder::new("oom");
    let job = Job::python(&folder, "tests/python/oom.py", &[cause]).env("PYTORCH_CUDA_ALLOC_CONF", settings);
    let ran = job.env("STRANDLINE_SIM_TOTAL", total).env("STRANDLINE_SIM_OTHER", other).run_imported();
    assert_eq!(ran.output.status.code(), Some(1), "{}{}", ran.stdout(), ran.stderr());
    assert!(ran.theirs().contains("OutOfMemoryError"), "{}", ran.stderr());
    let report = report(&ran.recording()).whole();
    let (verdict, reason) = report.verdict();
    assert_eq!(verdict, "oom", "{reason}");
    let advice = strandline(&["advise".as_ref(), ran.recording().as_os_str()]);
    let advice = advice.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(advice.contains(" failed memory ran out in step ") && advice.contains(" in all"), "{advice}");
    let text = strandline(&["report".as_ref(), ran.recording().as_os_str()]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // After one step nobody can rule a leak out, and nothing is known of what comes after the last one.
    let judged = if ["state", "after"].contains(&cause) { "" } else { ", NO LEAK" };
    assert!(words.starts_with(&format!("strandline: OUT OF MEMORY{judged} (")), "{text}");
    let device = &report.process["devices"][0];
    let failed = device["oom"].clone();
    // However long the first step took: what fills the card is told of the step that failed.
    assert_eq!(device["anatomy"]["step"], failed["step"], "{device}");
    // As PyTorch words the request, to the two digits of its message.
    let stderr = ran.stderr();
    let (_, tried) = stderr.split_once("Tried to allocate ").expect("its message");
    let mut tried = tried.split_whitespace();
    let (n, unit) = (tried.next().expect("a number"), tried.next().expect("a unit").trim_end_matches('.'));
    let unit = if unit == "GiB" { 1u64 << 30 } else { 1 << 20 };
    let own = number(&failed, "tried_to_allocate_bytes") as f64 / unit as f64;
    assert_eq!(format!("{own:.2}"), n, "{failed}");
    let holder = failed["holders"][0]["line"]["file"].as_str().unwrap_or_default();
    assert!(holder.ends_with(".py"), "{failed}");
    (reason.to_string(), failed, words)
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no {name} in {of}"))
}

#[test]
fn steps_that_need_more_and_more() {
    let (reason, oom, text) = died("rising", "1GiB", "0");
    assert_eq!(oom["cause"], "rising-peak", "{reason}");
    assert!(
        text.contains("NO LEAK (each step needed more memory than the one before). Memory rose by ")
            && text.contains(", where memory ran out."),
        "{text}"
    );
}

#[test]
fn memory_that_fills_long_after_the_last_step() {
    let (reason, oom, text) = died("after", "256MiB", "0");
    assert_eq!(oom["cause"], "after-steps", "{reason}");
    assert!(text.contains("this part of the job has no steps"), "{text}");
}

#[test]
fn one_long_batch() {
    let (reason, oom, text) = died("batch", "2GiB", "0");
    assert_eq!(oom["cause"], "batch", "{reason}");
    assert_eq!((&oom["step"], &oom["phase"]), (&15.into(), &"forward".into()), "{oom}");
    assert!(number(&oom, "step_need_bytes") > 4 * number(&oom, "median_step_need_bytes"), "{oom}");
    assert!(text.contains("× as much memory as a typical step). It needed at least"), "{text}");
}

#[test]
fn one_long_batch_with_expandable_segments() {
    let (reason, oom, _) = died_with("expandable_segments:True", "batch", "2GiB", "0");
    assert_eq!(oom["cause"], "batch", "{reason}");
    assert_eq!((&oom["step"], &oom["phase"]), (&15.into(), &"forward".into()), "{oom}");
    assert!(number(&oom, "step_need_bytes") > 4 * number(&oom, "median_step_need_bytes"), "{oom}");
}

#[test]
fn free_memory_in_pieces() {
    let (reason, oom, text) = died("fragments", "1792MiB", "0");
    assert_eq!(oom["cause"], "fragmentation", "{reason}");
    let (cached, largest) = (number(&oom, "cached_bytes"), number(&oom, "largest_free_bytes"));
    assert!(largest < 64 << 20 && number(&oom, "requested_bytes") == 700 << 20, "{oom}");
    assert!(cached > 700 << 20 && number(&oom, "cached_pieces") > 32, "{oom}");
    assert!(text.contains("expandable_segments:True"), "{text}");
}

/// A leak fills the card, and what is between its blocks is of no use to what is larger: that is said beside the leak.
#[test]
fn a_leak_that_leaves_only_pieces() {
    let folder = Folder::new("pieces");
    let source = "import torch\nnet = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), \
                  torch.nn.Conv2d(16, 32, 3, padding=1)).cuda()\nopt, kept = torch.optim.SGD(net.parameters(), 0.1), []\n\
                  for _ in range(1000):\n    out = net(torch.rand(16, 3, 64, 64, device='cuda'))\n    kept.append(out.detach())\n    \
                  out.relu().square().mean().backward()\n    opt.step()\n    opt.zero_grad()\n";
    let job = Job::program(&folder, support::python()).arg("-c").arg(source);
    let ran = job.env("STRANDLINE_SIM_TOTAL", "1GiB").run();
    let text = strandline(&["report".as_ref(), ran.recording().as_os_str()]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with("strandline: GROWING, OUT OF MEMORY. "), "{text}");
    let said = " was in PyTorch's cache, but in blocks of at most ";
    assert!(
        words.contains(said)
            && words.contains("; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets PyTorch join them"),
        "{text}"
    );
    // What is suppressed is the cause all the same.
    let words = ["report", "--fail-on-leak", "--allow-growth", "1GiB/step"].map(AsRef::as_ref);
    let text = strandline(&[&words[..], &[ran.recording().as_os_str()]].concat());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = "strandline: OUT OF MEMORY. Growth that is suppressed by --allow-growth 1.0 GiB/step filled the GPU; memory grows by ";
    assert!(words.starts_with(first) && !words.contains(" try "), "{text}");
}

#[test]
fn what_another_process_holds() {
    let (reason, oom, _) = died("other", "6GiB", "5GiB");
    assert_eq!(oom["cause"], "other-processes", "{reason}");
    assert!(number(&oom, "outside_bytes") >= 5 << 30, "{oom}");
    assert_eq!(oom["other_processes_bytes"], Value::Null, "nobody asked the driver: {oom}");
}

#[test]
fn an_optimizers_state() {
    let (reason, oom, text) = died("state", "1536MiB", "0");
    assert_eq!((&oom["cause"], &oom["phase"]), (&"optimizer-state".into(), &"optimizer".into()), "{reason}");
    assert!(text.contains("8-bit optimizer"), "{text}");
}

/// A control group of our own for memory, below the one that we are in: a folder where its limit is set. It is removed in the
/// end.
struct Group(PathBuf);

impl Group {
    /// `None` where none can be made, or where its limit would not hold.
    fn new(limit: u64) -> Option<Group> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            let (root, file) = match controllers {
                "" => ("/sys/fs/cgroup", "memory.max"),
                c if c.split(',').any(|c| c == "memory") => {
                    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
                }
                _ => return None,
            };
            let here = Path::new(root).join(path).join(format!("strandline-{}", std::process::id()));
            std::fs::create_dir(&here).ok()?;
            let group = Group(here);
            // Without the controller a version 2 group has no such file, and writing makes none.
            let set = std::fs::OpenOptions::new().write(true).open(group.0.join(file));
            set.ok()?.write_all(limit.to_string().as_bytes()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Host memory, not the card's: the kernel kills a job whose control group has had all it may, and people see 137.
#[test]
fn what_the_host_kills() {
    let Some(group) = Group::new(1 << 30) else {
        println!(
            "SKIPPED: no control group with a limit of memory can be made here (the counters are read in run/host.rs)"
        );
        return;
    };
    let folder = Folder::new("host");
    // Memory that is touched but never swapped out; the job itself stays far below the limit.
    let fills = "import mmap, torch\nx = torch.ones(1 << 20, device='cuda')\nm = []\nwhile True: m.append(b'x' * (64 << 20))";
    let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let mut command = Command::new("sh");
    std::env::vars_os().filter(|(k, _)| k.to_string_lossy().starts_with("STRANDLINE_")).for_each(|(k, _)| {
        command.env_remove(k);
    });
    command.env("STRANDLINE_CACHE", support::cache()).env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
        .arg("-c")
        .arg(enter)
        .arg(&group.0)
        .arg(support::command())
        .arg("run")
        .arg("-o")
        .arg(folder.join("rec"));
    let output = command.arg("--").arg(support::python()).arg("-c").arg(fills).output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(shell_status(output.status), 137, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("strandline: KILLED BY THE HOST"), "{text}");
    let limit = " reached its limit of host memory (1.0 GiB), ";
    assert!(words.contains(limit), "{text}");
    // The recording keeps it for whoever reads it later.
    let later = support::strandline(&["report".as_ref(), folder.join("rec").as_os_str()]);
    assert!(later.split_whitespace().collect::<Vec<_>>().join(" ").contains(limit), "{later}");
}

/// A limit is known long before it is met: PyTorch keeps it to itself where it caches, and tells the driver nothing.
#[test]
fn what_the_job_allows_itself() {
    let call = "torch.cuda.set_per_process_memory_fraction(0.25)";
    let later = "x = torch.ones(1, device='cuda'); torch.cuda.set_per_process_memory_fraction(0.25)";
    let cases = [
        ("", call),
        ("", later),
        ("per_process_memory_fraction:0.25", "pass"),
        ("backend:cudaMallocAsync", later),
    ];
    for (settings, does) in cases {
        let folder = Folder::new("limit");
        let source = format!("import torch; {does}; y = torch.ones(1, device='cuda'); y.cpu()");
        let job = Job::program(&folder, support::python()).arg("-c").arg(source);
        let job = job.env("STRANDLINE_SIM_TOTAL", "8GiB").env("PYTORCH_CUDA_ALLOC_CONF", settings);
        let ran = job.run().succeeded();
        let device = &report(&ran.recording()).process["devices"][0];
        let limit = number(device, "limit_bytes");
        assert!(limit.abs_diff(2 << 30) <= 1, "{settings} {does}: {device}");
        assert_eq!(device["capacity_bytes"], 8u64 << 30, "{device}");
    }
}
