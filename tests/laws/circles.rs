//! Which file uses which, as the imports and the paths in the code say, and that no file uses one that uses it. A name that a module only
//! hands on (`pub use`) is used where it is defined, and a module that declares its files does not use them.

use super::{Source, code, none, sources};
use std::collections::{BTreeMap, BTreeSet};

/// The folders of the crates' sources.
const CRATES: [&str; 4] = ["src", "preload/src", "tools/src", "tools/simcuda/src"];

/// A file as a module.
#[derive(Default)]
struct Module {
    path: String,
    /// Names that it defines.
    defines: BTreeSet<String>,
    /// Names that it binds: its imports, and for which path each stands.
    binds: BTreeMap<String, Vec<String>>,
    /// Modules all of whose names it binds.
    globs: Vec<Vec<String>>,
    /// Paths that its code names.
    names: BTreeSet<Vec<String>>,
}

/// All modules of a crate, by their path.
type Modules = BTreeMap<Vec<String>, Module>;

fn words(code: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let end = if is_name(c) {
            rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        if !c.is_whitespace() {
            words.push(&rest[..end]);
        }
        rest = &rest[end..];
    }
    words
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Flattens the tree of a `use`: each path, and the name that it binds.
fn flatten(words: &[&str], at: &mut usize, before: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let mut path = before.to_vec();
    loop {
        match words.get(*at).copied() {
            Some("{") => {
                *at += 1;
                while words.get(*at).is_some_and(|w| *w != "}") {
                    flatten(words, at, &path, found);
                    *at += usize::from(words.get(*at) == Some(&","));
                }
                *at += 1;
                return;
            }
            Some("self") if path.len() > before.len() || !before.is_empty() => *at += 1,
            Some("*") => {
                path.push("*".into());
                *at += 1;
            }
            Some("::") => *at += 1,
            Some("as") => {
                found.push((path, words.get(*at + 1).unwrap_or(&"_").to_string()));
                *at += 2;
                return;
            }
            Some(word) if is_name(word) => {
                path.push(word.to_string());
                *at += 1;
            }
            _ => {
                let name = path.last().cloned().unwrap_or_default();
                found.push((path, name));
                return;
            }
        }
    }
}

fn parse(source: &Source, own: &[String]) -> Module {
    let mut module = Module { path: source.path.clone(), ..Module::default() };
    let text: String =
        code(&source.product).map(|(_, line)| format!("{}\n", without_strings(line))).collect();
    let words = words(&text);
    let has_modules = words.windows(3).any(|w| w[0] == "mod" && w[2] == "{");
    let mut at = 0;
    while at < words.len() {
        match words[at] {
            "use" => {
                at += 1;
                let mut found = Vec::new();
                flatten(&words, &mut at, &[], &mut found);
                for (path, name) in found {
                    let path = from(own, path);
                    match path.last().map(String::as_str) {
                        // In a module within the file that is the file itself.
                        Some("*") if has_modules && path[..path.len() - 1] == own[..own.len() - 1] => {}
                        Some("*") => module.globs.push(path[..path.len() - 1].to_vec()),
                        _ => drop(module.binds.insert(name, path)),
                    }
                }
            }
            // `pub(in path)`: who may see it, not who is used.
            "in" if at > 0 && words[at - 1] == "(" => {
                at += 1;
                while words.get(at).is_some_and(|w| *w != ")") {
                    at += 1;
                }
            }
            "fn" | "struct" | "enum" | "const" | "static" | "type" | "trait" | "union" | "macro_rules" => {
                let name = words[at + 1..]
                    .iter()
                    .find(|w| is_name(w) && !["mut", "unsafe", "extern", "fn"].contains(w));
                module.defines.extend(name.map(|n| n.to_string()));
                at += 1;
            }
            word if is_name(word) && (at == 0 || words[at - 1] != "::") => {
                let mut path = vec![word.to_string()];
                at += 1;
                while at + 1 < words.len() && words[at] == "::" && is_name(words[at + 1]) {
                    path.push(words[at + 1].to_string());
                    at += 2;
                }
                module.names.insert(path);
            }
            _ => at += 1,
        }
    }
    module
}

/// A line without what stands in quotes.
fn without_strings(line: &str) -> String {
    line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// A path as it is from the crate's root.
fn from(own: &[String], path: Vec<String>) -> Vec<String> {
    let up = path.iter().take_while(|w| *w == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => path,
        Some("self") => [own, &path[1..]].concat(),
        Some("super") => [&own[..own.len().saturating_sub(up).max(1)], &path[up..]].concat(),
        _ => path,
    }
}

/// The module in which what a path means is defined.
fn definer(modules: &Modules, path: &[String], depth: usize) -> Option<Vec<String>> {
    if path.first().map(String::as_str) != Some("crate") || depth > 8 {
        return None;
    }
    let deepest = (1..=path.len()).rev().find(|n| modules.contains_key(&path[..*n]))?;
    let (module, rest) = (&path[..deepest], &path[deepest..]);
    let Some(name) = rest.first() else { return Some(module.to_vec()) };
    let here = &modules[module];
    if here.defines.contains(name) {
        return Some(module.to_vec());
    }
    if let Some(bound) = here.binds.get(name) {
        let bound = resolve(here, module, bound);
        return definer(modules, &[&bound[..], &rest[1..]].concat(), depth + 1);
    }
    let globs = here.globs.iter().map(|g| resolve(here, module, g));
    let mut through = globs.filter_map(|g| {
        let found = definer(modules, &[&g[..], rest].concat(), depth + 1)?;
        modules[&found].defines.contains(name).then_some(found)
    });
    through.next().or_else(|| Some(module.to_vec()))
}

/// What a path in the code of a module stands for: its first name may be one that the module binds, or a child's.
fn resolve(module: &Module, own: &[String], path: &[String]) -> Vec<String> {
    let path = from(own, path.to_vec());
    match path.first().map(String::as_str) {
        Some("crate") | None => path,
        Some(first) => match module.binds.get(first) {
            Some(bound) if bound.first() != path.first() => [&bound[..], &path[1..]].concat(),
            _ => [own, &path[..]].concat(),
        },
    }
}

/// What each file uses.
pub(super) fn uses(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut modules = Modules::new();
    for source in sources(&[folder]) {
        if source.product.is_empty() {
            continue;
        }
        let inner = source.path[folder.len() + 1..].trim_end_matches(".rs");
        let mut path = vec!["crate".to_string()];
        path.extend(inner.split('/').filter(|p| !["mod", "lib", "main"].contains(p)).map(str::to_string));
        let module = parse(&source, &path);
        modules.insert(path, module);
    }
    let mut found = BTreeMap::new();
    for (own, module) in &modules {
        let imported = module.binds.iter().filter(|(_, path)| !modules.contains_key(*path));
        let named = module.names.iter().filter(|n| n.len() > 1).map(|n| resolve(module, own, n));
        let all = imported
            .map(|(_, path)| resolve(module, own, path))
            .chain(named)
            .chain(module.globs.iter().cloned());
        // What it hands on is used by those who take it from there; the crate's root is everybody's.
        let used =
            all.filter_map(|path| definer(&modules, &path, 0)).filter(|user| user != own && user.len() > 1);
        let only_hands_on =
            |path: &String| module.path.ends_with("/mod.rs") && !names_it(&modules, module, path);
        let used: BTreeSet<String> =
            used.map(|m| modules[&m].path.clone()).filter(|p| !only_hands_on(p)).collect();
        found.insert(module.path.clone(), used);
    }
    found
}

/// Whether a module's own code names something that it takes from a file, and does not only hand it on.
fn names_it(modules: &Modules, module: &Module, file: &str) -> bool {
    let own =
        modules.iter().find(|(_, m)| m.path == module.path).map(|(own, _)| own.clone()).unwrap_or_default();
    module.names.iter().any(|name| {
        let path = resolve(module, &own, name);
        definer(modules, &path, 0).is_some_and(|d| modules[&d].path == file)
    })
}

/// Sets of files that use each other.
fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(file) = next.pop() {
            for used in uses.get(&file).into_iter().flatten() {
                if seen.insert(used.clone()) {
                    next.push(used.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|f| (f, reach(f))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, all) in reached.iter().filter(|(file, all)| all.contains(**file)) {
        let circle = all.iter().filter(|other| reached.get(other).is_some_and(|r| r.contains(*file)));
        found.insert(circle.cloned().collect());
    }
    found.into_iter().collect()
}

#[test]
fn no_file_uses_one_that_uses_it() {
    let mut told = Vec::new();
    for folder in CRATES {
        let uses = uses(folder);
        for circle in circles(&uses) {
            let ties = circle.iter().map(|f| {
                let back: Vec<&str> =
                    uses[f].iter().filter(|u| circle.contains(u)).map(String::as_str).collect();
                format!("    {f} uses {}", back.join(", "))
            });
            told.push(format!("{} files:\n{}", circle.len(), ties.collect::<Vec<_>>().join("\n")));
        }
    }
    none("files use each other in a circle", told);
}
