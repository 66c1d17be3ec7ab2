//! Decides which CUDA libraries to generate, and what each of their functions does.
//!
//! What there must be is read from torch's own libraries: `import torch` binds every function at once, so each one
//! that is imported must exist, under the version that it is imported with. What a function does follows from the
//! simulator's exports: `sim_<name>` (`sim12_<name>` first, for CUDA 12's runtime) if there is such a function, else a stub that says the name and fails.

use super::elf::{self, Dynamic};
use super::error::{self, Error};
use super::folders::make_directory;
use super::link::{self, Function, Library, SIMULATOR, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Changes whenever libraries are generated differently for the same simulator.
pub(super) const GENERATION: u32 = 5;

/// What makes every Python of the environment turn cuDNN off as it imports PyTorch.
const WITHOUT_CUDNN: [(&str, &str); 2] = [
    ("strandline_simulated.py", include_str!("strandline_simulated.py")),
    ("strandline_simulated.pth", "import strandline_simulated\n"),
];

const REINSTALL: &str = "remove the environment's directory to have torch installed again";
const RUNTIME_12: &str = "libcudart.so.12";
const DRIVER: &str = "libcuda.so.1";
const NVML: &str = "libnvidia-ml.so.1";
/// Which library an import belongs to that does not say so, by the beginning of its name (the first match holds), and "not
/// supported", or the nearest thing, in that library's own numbers.
const OWNERS: [(&str, &str, i32); 16] = [
    ("cudnn", "libcudnn", 3000),
    ("cublasLt", "libcublasLt", 15),
    ("cublas", "libcublas", 15),
    ("cufft", "libcufft", 16),
    ("curand", "libcurand", 999),
    ("cusolver", "libcusolver", 9),
    ("cusparseLt", "libcusparseLt", 10),
    ("cusparse", "libcusparse", 10),
    ("cuFile", "libcufile", 5007),
    ("cupti", "libcupti", 27),
    ("nccl", "libnccl", 3),
    ("nvshmem", "libnvshmem_host", 7),
    ("nvrtc", "libnvrtc", 11),
    ("__cuda", "libcudart", 801),
    ("cuda", "libcudart", 801),
    ("cu", "libcuda", 801),
];

/// Functions of NVML that torch insists on finding, beside those that the simulator has.
const NVML_ABSENT: [&str; 4] = [
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetP2PStatus",
];

/// What a function of this library returns that the simulator has not.
fn not_supported(family: &str) -> i32 {
    let known = OWNERS.iter().find(|(_, owner, _)| *owner == family);
    known.map_or(if family == "libnvidia-ml" { 3 } else { 801 }, |(.., code)| *code)
}

/// `libcudart` of `libcudart.so.13`.
fn family(soname: &str) -> &str {
    soname.split(".so").next().unwrap_or(soname)
}

/// Whether a library is NVIDIA's. Others that torch needs must never be shadowed.
fn is_cuda(soname: &str) -> bool {
    ["libcu", "libnv", "libnccl"].iter().any(|start| soname.starts_with(start))
}

/// Where torch looks for its CUDA libraries.
pub(super) fn directory(site_packages: &Path) -> Result<PathBuf, Error> {
    let torch_lib = site_packages.join("torch/lib");
    let library = torch_lib.join("libc10_cuda.so");
    let dynamic = open(&library, REINSTALL)?;
    let candidates: Vec<PathBuf> = dynamic
        .search
        .iter()
        .filter_map(|entry| entry.strip_prefix("$ORIGIN"))
        .filter_map(|below| normal(&torch_lib.join(below.trim_start_matches('/'))))
        .filter(|path| path.starts_with(site_packages) && *path != torch_lib)
        .collect();
    let runtime = |path: &&PathBuf| {
        path.iter().any(|part| part == "cuda_runtime" || part.to_string_lossy().starts_with("cu1"))
    };
    candidates.iter().find(runtime).or(candidates.first()).cloned().ok_or_else(|| {
        let why = "this torch searches no directory for CUDA libraries";
        error::library(&library, why, "a version whose wheel is built for CUDA is needed, as 2.11.0's is")
    })
}

/// A path without `..`, by its text: what lies there need not exist yet.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => plain.pop().then_some(())?,
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    Some(plain)
}

/// Generates every library that torch needs into `lib_dir`, with the simulator beside them.
pub(super) fn generate(
    site_packages: &Path,
    lib_dir: &Path,
    simulator: &Path,
    content: &[u8],
) -> Result<(), Error> {
    let provided = open(simulator, "build it again")?.exports.into_iter().collect();
    let mut torch = read_torch(site_packages)?;
    // What a wheel brings with it under a name of its own is found there (2.4 and 2.5: cuSPARSELt).
    let absent = |soname: &String| !site_packages.join("torch/lib").join(soname).exists();
    torch.iter_mut().for_each(|library| library.needed.retain(absent));
    let libraries = plan(&torch, &provided);
    make_directory(lib_dir)?;
    link::replace(&lib_dir.join(SIMULATOR), content)?;
    for (name, text) in WITHOUT_CUDNN {
        link::replace(&site_packages.join(name), text.as_bytes())?;
    }
    link::build(lib_dir, &libraries)
}

fn open(path: &Path, advice: &str) -> Result<Dynamic, Error> {
    elf::dynamic(path).map_err(|why| error::library(path, why, advice))
}

/// All of torch's own libraries.
fn read_torch(site_packages: &Path) -> Result<Vec<Dynamic>, Error> {
    let torch = site_packages.join("torch");
    let mut libraries = Vec::new();
    for directory in [torch.join("lib"), torch] {
        let entries = fs::read_dir(&directory).map_err(|e| error::io("cannot list", &directory, e))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.into_iter().filter(|path| is_library(path)) {
            libraries.push(open(&path, REINSTALL)?);
        }
    }
    Ok(libraries)
}

fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_file() && (name.ends_with(".so") || name.contains(".so."))
}

/// Which libraries, with which functions.
fn plan(torch: &[Dynamic], provided: &BTreeSet<String>) -> Vec<Library> {
    let defined: BTreeSet<&str> =
        torch.iter().flat_map(|library| &library.exports).map(String::as_str).collect();
    let needed = torch.iter().flat_map(|library| &library.needed).filter(|soname| is_cuda(soname));
    let mut sonames: BTreeSet<&str> = needed.map(String::as_str).collect();
    sonames.extend([DRIVER, NVML]);

    // For each library its functions, each with the version that it is imported with.
    let mut wanted: BTreeMap<&str, BTreeMap<&str, Option<&str>>> =
        sonames.iter().map(|soname| (*soname, BTreeMap::new())).collect();
    for import in torch.iter().flat_map(|library| &library.imports) {
        let (owner, version) = match &import.version {
            Some((library, version)) => (sonames.get(library.as_str()).copied(), Some(version.as_str())),
            None if defined.contains(import.name.as_str()) => (None, None),
            None => (owner(&import.name, &sonames), None),
        };
        if let Some(functions) = owner.and_then(|owner| wanted.get_mut(owner)) {
            functions.entry(&import.name).or_insert(version);
        }
    }
    // What the simulator has beyond that: for programs other than torch, and for what torch looks up at run time.
    for name in provided.iter().filter_map(|name| name.strip_prefix("sim_")).chain(NVML_ABSENT) {
        let owner = if name.starts_with("nvml") { Some(NVML) } else { owner(name, &sonames) };
        if let Some(functions) = owner.and_then(|owner| wanted.get_mut(owner)) {
            functions.entry(name).or_insert(None);
        }
    }
    wanted.into_iter().map(|(soname, functions)| library(soname, &functions, provided)).collect()
}

fn library(soname: &str, functions: &BTreeMap<&str, Option<&str>>, provided: &BTreeSet<String>) -> Library {
    // A library has one version, if any; what nobody imports yet gets that one too.
    let usual = functions.values().flatten().next().copied();
    let functions = functions.iter().map(|(&name, &version)| Function {
        name: name.to_string(),
        version: version.or(usual).map(String::from),
        target: target(name, soname, provided),
    });
    Library {
        soname: soname.to_string(),
        functions: functions.collect(),
        needs_driver: family(soname) == "libcudart",
    }
}

/// What a function does.
fn target(name: &str, soname: &str, provided: &BTreeSet<String>) -> Target {
    let family = family(soname);
    let own = format!("sim_{name}");
    let older = format!("sim12_{name}");
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if soname == RUNTIME_12 && provided.contains(&older) {
        Target::Jump(older)
    } else if provided.contains(&own) {
        Target::Jump(own)
    } else if ends(&["GetErrorString", "GetErrorName", "GetLastError", "GetLastErrorString"]) {
        Target::Jump("sim_text".into())
    } else if family == "libcublas" && !name.starts_with("cublasGet") && !name.starts_with("cublasSet") {
        Target::Jump("sim_operation_cublas".into())
    } else {
        Target::Absent(not_supported(family))
    }
}

/// The library that a name belongs to.
fn owner<'a>(name: &str, sonames: &BTreeSet<&'a str>) -> Option<&'a str> {
    let (start, owner, _) = OWNERS.iter().find(|(start, ..)| name.starts_with(start))?;
    // "cu" alone begins many words; the driver's functions go on with a capital.
    if *start == "cu" && !name.chars().nth(2).is_some_and(|letter| letter.is_ascii_uppercase()) {
        return None;
    }
    sonames.iter().copied().find(|soname| family(soname) == *owner)
}

#[cfg(test)]
mod tests {
    use super::super::elf::Import;
    use super::*;

    fn import(name: &str, version: Option<(&str, &str)>) -> Import {
        let version = version.map(|(library, version)| (library.to_string(), version.to_string()));
        Import { name: name.into(), version }
    }

    #[test]
    fn functions_find_their_library_version_and_target() {
        let runtime = ("libcudart.so.13", "libcudart.so.13");
        let torch = [Dynamic {
            needed: [
                "libcudart.so.13",
                "libnccl.so.2",
                "libnvshmem_host.so.3",
                "libcublas.so.13",
                "libz.so.1",
            ]
            .map(String::from)
            .to_vec(),
            imports: vec![
                import("cudaMalloc", Some(runtime)),
                import("cudaIpcGetMemHandle", Some(runtime)),
                import("ncclSend", None),
                import("nvshmem_ptr", Some(("libnvshmem_host.so.3", "NVSHMEM"))),
                import("cublasSgemm_v2", Some(("libcublas.so.13", "libcublas.so.13"))),
                import("cuLaunchKernel", None),
                import("cuddle", None),
                import("cudaOfTorch", None),
                import("deflate", None),
            ],
            exports: vec!["cudaOfTorch".into()],
            ..Dynamic::default()
        }];
        let provided =
            ["sim_cudaMalloc", "sim_cudaFree", "sim_cuInit", "sim_nvmlInit_v2", "sim_stub"].map(String::from);
        let libraries = plan(&torch, &provided.into());
        let show = |soname: &str| -> Vec<String> {
            let library = libraries.iter().find(|library| library.soname == soname).unwrap();
            let line =
                |f: &Function| format!("{} {} {:?}", f.name, f.version.as_deref().unwrap_or("-"), f.target);
            library.functions.iter().map(line).collect()
        };
        assert_eq!(
            show("libcudart.so.13"),
            [
                "cudaFree libcudart.so.13 Jump(\"sim_cudaFree\")",
                "cudaIpcGetMemHandle libcudart.so.13 Absent(801)",
                "cudaMalloc libcudart.so.13 Jump(\"sim_cudaMalloc\")",
            ]
        );
        assert_eq!(show("libnccl.so.2"), ["ncclSend - Absent(3)"]);
        assert_eq!(show("libnvshmem_host.so.3"), ["nvshmem_ptr NVSHMEM Absent(7)"]);
        assert_eq!(
            show("libcublas.so.13"),
            ["cublasSgemm_v2 libcublas.so.13 Jump(\"sim_operation_cublas\")"]
        );
        assert_eq!(show("libcuda.so.1"), ["cuInit - Jump(\"sim_cuInit\")", "cuLaunchKernel - Absent(801)"]);
        assert_eq!(show("libnvidia-ml.so.1").len(), 5);
        assert!(!libraries.iter().any(|library| library.soname == "libz.so.1"));
    }

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(normal(Path::new("/a/b/../../c/./d")), Some(PathBuf::from("/c/d")));
        assert_eq!(normal(Path::new("/a/../../..")), None);
    }
}
