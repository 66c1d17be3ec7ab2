//! Which loaded library calls which CUDA runtime, where a process has several: see [`crate::platform::runtimes`].

use super::exports::functions_of_runtime;
use super::functions::{self, OfRuntime};
use crate::platform::real::in_loaded;
use crate::platform::runtimes::{self, Others};
use crate::stacks::native::modules::{self, Code};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The table of loaded code that was looked at last.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Looks at what is loaded, if that has changed since the last time. By one thread at a time: whoever arms, then the writing thread, so a
/// library that has just come is known some milliseconds later.
#[cold]
pub(crate) fn refresh() {
    modules::refresh();
    let (generation, code) = modules::code();
    if SEEN.swap(generation, Relaxed) == generation {
        return;
    }
    let code: Vec<_> = code.collect();
    let runtimes = runtimes_among(&code);
    let others = if runtimes.len() < 2 {
        None
    } else {
        let look_up = |path: &str, name: &CStr| in_loaded(path, name).map(|p| p as usize);
        let mut functions = functions_of_runtime();
        if functions.iter().all(|f| f.2 == 0) {
            // They have come together, before any call of a hook.
            functions::resolve_all();
            functions = functions_of_runtime();
        }
        find(&code, &runtimes, &functions, look_up)
    };
    if others.as_ref() != runtimes::known() {
        runtimes::set(others);
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The runtimes, each once.
fn runtimes_among<'a>(code: &[Code<'a>]) -> Vec<Code<'a>> {
    let mut runtimes: Vec<Code> = Vec::new();
    for c in code.iter().filter(|c| modules::is_runtime(file_name(c.path))) {
        if runtimes.iter().all(|r| r.base != c.base) {
            runtimes.push(*c);
        }
    }
    runtimes
}

/// `look_up`: a function in a loaded library, by the library's path and the function's name. `None`: all calls go to the usual runtime.
fn find(
    code: &[Code],
    runtimes: &[Code],
    functions: &[OfRuntime],
    look_up: impl Fn(&str, &CStr) -> Option<usize>,
) -> Option<Others> {
    let usual = functions.iter().find(|f| f.2 != 0)?.2;
    let usual = code.iter().find(|c| (c.start..c.end).contains(&usual)).map_or(0, |c| c.base);
    let needs = |c: &Code| {
        // A file may have a longer name (`libcudart.so.13.0.48`) than what others know it by.
        let is_it = |r: &&Code| file_name(r.path) == c.needs_runtime;
        let is_longer = |r: &&Code| {
            file_name(r.path).strip_prefix(c.needs_runtime).is_some_and(|rest| rest.starts_with('.'))
        };
        let all = || runtimes.iter();
        // A second copy of the usual one, by another path: the loader gives its callers the first of a name, as they had it before.
        let is_usual = all().any(|r| r.base == usual && (is_it(&r) || is_longer(&r)));
        if is_usual { None } else { all().find(is_it).or_else(|| all().find(is_longer)) }
    };
    let mut others = Others::default();
    let mut bases: Vec<usize> = Vec::new();
    for c in code.iter().filter(|c| !c.needs_runtime.is_empty()) {
        let Some(runtime) = needs(c) else { continue };
        let i = bases.iter().position(|b| *b == runtime.base).unwrap_or_else(|| {
            bases.push(runtime.base);
            let in_it = |f: &OfRuntime| Some((f.1, look_up(runtime.path, f.0)?));
            let mut all: Vec<_> = functions.iter().filter_map(in_it).collect();
            all.sort_unstable();
            others.runtimes.push(all);
            bases.len() - 1
        });
        others.callers.push((c.start..c.end, i));
    }
    others.callers.sort_unstable_by_key(|(code, _)| code.start);
    (!others.callers.is_empty()).then_some(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(base: usize, path: &'static str, needs_runtime: &'static str) -> Code<'static> {
        Code { start: base, end: base + 100, base, path, needs_runtime }
    }

    #[test]
    fn each_library_calls_the_runtime_that_it_names() {
        let functions: [OfRuntime; 2] = [(c"cudaMalloc", 1, 1010), (c"cudaFree", 2, 1020)];
        let look_up = |path: &str, name: &CStr| {
            let n = if path.contains("12") { 2010 } else { 1010 };
            (name == c"cudaMalloc").then_some(n)
        };
        let one =
            [code(1000, "/a/libcudart.so.13", ""), code(3000, "/a/libtorch_cuda.so", "libcudart.so.13")];
        assert_eq!(find(&one, &runtimes_among(&one), &functions, look_up), None);
        let mut two = one.to_vec();
        two.push(code(2000, "/b/libcudart.so.12.8.90", ""));
        assert_eq!(find(&two, &runtimes_among(&two), &functions, look_up), None, "nobody calls it");
        two.extend([code(5000, "/b/libother.so", "libcudart.so.12"), code(4000, "/b/libplain.so", "")]);
        let expected = Others { callers: vec![(5000..5100, 0)], runtimes: vec![vec![(1, 2010)]] };
        assert_eq!(find(&two, &runtimes_among(&two), &functions, look_up), Some(expected));
        // A copy of the usual one elsewhere, lower or higher in memory, takes nobody's calls.
        for at in [500, 9000] {
            let mut copied = one.to_vec();
            copied.push(code(at, "/c/libcudart.so.13", ""));
            copied.sort_by_key(|c| c.start);
            assert_eq!(find(&copied, &runtimes_among(&copied), &functions, look_up), None, "{at}");
        }
        // The usual one may be that of the other library.
        let functions: [OfRuntime; 1] = [(c"cudaMalloc", 1, 2010)];
        let expected = Others { callers: vec![(3000..3100, 0)], runtimes: vec![vec![(1, 1010)]] };
        assert_eq!(find(&two, &runtimes_among(&two), &functions, look_up), Some(expected));
    }
}
