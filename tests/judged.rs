//! Blind is not clean: a job that leaks, and that we cannot see, is "not judged" for a reason that is told; and the job does
//! not notice that anybody tried.

mod support;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use support::{Folder, Job, command, preload_so, python, report, root};

/// What a command did.
struct Did {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Did {
    fn run(mut command: Command) -> Did {
        let ours = std::env::vars_os().map(|(k, _)| k);
        for name in ours.filter(|k| k.to_string_lossy().starts_with("STRANDLINE_")) {
            if !command.get_envs().any(|(k, _)| k == name) {
                command.env_remove(name);
            }
        }
        let Output { status, stdout, stderr } =
            command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let status = status.code().unwrap_or_else(|| panic!("{command:?}: {status:?}"));
        Did { status, stdout: text(stdout), stderr: text(stderr) }
    }

    /// Stderr without our lines: whole ones that begin with our name, and what is indented below them.
    fn theirs(&self) -> Vec<&str> {
        self.stderr.lines().filter(|l| !l.starts_with("strandline: ") && !l.starts_with("  ")).collect()
    }

    /// Our text, its lines joined.
    fn ours(&self) -> String {
        let ours = self.stderr.lines().filter(|l| l.starts_with("strandline: ") || l.starts_with("  "));
        ours.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }
}

/// The job that leaks, as it runs by itself.
fn job(arguments: &[OsString]) -> Vec<OsString> {
    let script = root().join("tests/python/judged.py");
    [python().into(), script.into()].into_iter().chain(arguments.iter().cloned()).collect()
}

/// Words that run by themselves; a script is a child of a process that has imported PyTorch.
fn bare(folder: &Folder, words: &[OsString], env: &[(&str, &str)]) -> Did {
    if words[0] == python().as_os_str() && words[1] != "-c" {
        let job = Job::program(folder, python()).args(&words[1..]).env("LD_PRELOAD", "");
        let ran = env.iter().fold(job, |job, (name, value)| job.env(name, value)).run_imported();
        let status = ran.output.status.code().unwrap_or_else(|| panic!("{:?}", ran.output.status));
        return Did { status, stdout: ran.stdout(), stderr: ran.stderr() };
    }
    let mut bare = Command::new(&words[0]);
    bare.args(&words[1..]).current_dir(folder.path()).envs(env.iter().copied()).env_remove("LD_PRELOAD");
    Did::run(bare)
}

/// What the job that leaks does by itself.
fn alone() -> &'static Did {
    static ALONE: LazyLock<Did> = LazyLock::new(|| bare(&Folder::new("alone"), &job(&[]), &[]));
    &ALONE
}

/// Words under `strandline run --fail-on-leak`, into `rec`. It must not differ from the bare job but by what the gate makes of a 0.
#[track_caller]
fn recorded(folder: &Folder, words: &[OsString], env: &[(&str, &str)]) -> Did {
    recorded_as(&bare(folder, words, env), folder, words, env)
}

/// The same, compared with what the job did alone.
#[track_caller]
fn recorded_as(alone: &Did, folder: &Folder, words: &[OsString], env: &[(&str, &str)]) -> Did {
    assert_eq!(alone.status, 0, "{}", alone.stderr);
    let mut run = Command::new(command());
    run.args(["run", "--fail-on-leak", "-o", "rec", "--"]).args(words).current_dir(folder.path());
    run.envs(env.iter().copied()).env_remove("LD_PRELOAD");
    run.env("XDG_CACHE_HOME", support::cache()).env("STRANDLINE_TAIL", folder.path());
    let did = Did::run(run);
    assert_eq!(did.stdout, alone.stdout);
    assert_eq!(did.theirs(), alone.theirs());
    did
}

/// Not judged, because of `why`, which both the text and the JSON tell.
#[track_caller]
fn not_judged(folder: &Folder, did: &Did, allocator: &str, why: &str) {
    assert_eq!(did.status, 83, "{}", did.stderr);
    let ours = did.ours();
    assert!(ours.contains("NOT JUDGED") && ours.contains(why), "{ours}");
    let report = report(&folder.join("rec"));
    let p = &report.process;
    assert_eq!(report.verdict().0, "unknown", "{}", report.run);
    assert_eq!(p["coverage"]["level"], "segments", "{p}");
    assert!(p["coverage"]["reason"].as_str().is_some_and(|r| r.contains(why)), "{p}");
    assert_eq!(p["allocator"], allocator);
    // What was not seen is not known; it is not 0.
    assert!(p["devices"][0]["peak_allocated_bytes"].is_null(), "{p}");
}

#[test]
fn what_is_seen_is_judged() {
    let folder = Folder::new("seen");
    let did = recorded_as(alone(), &folder, &job(&[]), &[]);
    let report = report(&folder.join("rec")).whole();
    let (verdict, reason) = report.verdict();
    assert!(["leak", "growing"].contains(&verdict), "{verdict}: {reason}\n{}", did.stderr);
    assert_eq!(did.status, if verdict == "leak" { 81 } else { 84 });
}

#[test]
fn a_python_without_torch_is_named() {
    let folder = Folder::new("no-torch");
    let venv = folder.join("venv");
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--without-pip"]).arg(&venv);
    assert_eq!(Did::run(make).status, 0);
    let words = [venv.join("bin/python").into(), "-c".into(), "print('no torch here')".into()];
    let did = recorded(&folder, &words, &[]);
    assert_eq!(did.status, 83, "{}", did.stderr);
    let why = "NOTHING RECORDED: this python has no torch, so no CUDA call was seen";
    assert!(did.ours().contains(why), "{}", did.stderr);
    assert!(!folder.join("rec").exists(), "no empty folder is left");
}

#[test]
fn torch_without_a_device_is_named() {
    let folder = Folder::new("no-device");
    let did = recorded(&folder, &job(&[]), &[("CUDA_VISIBLE_DEVICES", "")]);
    assert!(did.stdout.starts_with("cpu 40 "), "{}", did.stdout);
    assert_eq!(did.status, 83, "{}", did.stderr);
    assert!(did.ours().contains("so no CUDA call was seen"), "{}", did.stderr);
    assert!(!folder.join("rec").exists());
}

#[test]
fn an_allocator_that_is_not_torchs_own_is_not_judged() {
    let folder = Folder::new("pluggable");
    let library = pluggable(&folder);
    let did = recorded(&folder, &job(&[library.into()]), &[]);
    not_judged(&folder, &did, "pluggable", "allocator is a pluggable one");
}

/// A pluggable allocator in a few lines of C.
fn pluggable(folder: &Folder) -> PathBuf {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stddef.h>
        #include <sys/types.h>
        void *take(ssize_t size, int device, void *stream) {
            int (*real)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_DEFAULT, "cudaMalloc");
            void *p = NULL;
            return size > 0 && real && real(&p, (size_t)size) == 0 ? p : NULL;
        }
        void give(void *p, ssize_t size, int device, void *stream) {
            int (*real)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "cudaFree");
            if (real) real(p);
        }
    "#;
    let (source, library) = (folder.join("pluggable.c"), folder.join("pluggable.so"));
    std::fs::write(&source, SOURCE).expect("an own folder can be written");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let did = Did::run(cc);
    assert_eq!(did.status, 0, "{}", did.stderr);
    library
}

#[test]
fn shells_and_git_do_not_notice() {
    let folder = Folder::new("shell");
    let script =
        "git init -q . && git status --short --branch; for i in 1 2 3; do (echo $i); done; false || exit 3";
    let mut all = Vec::new();
    for preload in [false, true] {
        let mut sh = Command::new("/bin/sh");
        sh.arg("-c").arg(script).current_dir(folder.path()).env_remove("LD_PRELOAD");
        if preload {
            sh.env("LD_PRELOAD", preload_so()).env("STRANDLINE_OUT", folder.join("out"));
            sh.env("STRANDLINE_TAIL", folder.path());
        }
        let did = Did::run(sh);
        assert!(did.status == 3 && did.stdout.ends_with("1\n2\n3\n"), "{}{}", did.stdout, did.stderr);
        all.push((did.stdout, did.stderr));
    }
    assert_eq!(all[0], all[1]);
    assert!(!folder.join("out").exists() && folder.files(".strand").is_empty());
}

/// A program under the preload with a file system of 256 KiB, in a mount namespace of its own, at `mnt`; what it has written
/// there is in `kept` afterwards. `None` where this machine allows no mounts: that is said.
fn small_disk(folder: &Folder, words: &[OsString], env: &[(&str, &Path)]) -> Option<Did> {
    const MOUNT: &str =
        "mount -t tmpfs -o size=256k none mnt || exit 99; \"$@\"; r=$?; cp -a mnt/. kept/ || r=98; exit $r";
    for name in ["mnt", "kept"] {
        std::fs::create_dir(folder.join(name)).expect("an own folder can be written");
    }
    for flags in ["-m", "-Urm"] {
        let mut unshare = Command::new("unshare");
        unshare.arg(flags).args(["sh", "-c", MOUNT, "sh", "env"]);
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(preload_so());
        unshare.arg(preload).args(words).current_dir(folder.path()).envs(env.iter().copied());
        let did = Did::run(unshare);
        if !did.stderr.contains("unshare: ") && did.status != 99 {
            return Some(did);
        }
        eprintln!("unshare {flags}: {}", did.stderr.trim());
    }
    eprintln!("SKIPPED: no mount namespace can be made here");
    None
}

/// Many allocations of many sizes in 40 steps: 400 KiB of recording, so that 256 KiB hold half of the steps.
const BUSY: &str = "
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    for i in range(2500):
        torch.empty(512 * (1 + (i * 7919 + step) % 4093), device='cuda', dtype=torch.uint8)
    model(torch.randn(4, 64, device='cuda')).sum().backward()
    optimizer.step()
print('done', torch.cuda.max_memory_allocated())
";

fn busy() -> Vec<OsString> {
    vec![python().into(), "-c".into(), BUSY.into()]
}

#[test]
fn a_disk_that_fills_ends_the_recording_and_not_the_job() {
    let folder = Folder::new("disk-full");
    let alone = bare(&folder, &busy(), &[]);
    let out = folder.join("mnt/rec.strand");
    let Some(did) =
        small_disk(&folder, &busy(), &[("STRANDLINE_OUT", &out), ("STRANDLINE_TAIL", folder.path())])
    else {
        return;
    };
    assert_eq!((did.status, &did.stdout), (0, &alone.stdout), "{}", did.stderr);
    assert_eq!(did.theirs(), alone.theirs());
    assert_eq!(did.stderr.matches("disk full while writing").count(), 1, "{}", did.stderr);
    // What was written can be read, and is not taken for the whole.
    let report = report(&folder.join("kept/rec.strand"));
    assert_eq!(report.verdict(), ("unknown", "the recording stopped before the job ended"), "{}", report.run);
    assert!(
        report.process["steps"].as_u64().is_some_and(|n| n >= 12),
        "enough to be judged: {}",
        report.process
    );
    assert!(report.process["events"].as_u64().is_some_and(|n| n > 1000), "{}", report.process);
}

#[test]
fn a_tail_without_room_is_said_and_the_job_is_judged_all_the_same() {
    let folder = Folder::new("tail-full");
    let (out, tail) = (folder.join("rec.strand"), folder.join("mnt"));
    let Some(did) = small_disk(&folder, &job(&[]), &[("STRANDLINE_OUT", &out), ("STRANDLINE_TAIL", &tail)])
    else {
        return;
    };
    assert!(did.status == 0 && did.stdout.starts_with("cuda 40 "), "{}{}", did.stdout, did.stderr);
    assert_eq!(did.theirs(), ["an own word"]);
    assert_eq!(did.stderr.matches("kill -9 may lose the last second").count(), 1, "{}", did.stderr);
    let report = report(&out).whole();
    assert!(["leak", "growing"].contains(&report.verdict().0), "{}", report.run);
}

#[test]
fn a_folder_that_cannot_be_written_is_said_once() {
    let (folder, alone) = (Folder::new("read-only"), alone());
    let mut command = Command::new(python());
    command.args(&job(&[])[1..]).current_dir(folder.path()).env("LD_PRELOAD", preload_so());
    // Not even root can make a folder here.
    command.env("STRANDLINE_OUT", "/proc/strandline").env("STRANDLINE_TAIL", folder.path());
    let did = Did::run(command);
    assert_eq!((did.status, &did.stdout, did.theirs()), (0, &alone.stdout, alone.theirs()));
    assert!(did.ours().contains("cannot write /proc/strandline"), "{}", did.stderr);
    assert_eq!(did.stderr.matches("\nstrandline: ").count(), 0, "one line: {}", did.stderr);
    assert!(folder.tails().is_empty() && folder.files(".strand").is_empty());
}

/// Who did nothing with GPU memory leaves nothing to be judged, and the job beside it is; alone it is no job that was seen to be well.
#[test]
fn a_process_without_memory_does_not_speak_for_the_job() {
    let folder = Folder::new("idle");
    let script = root().join("tests/python/idle.py");
    let words: Vec<OsString> = vec![python().into(), script.into()];
    let did = recorded(&folder, &words, &[]);
    let recordings = folder.join("rec").read_dir().expect("a folder").count();
    assert_eq!(recordings, 2, "both processes asked CUDA something");
    assert!(
        did.ours().contains("strandline: NO LEAK") && did.ours().contains("no GPU memory"),
        "{}",
        did.stderr
    );
    let told = support::strandline(&[
        "report".as_ref(),
        folder.join("rec").as_os_str(),
        "--format".as_ref(),
        "json".as_ref(),
    ]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["verdict"], did.status), (&serde_json::json!("clean"), 0), "{}", did.stderr);
    // No launcher gave a rank: neither is called after one, and each is told from the other, in the page as in the text.
    let processes = told["processes"].as_array().expect("processes");
    let name = |p: &serde_json::Value| {
        let what = if p["verdict"] == "clean" { "idle.py" } else { "python -c" };
        format!("pid {} ({what})", p["pid"])
    };
    let names: Vec<String> = processes.iter().map(name).collect();
    assert!(names.iter().all(|n| did.ours().contains(n)) && !did.ours().contains("rank"), "{}", did.stderr);
    let page = support::strandline(&[
        "report".as_ref(),
        folder.join("rec").as_os_str(),
        "--format".as_ref(),
        "html".as_ref(),
    ]);
    let (_, data) = page.split_once(r#"type="application/json">"#).expect("a page has its data");
    let data: serde_json::Value =
        serde_json::from_str(data.split_once("</script>").expect("an end").0).expect("JSON");
    let told = &data["told"];
    assert_eq!((&told["phrase"], &told["names"]), (&"NO LEAK".into(), &names.clone().into()), "{told}");
    let mut phrases: Vec<&str> =
        told["processes"].as_array().expect("rows").iter().filter_map(|row| row[1].as_str()).collect();
    phrases.sort_unstable();
    assert_eq!(phrases, ["NO LEAK", "no GPU memory"], "{told}");
    let alone = Folder::new("idle-alone");
    let did = recorded(&alone, &[&words[..], &["alone".into()]].concat(), &[]);
    assert_eq!((report(&alone.join("rec")).verdict().0, did.status), ("unknown", 83), "{}", did.stderr);
}
