//! Native frames → functions and lines: symbols, inlined functions, demangled names, out of the modules' own files.
//!
//! The files are those that the recording names, where they are still the ones it ran with (their build ids tell); for any
//! other a frame says where in which module it is.

use addr2line::Loader;
use object::Object;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use strandline::event::{Frame, NativeFrame, make_printable};

/// Which file, and its build id: the same path may have held another one.
type Module = (Arc<str>, Arc<[u8]>);

/// Modules that were opened.
#[derive(Default)]
pub(crate) struct Symbols {
    modules: HashMap<Module, Option<Loader>>,
}

impl Symbols {
    /// The name of the function that a native frame is in, as the module's own table of symbols has it.
    fn name(&mut self, f: &NativeFrame) -> Option<String> {
        self.module(f)?.find_symbol(u64::from(f.offset).checked_sub(1)?).map(str::to_owned)
    }

    fn module(&mut self, f: &NativeFrame) -> Option<&Loader> {
        let key = (f.module.clone(), f.build_id.clone());
        self.modules.entry(key).or_insert_with(|| open(f)).as_ref()
    }

    /// The functions of a native frame, innermost first: those that the compiler inlined, then the one that they are in.
    pub(crate) fn frames(&mut self, f: &NativeFrame) -> Vec<Frame> {
        // The call, not what follows it.
        let found = self.module(f).and_then(|m| functions(m, u64::from(f.offset).checked_sub(1)?));
        let mut frames = found.unwrap_or_else(|| {
            let function =
                if f.offset == 0 { "code made at run time".into() } else { format!("+{:#x}", f.offset) };
            vec![Frame { file: f.module.to_string(), line: 0, function }]
        });
        for frame in &mut frames {
            make_printable(&mut frame.file);
            make_printable(&mut frame.function);
        }
        frames
    }
}

/// How many of a stack's innermost frames are of CUDA's runtime where that is a part of the program (nvcc's default): all that
/// the program allocates comes from there, and the line that asked is behind it.
pub(crate) fn of_runtime(symbols: &mut Symbols, native: &[NativeFrame]) -> usize {
    let is_library = |f: &NativeFrame| {
        let name = f.module.rsplit('/').next().unwrap_or_default();
        ["libcu", "libc10", "libtorch"].iter().any(|l| name.starts_with(l))
    };
    if native.len() < 2 || native.first().is_none_or(is_library) {
        return 0;
    }
    // The outermost frame stays in any case.
    let inner = native.iter().take(native.len() - 1);
    inner.take_while(|f| symbols.name(f).is_some_and(|n| is_runtimes(&n))).count()
}

fn is_runtimes(function: &str) -> bool {
    let api =
        function.strip_prefix("cuda").and_then(|f| f.chars().next()).is_some_and(|c| c.is_ascii_uppercase());
    api || function.starts_with("libcudart_static_") || function.starts_with("__cudart")
}

/// Opens a module, if its file is there and is what ran.
fn open(f: &NativeFrame) -> Option<Loader> {
    let file = object::ReadCache::new(File::open(&*f.module).ok()?);
    let build_id = object::File::parse(&file).ok()?.build_id().ok()?.unwrap_or_default().to_vec();
    if *f.build_id != *build_id {
        return None;
    }
    Loader::new(&*f.module).ok()
}

/// What a module says of an address of its own; `None` where it says nothing.
fn functions(module: &Loader, address: u64) -> Option<Vec<Frame>> {
    let mut all = Vec::new();
    if let Ok(mut frames) = module.find_frames(address) {
        while let Ok(Some(f)) = frames.next() {
            let Some(name) = f.function else { continue };
            let (file, line) = f.location.map_or((None, None), |l| (l.file, l.line));
            let function = name.demangle().map_or_else(|_| String::new(), Cow::into_owned);
            all.push(Frame { file: file.unwrap_or_default().to_string(), line: line.unwrap_or(0), function });
        }
    }
    if all.is_empty() {
        let name = module.find_symbol(address)?;
        let function = addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned();
        all.push(Frame { file: String::new(), line: 0, function });
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_own_functions_are_told_by_their_names() {
        let names =
            ["cudaMalloc", "libcudart_static_5382377d5c77", "__cudart123", "keep", "cuda_pool", "cudart"];
        assert_eq!(names.map(is_runtimes), [true, true, true, false, false, false]);
    }

    #[test]
    fn what_cannot_be_looked_up_says_where_it_is() {
        let mut s = Symbols::default();
        let gone = NativeFrame {
            module: "/nowhere/libx.so".into(),
            build_id: [1].as_slice().into(),
            offset: 0x1234,
        };
        let frame = Frame { file: "/nowhere/libx.so".into(), line: 0, function: "+0x1234".into() };
        assert_eq!(s.frames(&gone), [frame]);
        let other = NativeFrame { module: "/proc/self/exe".into(), ..gone };
        assert_eq!(s.frames(&other)[0].function, "+0x1234", "another build id: not the file that ran");
    }
}
