//! Line tables against the interpreters that wrote them: every instruction of a good part of the standard library.

use std::path::PathBuf;
use std::process::Command;
use strandline::event::{CodeDef, CodeId};
use strandline::format::python;

/// Prints `minor first_line table-in-hex offset:line,…` for every code object of some modules.
const PROGRAM: &str = r#"
import sys, types, dis, importlib
minor = sys.version_info[1]
seen = []
def walk(code):
    seen.append(code)
    for c in code.co_consts:
        if isinstance(c, types.CodeType): walk(c)
for name in ["dis", "ast", "asyncio.base_events", "dataclasses", "typing", "collections", "contextlib", "json.decoder"]:
    m = importlib.import_module(name)
    with open(m.__file__, encoding="utf-8") as f:
        walk(compile(f.read(), m.__file__, "exec"))
walk(compile("def f(a):\n" + "\n" * 300 + "    return [\n" + "\n" * 90 + "  x for x in a\n" + "]\nf(\n\n1)", "far", "exec"))
for c in seen:
    if minor >= 10:
        pairs, table = [], c.co_linetable
        for start, end, line in c.co_lines():
            pairs += [(o, line or 0) for o in range(start, end, 2)]
    else:
        pairs, table, line = [], c.co_lnotab, c.co_firstlineno
        starts = dict(dis.findlinestarts(c))
        for o in range(0, len(c.co_code), 2):
            line = starts.get(o, line)
            pairs.append((o, line))
    print(minor, c.co_firstlineno, table.hex() or "-", ",".join("%d:%d" % p for p in pairs) or "-")
"#;

fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.trim_matches('-');
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// Every interpreter at hand: `python3`, and `python3.N` on the path.
fn interpreters() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names: Vec<String> =
        std::iter::once("python3".into()).chain((9..15).map(|n| format!("python3.{n}"))).collect();
    let mut found: Vec<PathBuf> = std::env::split_paths(&path)
        .flat_map(|dir| names.iter().map(move |n| dir.join(n)).collect::<Vec<_>>())
        .filter(|p| p.is_file())
        .collect();
    // More of them, for whoever keeps several: a list of paths.
    found.extend(std::env::split_paths(&std::env::var_os("PYTHONS").unwrap_or_default()));
    found.retain(|p| p.is_file());
    found
}

#[test]
fn lines_are_those_that_python_tells() {
    let mut minors = std::collections::BTreeSet::new();
    for python in interpreters() {
        let out = Command::new(&python).args(["-I", "-c", PROGRAM]).output().unwrap();
        if !out.status.success() {
            // Shims of version managers stand for interpreters that are not there.
            continue;
        }
        let text = String::from_utf8(out.stdout).unwrap();
        let mut compared = 0;
        for line in text.lines() {
            let [minor, first, table, pairs] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let minor: u8 = minor.parse().unwrap();
            // The same version again, or one that this format does not know.
            if minor < 9 || (compared == 0 && !minors.insert(minor)) {
                break;
            }
            let code = CodeDef {
                id: CodeId(1),
                first_line: first.parse().unwrap(),
                line_table: bytes(table),
                python_minor: minor,
                ..CodeDef::default()
            };
            for pair in pairs.split(',').filter(|p| *p != "-") {
                let (offset, want) = pair.split_once(':').unwrap();
                let got = python::line(&code, offset.parse().unwrap());
                assert_eq!(
                    got.to_string(),
                    want,
                    "3.{minor}, first line {first}, offset {offset}, table {table}"
                );
                compared += 1;
            }
        }
        println!("{}: {compared} instructions", python.display());
        assert!(compared == 0 || compared > 20_000, "{}: {compared}", python.display());
    }
    assert!(!minors.is_empty(), "no Python from 3.9 on was found on the path");
}
