//! Whose a file of Python is: the user's own, or that of a package, of PyTorch or of Python itself.

use serde_json::Value;

/// The fact that tells folders of packages.
const FACT: &str = "package_folders";

/// Where packages are installed, and Python's own modules lie, by what is in their paths.
const INSTALLED: [&str; 6] =
    ["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", ".whl/", ".zip/"];

/// Files of PyTorch itself, what its compiler wrote, pseudo-files, and what strandline evaluates in the process.
pub fn is_torch(file: &str) -> bool {
    file.contains("/torch/") || file.starts_with('<') || is_generated(file)
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
