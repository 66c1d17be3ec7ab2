//! The wheel, as a person installs it: the command with its libraries inside, the Python package, the pytest plugin; nothing else
//! is needed. Built by maturin as `cargo test` builds the command, so that it is quick; `tests/package.sh` does the same in release.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Folder, OF_THIS_PACKAGE, cache, packages, python, root, without};

/// Runs it to its end, in the folder; its standard output.
#[track_caller]
fn done(run: &mut Command) -> String {
    without(run, &["STRANDLINE_"]);
    without(run, OF_THIS_PACKAGE);
    run.env("XDG_CACHE_HOME", cache()).env("STRANDLINE_CACHE", cache()).env_remove("LD_PRELOAD");
    let output = run.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{run:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn maturin() -> Option<Command> {
    let mut maturin =
        Command::new(packages::of_the_index("maturin-1", &["maturin==1.16.0"])?.join("bin/maturin"));
    maturin.current_dir(root());
    Some(maturin)
}

#[track_caller]
fn only(folder: &Path, ending: &str) -> PathBuf {
    let files = std::fs::read_dir(folder).expect("a folder").flatten().map(|e| e.path());
    let found: Vec<_> = files.filter(|p| p.to_string_lossy().ends_with(ending)).collect();
    let [one] = &found[..] else { panic!("one {ending} in {found:?}") };
    one.clone()
}

const JOB: &str = "
import torch
import strandline

kept = []
try:
    with strandline.watch_region(limit='1 MiB'):
        kept.append(torch.zeros(4 << 20, dtype=torch.uint8, device='cuda'))
    raise SystemExit('4 MiB were kept, and nobody said so')
except strandline.Leaked as e:
    print(e)
print(strandline.command())
print(strandline.report().verdict)
";

#[test]
fn a_wheel_gives_the_command_the_package_and_the_plugin() {
    let Some(mut maturin) = maturin() else { return };
    let folder = Folder::new("wheel");
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    done(maturin.args(["build", "-q", "--profile", profile, "-o"]).arg(folder.path()));
    let wheel = only(folder.path(), ".whl");
    let name = wheel.file_name().expect("a name").to_string_lossy().into_owned();
    let begins = format!("strandline-{}-py3-none-manylinux_2_", env!("CARGO_PKG_VERSION"));
    assert!(name.starts_with(&begins) && name.ends_with("_x86_64.whl"), "{name}");

    let place = folder.join("clean");
    done(Command::new("python3").args(["-m", "venv"]).arg(&place));
    let clean = |program: &str| {
        let mut run = Command::new(place.join("bin").join(program));
        run.current_dir(folder.path()).env("PATH", "/usr/bin:/bin").env_remove("PYTHONPATH");
        run
    };
    // Without an index: it depends on nothing.
    done(clean("pip").args(["install", "-q", "--disable-pip-version-check", "--no-index"]).arg(&wheel));
    assert!(done(clean("strandline").arg("--version")).contains(env!("CARGO_PKG_VERSION")));
    let ask = "
import importlib.metadata as m, os, strandline, sys
d = m.distribution('strandline')
assert not d.requires, d.requires
assert [e.value for e in d.entry_points if e.group == 'pytest11'] == ['strandline.pytest_plugin']
assert os.path.exists(os.path.join(os.path.dirname(strandline.__file__), 'py.typed'))
assert strandline.command() == os.path.join(sys.prefix, 'bin', 'strandline'), strandline.command()
assert strandline.step(1) is False, 'nothing is recorded here'
print(d.version, strandline.version())";
    let said = done(clean("python").args(["-c", ask]));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(said.trim(), format!("{version} {version}"), "one version, of Cargo.toml");

    // A job of another Python, which has PyTorch, with the command and the package of the wheel.
    std::fs::write(folder.join("job.py"), JOB).expect("a file");
    let library =
        done(clean("python").args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]));
    let mut run = clean("strandline");
    run.args(["run", "-q", "-o", "out", "--"]).arg(python()).arg("job.py").env("PYTHONPATH", library.trim());
    let said = done(&mut run);
    assert!(said.contains("4.0 MiB left behind on the GPU, 1.0 MiB allowed"), "{said}");
    let words = [&place.join("bin/strandline").display().to_string(), "unknown"];
    assert!(words.iter().all(|w| said.lines().any(|l| l == *w)), "{said}");
}

#[test]
fn a_source_distribution_has_all_that_is_built() {
    // It is made of what git tracks.
    if !root().join(".git").exists() {
        return println!("skipped: no checkout");
    }
    let Some(mut maturin) = maturin() else { return };
    let folder = Folder::new("sdist");
    done(maturin.args(["sdist", "-o"]).arg(folder.path()));
    let packed = only(folder.path(), ".tar.gz");
    done(Command::new("tar").arg("xzf").arg(&packed).arg("-C").arg(folder.path()));
    let source = folder.join(&format!("strandline-{}", env!("CARGO_PKG_VERSION")));
    for part in ["PKG-INFO", "Cargo.lock", "LICENSE", "tools/build.rs", "tools/python/strandline/py.typed"] {
        assert!(source.join(part).exists(), "{part}");
    }
    assert!(!source.join("tests").exists());
    // Cargo finds all packages that `tools/build.rs` builds.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let said = done(Command::new(cargo).args(metadata).current_dir(&source));
    for package in ["strandline", "strandline-preload", "strandline-tools", "strandline-simcuda"] {
        assert!(said.contains(&format!("\"name\":\"{package}\"")), "{package}");
    }
}

/// The container and the recipe, which no test builds, at least name the versions that Cargo.toml does.
#[test]
fn the_image_and_the_recipe_have_the_versions_of_the_package() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let recipe = read("tools/conda/recipe.yaml");
    assert!(recipe.contains(&format!("version: \"{}\"", env!("CARGO_PKG_VERSION"))), "{recipe}");
    let image = read("tools/docker/Dockerfile");
    assert!(image.contains(&format!("FROM rust:{}-", env!("CARGO_PKG_RUST_VERSION"))), "{image}");
}
