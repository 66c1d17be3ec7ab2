//! What can be seen without starting anything of the job's.

use super::check::{Check, Patient};
use crate::nvml::Nvml;
use crate::probe::{self, Linkage, Torch};
use crate::{context, environment, job, say};
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use strandline::format::env;
use strandline::report::size;

/// All of them, in the order in which they matter.
pub(super) fn all(patient: &Patient) -> Vec<Check> {
    let is_ours = |(name, _): (OsString, OsString)| name.to_string_lossy().starts_with(env::SIMULATOR_PREFIX);
    let simulated =
        std::env::vars_os().any(is_ours) || patient.python.as_deref().is_some_and(environment::is_simulated);
    let mut all = vec![platform(), variables(std::env::vars_os())];
    all.push(program(patient));
    if let Some(python) = &patient.python {
        let found = probe::torch(python);
        all.push(torch(python, &found));
        if matches!(found, Torch::Cuda(_) | Torch::Unknown) {
            all.push(allocator(|name| std::env::var(name).ok()));
        }
    }
    all.push(preloads(&std::env::var_os("LD_PRELOAD").unwrap_or_default()));
    all.push(device(simulated));
    if !simulated && let Some(nvml) = Nvml::load() {
        all.push(Check::good("context", context::known(&nvml)));
    }
    if let Some(tail) = std::env::var_os(env::TAIL).filter(|t| !t.is_empty()).map(PathBuf::from) {
        let fix = format!("set {} to a folder on tmpfs with room", env::TAIL);
        all.push(room("buffers", &tail, TAIL_ROOM, &fix));
    }
    all.push(room("output", Path::new("."), OUTPUT_ROOM, "record somewhere else: strandline run -o DIR …"));
    all
}

/// The rings of a process, where they are to lie in a file.
const TAIL_ROOM: u64 = 64 << 20;
/// A recording's bound on disk.
const OUTPUT_ROOM: u64 = 256 << 20;

fn platform() -> Check {
    // SAFETY: gnu_get_libc_version returns a static C string.
    let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned();
    let found = format!("{} {}, glibc {glibc}", std::env::consts::OS, std::env::consts::ARCH);
    let minor = glibc.split('.').nth(1).and_then(|m| m.parse::<u32>().ok()).unwrap_or(0);
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) && minor >= 28 {
        return Check::good("platform", found);
    }
    Check::bad("platform", found, "strandline needs Linux on x86-64 with glibc 2.28 or newer")
}

/// Our own variables: a misspelt one does nothing, silently, unless somebody names it.
fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> Check {
    const PREFIX: &str = "STRANDLINE_";
    let ours = all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let mut set = Vec::new();
    for (name, value) in ours.filter(|(name, _)| name.starts_with(PREFIX)) {
        if name == env::DISABLE && value == "1" {
            return Check::bad("variables", format!("{name}=1 is set"), format!("unset {name}"));
        }
        if !env::ALL.contains(&name.as_str()) && !name.starts_with(env::SIMULATOR_PREFIX) {
            let known = env::ALL.iter().map(|n| n.trim_start_matches(PREFIX)).collect::<Vec<_>>().join(" ");
            let found = format!("{name} is not a variable of strandline");
            return Check::note(
                "variables",
                found,
                format!("the variables begin with {PREFIX} and end with one of: {known}"),
            );
        }
        set.push(name);
    }
    Check::good(
        "variables",
        match set.as_slice() {
            [] => "no STRANDLINE_ variable is set".to_string(),
            [one] => format!("{one} is set"),
            several => format!("{} are set", several.join(", ")),
        },
    )
}

/// Programs that only a cluster's machines have.
const OF_CLUSTERS: [&str; 4] = ["srun", "sbatch", "qsub", "bsub"];

fn program(patient: &Patient) -> Check {
    let name = patient.job.program.to_string_lossy();
    let Some(path) = patient.job.find() else {
        let next = match OF_CLUSTERS.contains(&name.as_ref()) {
            true => "run doctor on the machine where the job is started, such as a login node".to_owned(),
            false => probe::other_python("doctor"),
        };
        return Check::bad("command", format!("{name} was not found on this machine"), next);
    };
    if let Some(told) = job::elsewhere(&patient.job, |name| std::env::var(name).ok()) {
        return Check::bad("command", told.why, told.instead);
    }
    let found = say::path(&path);
    match probe::linkage_of_interpreter(&path) {
        Some(Linkage::Foreign) => {
            let found = format!("{found} is not linked with glibc, which strandline needs");
            Check::bad("command", found, "use a program that is built for glibc")
        }
        Some(Linkage::Static) => {
            let found = format!("{found} is statically linked: LD_PRELOAD does not reach it");
            Check::bad(
                "command",
                found,
                "programs that it starts are recorded if they are linked dynamically",
            )
        }
        Some(Linkage::Privileged) => Check::bad(
            "command",
            format!("{found} is set-user-id"),
            "the loader ignores LD_PRELOAD for such a program",
        ),
        _ => match job::script_is_there(&patient.job.arguments) {
            Err(absent) if patient.job.is_python() => {
                Check::bad("command", absent.to_string(), "give the script's path from this folder")
            }
            _ => Check::good("command", found),
        },
    }
}

/// The torch versions that are attached to; others are tried.
const OLDEST: (u32, u32) = (2, 4);
const NEWEST: (u32, u32) = (2, 15);

fn torch(python: &Path, torch: &Torch) -> Check {
    let python = say::path(python);
    match torch {
        Torch::Absent => Check::bad("torch", format!("{python} has no torch"), probe::other_python("doctor")),
        Torch::CpuOnly(version) => {
            let fix = "install the CUDA build: pip install torch (Linux x86-64)";
            Check::bad("torch", format!("torch {version} is built without CUDA"), fix)
        }
        Torch::Rocm(version) => {
            Check::bad("torch", format!("torch {version} is built for ROCm"), "only CUDA is supported")
        }
        Torch::Unknown => Check::note(
            "torch",
            format!("cannot find out which torch {python} has"),
            "the job may still be recorded",
        ),
        Torch::Cuda(version) => {
            let mut numbers = version.split('.').map(|n| n.parse().unwrap_or(0));
            let minor = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            let (than, fix) = match minor {
                m if m < OLDEST => (
                    "older",
                    "use PyTorch 2.4 or newer; with older versions, only the memory that PyTorch takes from the driver is recorded, not the allocations of each line",
                ),
                m if m > NEWEST => ("newer", "it can be recorded if strandline recognizes its allocator"),
                _ => return Check::good("torch", version.clone()),
            };
            let found = format!("torch {version} is {than} than the versions that were tested");
            Check::note("torch", found, fix)
        }
    }
}

/// torch's own switches that take the caching allocator away.
fn allocator(variable: impl Fn(&str) -> Option<String>) -> Check {
    for name in ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"] {
        let value = variable(name).unwrap_or_default();
        if value.replace(' ', "").contains("backend:cudaMallocAsync") {
            let found = format!(
                "cudaMallocAsync ({name}={value}): its blocks are recorded, but not the memory that its pool keeps"
            );
            return Check::good("allocator", found);
        }
        if !value.is_empty() {
            return Check::good("allocator", format!("PyTorch's own ({name}={value})"));
        }
    }
    if variable("PYTORCH_NO_CUDA_MEMORY_CACHING").is_some_and(|v| v != "0") {
        let found =
            "PYTORCH_NO_CUDA_MEMORY_CACHING turns torch's cache off: each block is one call of cudaMalloc";
        let fix = "blocks and leaks are recorded, but without the order of streams, and PyTorch has no totals to compare with";
        return Check::note("allocator", found, fix);
    }
    Check::good("allocator", "PyTorch's own (native)")
}

/// Libraries that are known to put themselves between a job and CUDA.
const RIVALS: [&str; 5] =
    ["libvgpu", "torch_memory_saver", "libcuda_hook", "libgpushare", "libToolsInjection"];

fn preloads(list: &OsString) -> Check {
    let text = list.to_string_lossy();
    let entries: Vec<&str> = text.split([':', ' ']).filter(|e| !e.is_empty()).collect();
    if let Some(gone) = entries.iter().find(|e| e.starts_with('/') && !Path::new(e).exists()) {
        return Check::note(
            "preload",
            format!("LD_PRELOAD names {gone}, which does not exist"),
            "remove it from LD_PRELOAD",
        );
    }
    if let Some(rival) = entries.iter().find(|e| RIVALS.iter().any(|r| e.contains(r))) {
        let fix = "both work together if each passes CUDA calls on to the other; if the job fails, remove one of them";
        return Check::note("preload", format!("{rival} in LD_PRELOAD intercepts CUDA as well"), fix);
    }
    match entries.len() {
        0 => Check::good("preload", "LD_PRELOAD is not used by anything else"),
        _ => Check::good(
            "preload",
            format!("LD_PRELOAD has {}; strandline's library is added after it", entries.join(" ")),
        ),
    }
}

fn device(simulated: bool) -> Check {
    if simulated {
        return Check::good("GPU", "simulated");
    }
    if !probe::has_device() {
        let fix = "strandline run --simulate 24GiB … (PyTorch's own allocator on a simulated GPU)";
        return Check::bad("GPU", "this machine has no NVIDIA GPU", fix);
    }
    if let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES")
        && (list.is_empty() || list.starts_with("-1"))
    {
        return Check::bad("GPU", "CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES");
    }
    let Some(nvml) = Nvml::load() else {
        let fix = "memory outside PyTorch will be shown as one number, without its parts; in a container, add the driver capability \"utility\"";
        return Check::note(
            "GPU",
            "NVML (libnvidia-ml.so.1), which reports the GPU's memory totals, was not found",
            fix,
        );
    };
    let usage = |i| nvml.by_index(i).and_then(|d| nvml.usage(d));
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let told: Vec<String> = (0..nvml.count())
        .filter_map(|i| usage(i).map(|u| format!("{i}: {:.1} of {:.1} GiB free", gib(u.free), gib(u.total))))
        .collect();
    Check::good("GPU", told.join(" · "))
}

/// Whether a folder can be written and has room.
fn room(about: &'static str, folder: &Path, least: u64, fix: &str) -> Check {
    let shown = say::path(&std::path::absolute(folder).unwrap_or_else(|_| folder.into()));
    let Some(free) = free(folder) else {
        return Check::note(about, format!("{shown} cannot be written"), fix);
    };
    let room = size(free);
    if free < least {
        return Check::note(about, format!("{shown} has only {room} free"), fix);
    }
    Check::good(about, format!("{shown} has {room} free"))
}

/// Bytes free in a folder that can be written.
fn free(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path is a C string; statvfs writes the struct it is given, and all-zero is a valid one.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        let writable = libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0;
        (writable && libc::statvfs(path.as_ptr(), &mut stat) == 0).then(|| stat.f_bavail * stat.f_frsize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Grade;
    use super::*;

    #[test]
    fn a_misspelt_variable_is_named_and_a_disabled_shim_too() {
        let check = |name: &str, value: &str| variables([(name.into(), value.into())].into_iter());
        let misspelt = check("STRANDLINE_STAKS", "python");
        assert!(misspelt.grade == Grade::Note && misspelt.found.contains("STRANDLINE_STAKS"), "{misspelt:?}");
        assert_eq!(check(env::DISABLE, "1").grade, Grade::Bad);
        assert_eq!(check(env::DISABLE, "0").grade, Grade::Good);
        assert_eq!(check("STRANDLINE_SIM_TOTAL", "1").grade, Grade::Good);
        assert_eq!(check("PATH", "/bin").found, "no STRANDLINE_ variable is set");
    }

    #[test]
    fn an_allocator_without_blocks_is_said() {
        let with = |set: &'static str, value: &'static str| {
            allocator(move |name| (name == set).then(|| value.to_string())).grade
        };
        assert_eq!(with("PYTORCH_CUDA_ALLOC_CONF", "backend: cudaMallocAsync"), Grade::Good);
        assert_eq!(with("PYTORCH_ALLOC_CONF", "expandable_segments:True"), Grade::Good);
        assert_eq!(with("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"), Grade::Note);
        assert_eq!(with("", ""), Grade::Good);
    }

    #[test]
    fn versions_outside_of_what_is_known_are_said() {
        let grade = |v: &str| torch(Path::new("python"), &Torch::Cuda(v.into())).grade;
        assert_eq!(grade("2.11.0+cu130"), Grade::Good);
        assert_eq!(grade("2.1.0"), Grade::Note);
        assert_eq!(grade("3.0.0a0"), Grade::Note);
        assert_eq!(torch(Path::new("python"), &Torch::Absent).grade, Grade::Bad);
    }

    #[test]
    fn rivals_and_ghosts_in_the_preload_are_said() {
        assert_eq!(preloads(&"/nowhere/at/all.so".into()).grade, Grade::Note);
        assert_eq!(preloads(&"libvgpu.so".into()).grade, Grade::Note);
        assert_eq!(preloads(&"libjemalloc.so.2".into()).grade, Grade::Good);
    }

    #[test]
    fn room_is_measured_where_it_can_be_written() {
        let folder = std::env::temp_dir();
        assert_eq!(room("output", &folder, 1, "").grade, Grade::Good);
        assert_eq!(room("output", &folder, u64::MAX, "").grade, Grade::Note);
        assert_eq!(room("output", Path::new("/proc/nowhere"), 1, "").grade, Grade::Note);
    }
}
