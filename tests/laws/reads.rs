//! Where the preload reads memory by its address. What Python, CUDA, the loader or a caller owns is read in a few places, each of which
//! proves what it reads: a new one is a decision, not a line.

use super::{code, none, sources};
use std::collections::BTreeMap;

/// Files that read through raw addresses: in how many lines, and what makes sure that something is there.
const READS: &[(&str, usize, &str)] = &[
    ("preload/src/platform/config.rs", 1, "a variable of the environment, not null"),
    ("preload/src/control.rs", 1, "the caller's C string, not null"),
    ("preload/src/hooks/entry_points.rs", 2, "CUDA's and the loader's own strings, not null"),
    ("preload/src/hooks/dlsym.rs", 1, "the caller's C string, which the loader has read"),
    ("preload/src/hooks/torch.rs", 1, "the caller's std::string"),
    ("preload/src/late/mod.rs", 1, "the caller's C string, not null"),
    ("preload/src/late/redirect.rs", 3, "tables of a loaded library, under the loader's lock"),
    ("preload/src/pluggable/driver.rs", 1, "the driver's own string, not null"),
    ("preload/src/pluggable/mod.rs", 1, "an allocator object that its RTTI has named"),
    (
        "preload/src/platform/environment.rs",
        2,
        "`environ` while the process has one thread, and our own copy",
    ),
    ("preload/src/platform/object.rs", 4, "parts of a loaded library, under the loader's lock"),
    ("preload/src/platform/memory.rs", 1, "objects that the collector tracks, under the GIL"),
    ("preload/src/probe/objects.rs", 2, "objects that the collector tracks, under the GIL"),
    ("preload/src/stacks/described.rs", 1, "_PyRuntime, whose size its own head tells"),
    ("preload/src/stacks/memory.rs", 1, "stacks::memory::At: not null"),
    ("preload/src/python/collector.rs", 1, "the counts of a collector that `find` has recognised"),
    ("preload/src/python/version.rs", 1, "Py_GetVersion's static string"),
    ("preload/src/stacks/native/cfi.rs", 1, "stacks::native::modules::LoadedTables"),
    ("preload/src/stacks/native/mod.rs", 1, "this thread's own stack"),
    ("preload/src/stacks/native/modules.rs", 3, "headers of a loaded library, under the loader's lock"),
    ("preload/src/stacks/node.rs", 3, "the vtable of a live node"),
    ("preload/src/stacks/object.rs", 5, "stacks::object::Code: not null, and of the type of code objects"),
    ("preload/src/stacks/outgoing.rs", 2, "memory of our own"),
    ("preload/src/stacks/proof.rs", 3, "strings and bytes of objects that we hold references to"),
    ("preload/src/steps/nvtx.rs", 1, "the caller's C string, not null"),
    ("preload/src/torch/attach.rs", 3, "an exported object that its RTTI has named"),
    ("preload/src/platform/elf.rs", 2, "the loader's own strings, and a file that is mapped whole"),
    ("preload/src/torch/grad.rs", 1, "a thread-local of c10's, found by its own setter"),
];

/// Whether a line reads at an address that is a number.
fn reads(line: &str) -> bool {
    const CALLS: [&str; 5] =
        ["read_unaligned(", "from_raw_parts", "CStr::from_ptr(", "read_volatile(", "ptr::read("];
    let cast = |to: &str| line.contains("*(") && line.contains(to);
    CALLS.iter().any(|c| line.contains(c)) || cast(" as *const") || cast(" as *mut")
}

#[test]
fn what_others_own_is_read_in_few_places() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources(&["preload/src"]) {
        let n = code(&source.product).filter(|(_, line)| reads(line)).count();
        if n > 0 {
            found.insert(source.path, n);
        }
    }
    let known: BTreeMap<String, usize> = READS.iter().map(|(f, n, _)| (f.to_string(), *n)).collect();
    let differs = |f: &String| found.get(f) != known.get(f);
    let broken = found.keys().chain(known.keys()).filter(|f| differs(f)).map(|f| {
        let count = |all: &BTreeMap<String, usize>| all.get(f).copied().unwrap_or(0);
        format!("{f}: {} lines read through raw addresses, {} are known", count(&found), count(&known))
    });
    let mut broken: Vec<String> = broken.collect();
    broken.dedup();
    none("memory is read by its address where that was not looked at (tests/laws/reads.rs)", broken);
    assert!(reads("let x = *(a as *const u64);") && reads("(p as *const u8).read_unaligned()"));
    assert!(!reads("let y = a * (b + c);"));
}
