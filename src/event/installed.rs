//! Whose a file of Python is: the user's own, or that of a package, of PyTorch or of Python itself.

use serde_json::Value;

/// The fact that tells folders of packages.
const FACT: &str = "package_folders";

/// Where packages are installed, and Python's own modules lie, by what is in their paths.
const INSTALLED: [&str; 6] =
    ["/site-packages/", "/dist-packages/", OF_PYTHON[0], OF_PYTHON[1], ".whl/", ".zip/"];
const OF_PYTHON: [&str; 2] = ["/lib/python3", "/lib64/python3"];

/// What PyTorch's folder has beside modules that begin with an underscore: a user's own folder may be called `torch`, too.
const OF_TORCH: &str = "accelerator amp ao autograd backends bin compiler contrib cpu cuda distributed distributions \
    export fft func functional.py futures fx hub.py include jit lib library.py linalg masked monitor \
    mps mtia multiprocessing nativert nested nn numa onnx optim overrides.py package profiler \
    quantization quasirandom.py random.py return_types.py serialization.py signal sparse special \
    storage.py testing torch_version.py types.py utils xpu";

/// Files of PyTorch itself, what its compiler wrote, pseudo-files, and what strandline evaluates in the process.
pub fn is_torch(file: &str) -> bool {
    is_in_torch(file) || file.starts_with('<') && typed(file).is_none() || is_generated(file)
}

fn is_in_torch(file: &str) -> bool {
    let is = |(before, after): (&str, &str)| {
        let first = after.split('/').next().unwrap_or_default();
        before.ends_with("-packages") || first.starts_with('_') || OF_TORCH.split(' ').any(|of| of == first)
    };
    let parts = file.match_indices("torch/").map(|(at, part)| (&file[..at], &file[at + part.len()..]));
    parts.filter_map(|(before, after)| Some((before.strip_suffix('/')?, after))).any(is)
}

/// Whether a file is of Python's own library.
pub fn is_of_python(file: &str) -> bool {
    OF_PYTHON.iter().any(|part| file.contains(part)) && !file.contains("-packages/")
}

/// Whether a file stands for what somebody typed, at a prompt or into a notebook; and by what those are the same that differ in how often
/// something was run before: `<ipython-input-7-0a1b2c3d4e5f>` has the number of the run and a hash of the text.
pub fn typed(file: &str) -> Option<&str> {
    let name = file.strip_prefix("/tmp/").or_else(|| file.strip_prefix('<'))?;
    match name.strip_prefix("ipython-input-") {
        Some(cell) => Some(cell.split_once('-').map_or(file, |(_, hash)| hash)),
        None => {
            ["<stdin>", "<python-input-", "<doctest "].iter().any(|n| file.starts_with(n)).then_some(file)
        }
    }
}

/// Code that inductor wrote for a compiled function, wherever its cache is: `xy/cxy….py`, where `xy…` is a hash in base 32.
pub fn is_generated(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    let name = parts.next().and_then(|n| n.strip_suffix(".py")).unwrap_or_default();
    name.len() == 52
        && name.starts_with('c')
        && name.get(1..3) == parts.next()
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))
}

/// Folders into which a job's packages are installed beside the usual ones: those of `PYTHONPATH` that `pip install --target` has filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageFolders(Vec<String>);

impl PackageFolders {
    /// These, each without a `/` at its end.
    pub fn new(folders: Vec<String>) -> PackageFolders {
        PackageFolders(folders)
    }

    /// Those that a recording's facts tell.
    pub fn of_facts(facts: &Value) -> PackageFolders {
        let told = facts[FACT].as_array().into_iter().flatten();
        PackageFolders(told.filter_map(|f| f.as_str().map(str::to_owned)).collect())
    }

    /// The facts that tell them; none where there are none.
    pub fn to_facts(&self) -> Option<Value> {
        (!self.0.is_empty()).then(|| serde_json::json!({ FACT: self.0 }))
    }

    /// Whether a file is of an installed package, or of Python's library. A file that lies in such a folder itself, and not below a package's
    /// own folder, is not: it may be a script.
    pub fn has(&self, file: &str) -> bool {
        INSTALLED.iter().any(|part| file.contains(part))
            || self.0.iter().any(|folder| lies_deep(file, folder))
    }
}

/// `/x/a/b.py` in `/x`.
fn lies_deep(file: &str, folder: &str) -> bool {
    file.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_the_user_may_be_called_torch() {
        for file in [
            "/v/site-packages/torch/nn/functional.py",
            "/v/site-packages/torch/new.py",
            "/home/me/pytorch/torch/_tensor.py",
            "/home/me/torch/torch/optim/sgd.py",
            "<frozen runpy>",
            "<string>",
        ] {
            assert!(is_torch(file), "{file}");
        }
        for file in ["/home/me/torch/train.py", "/home/me/torch/models/vit.py", "<stdin>", "<python-input-3>"]
        {
            assert!(!is_torch(file), "{file}");
        }
    }

    #[test]
    fn pythons_library_is_told_from_packages() {
        assert!(is_of_python("/usr/lib/python3.11/copy.py"));
        assert!(!is_of_python("/usr/lib/python3/dist-packages/numpy/core.py"));
        assert!(!is_of_python("/home/me/train.py"));
    }

    #[test]
    fn a_cell_that_is_run_again_is_the_same() {
        let (first, again) = ("<ipython-input-3-0a1b2c3d4e5f>", "<ipython-input-7-0a1b2c3d4e5f>");
        assert_eq!(typed(first), typed(again));
        assert_ne!(typed(first), typed("<ipython-input-4-ffffffffffff>"));
        assert_eq!(typed("/tmp/ipython-input-3-17.py"), typed("/tmp/ipython-input-4-17.py"));
        assert_eq!(typed("/tmp/ipython-input-17.py"), Some("/tmp/ipython-input-17.py"));
        assert!(typed("/home/me/train.py").is_none() && typed("<string>").is_none());
    }

    #[test]
    fn a_package_is_known_by_its_path_or_by_the_folder_that_the_job_told() {
        let told = PackageFolders::new(vec!["/scratch/libs".to_owned()]);
        assert_eq!(PackageFolders::of_facts(&told.to_facts().expect("facts")), told);
        assert_eq!(PackageFolders::default().to_facts(), None);
        for file in [
            "/v/site-packages/a.py",
            "/usr/lib/python3.12/x.py",
            "/t/trl.whl/trl/x.py",
            "/scratch/libs/trl/x.py",
        ] {
            assert!(told.has(file), "{file}");
        }
        for file in [
            "/home/me/train.py",
            "/scratch/libs/train.py",
            "/scratch/libs2/trl/x.py",
            "scratch/libs/trl/x.py",
            "",
        ] {
            assert!(!told.has(file), "{file}");
        }
        assert!(!PackageFolders::default().has("/scratch/libs/trl/x.py"));
    }
}
