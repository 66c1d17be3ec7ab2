//! Call sites: which line allocated.

use crate::event::{
    Frame, Names, NativeFrame, PackageFolders, SiteId, StackId, is_of_python, is_torch, typed,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// Why blocks are grouped under a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SiteKind {
    /// The innermost frame outside PyTorch's own files is [`Site::frame`].
    Line,
    /// Allocated by an autograd thread without a Python frame: [`Site::frame`] is the line that called
    /// backward.
    Backward,
    /// No Python frame is known, but native ones are: [`Site::frame`] is a module and a place in it (see [`reached`]).
    Native,
    /// No frame is known. [`Site::frame`] is empty.
    #[default]
    Unknown,
}

/// A call site; by default the one of which nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Its number.
    pub id: SiteId,
    /// What its frame means.
    pub kind: SiteKind,
    /// The line (see [`SiteKind`]).
    pub frame: Frame,
    /// The autograd node that allocated the memory, such as `MmBackward0`; known for [`SiteKind::Backward`] alone.
    pub node: Option<String>,
    /// The first frame outside of `site-packages` and the standard library, from innermost outwards; where an
    /// autograd thread's stack has none, that of the call of backward.
    pub your_line: Option<Frame>,
    /// One whole stack that leads here (of the call of backward, for [`SiteKind::Backward`]); 0 where there
    /// is none. `Names::frames` gives its frames, innermost first.
    pub stack: StackId,
    /// The stack that called the backward in which this line allocated first; 0 where it allocated outside of
    /// one.
    pub backward_stack: StackId,
}

/// What a stack means as a site.
#[derive(Clone, Copy, Debug)]
struct Meaning {
    /// Its line; for a stack of PyTorch's files alone, the innermost of those.
    line: SiteId,
    /// The site of what is allocated without a frame in a backward that was called from here.
    backward: SiteId,
    /// PyTorch's files alone: within a backward, the line that called backward says more.
    torch_only: bool,
    /// The site was told which backward it allocates in.
    placed: bool,
    /// The autograd node that ran, as an index of [`Sites::nodes`] + 1; 0: none did.
    node: u32,
    /// It has Python frames, and none of PyTorch's optimizers is among them.
    no_optimizer: bool,
    /// A module of PyTorch's is being called, as in a forward.
    in_module: bool,
    /// Its first frame outside of packages, as an index of [`Sites::yours`] + 1; 0: it has none.
    your: u32,
}

/// All sites.
#[derive(Clone, Debug)]
pub(super) struct Sites {
    pub(super) list: Vec<Site>,
    by_frame: FxHashMap<(SiteKind, Frame), SiteId>,
    by_stack: FxHashMap<u32, Meaning>,
    nodes: Vec<String>,
    /// Lines of the user's own that stacks lead through first, each once, and where they are in that list.
    yours: Vec<Frame>,
    by_your: FxHashMap<Frame, u32>,
    /// Sites of nodes, by that of the backward that they ran in.
    by_node: FxHashMap<(SiteId, u32), SiteId>,
    /// The last answer: runs of allocations share a stack.
    last: (u32, Option<Meaning>),
    /// Lines that call into code of other files, with those files.
    into: FxHashMap<Frame, FxHashSet<String>>,
    /// Where packages lie that are not where they usually do.
    pub(super) packages: PackageFolders,
}

/// Files that one line of the user's own calls into directly, of which each has sites of its own. Code of further files is made for each call,
/// as by a template or `exec`: its site is the line that calls it.
const FILES: usize = 32;

/// The site of blocks of which no frame is known.
pub(super) const UNKNOWN: SiteId = SiteId(0);

impl Default for Sites {
    fn default() -> Sites {
        Sites {
            list: vec![Site::default()],
            by_frame: FxHashMap::default(),
            by_stack: FxHashMap::default(),
            nodes: Vec::new(),
            yours: Vec::new(),
            by_your: FxHashMap::default(),
            by_node: FxHashMap::default(),
            last: (0, None),
            into: FxHashMap::default(),
            packages: PackageFolders::default(),
        }
    }
}

/// Files of a framework itself, or of Python's library (`copy.deepcopy`), whose lines say less than who called them.
fn is_framework(file: &str) -> bool {
    is_torch(file) || is_of_python(file) || file.contains("-packages/cupy/") || file.ends_with(SIMULATED)
}

/// What computes recurrent layers on a simulated GPU.
const SIMULATED: &str = "/strandline_simulated.py";

/// The function through which PyTorch calls modules.
fn is_call_of_module(f: &Frame) -> bool {
    f.function.ends_with("_call_impl") && f.file.ends_with("/torch/nn/modules/module.py")
}

/// The hook by which CuPy tells of its pool's blocks.
fn is_ours(file: &str) -> bool {
    file.ends_with("/strandline/_cupy.py")
}

/// Libraries that begin threads, call and unwind. `libtorch.so` itself is a stub, with the C++ library's routine for threads.
const LIBC: [&str; 6] = ["libc.so", "libc-2.", "libpthread", "libstdc++", "libgcc_s", "libtorch.so"];

/// Which native frame says most: the first outside of PyTorch, CUDA and the C library; where that is the Python interpreter, or there is
/// none, as on a thread of PyTorch's own, the function that was called there. `None` for no frames.
pub fn reached(native: &[NativeFrame]) -> Option<usize> {
    let starts = |f: &NativeFrame, with: &[&str]| {
        let name = f.module.rsplit('/').next().unwrap_or_default();
        with.iter().any(|w| name.starts_with(w))
    };
    let is_inside = |f: &NativeFrame| {
        is_torch(&f.module) || starts(f, &["libc10", "libtorch", "libcu"]) || starts(f, &LIBC)
    };
    let outside = native.iter().position(|f| !is_inside(f)).unwrap_or(native.len());
    if native.get(outside).is_some_and(|f| !starts(f, &["python", "libpython"])) {
        return Some(outside);
    }
    let called = native[..outside].iter().rposition(|f| !starts(f, &LIBC));
    called.or_else(|| (!native.is_empty()).then_some(outside.saturating_sub(1)))
}

impl Sites {
    pub(super) fn is_installed(&self, file: &str) -> bool {
        is_torch(file) || self.packages.has(file)
    }

    pub(super) fn learn(&mut self, stack: StackId, names: &Names) {
        // Our own hook in Python is who tells, not who allocates.
        let frames: Vec<&Frame> = names.frames(stack).skip_while(|f| is_ours(&f.file)).collect();
        let node = names.node(stack).map_or(0, |n| self.node(n));
        let Some(inner) = frames.first() else {
            let native = names.native(stack);
            if node != 0 || !native.is_empty() {
                let frame = reached(native).and_then(|i| native.get(i)).map(|f| Frame {
                    file: f.module.to_string(),
                    line: 0,
                    function: format!("+{:#x}", f.offset),
                });
                let mut of = |kind| frame.as_ref().map_or(UNKNOWN, |f| self.intern(kind, f, &None, stack));
                let (line, backward) = (of(SiteKind::Native), of(SiteKind::Backward));
                self.by_stack.insert(
                    stack.0,
                    Meaning {
                        line,
                        backward,
                        torch_only: true,
                        placed: true,
                        node,
                        no_optimizer: false,
                        in_module: false,
                        your: 0,
                    },
                );
                self.last = (0, None);
            }
            return;
        };
        let no_optimizer = !frames.iter().any(|f| f.file.contains("/torch/optim/"));
        let in_module = frames.iter().any(|f| is_call_of_module(f));
        let frames = self.without_made(&frames);
        let line = frames.iter().find(|f| !is_framework(&f.file));
        let your = frames.iter().find(|f| !self.is_installed(&f.file)).map(|f| (*f).clone());
        let torch_only = line.is_none();
        let frame = line.unwrap_or(inner);
        let line = self.intern(SiteKind::Line, frame, &your, stack);
        let backward = self.intern(SiteKind::Backward, frame, &your, stack);
        let your = your.map_or(0, |f| self.your(f));
        self.by_stack.insert(
            stack.0,
            Meaning { line, backward, torch_only, placed: false, node, no_optimizer, in_module, your },
        );
        self.last = (0, None);
    }

    /// The frames of a stack, without inner ones whose code was made for this call.
    fn without_made<'f, 'n>(&mut self, frames: &'f [&'n Frame]) -> &'f [&'n Frame] {
        let is_own = |f: &&Frame| !is_framework(&f.file);
        let Some(inner) = frames.iter().find(|f| is_own(f)) else { return frames };
        let is_caller = |f: &&Frame| is_own(f) && f.file != inner.file;
        let Some(at) = frames.iter().position(is_caller) else { return frames };
        // A package that runs what it is given, such as pytest, runs files of the user's own.
        if self.is_installed(&frames[at].file) {
            return frames;
        }
        let files = self.into.entry(frames[at].clone()).or_default();
        if files.contains(&inner.file) {
            return frames;
        }
        if files.len() >= FILES {
            return &frames[at..];
        }
        files.insert(inner.file.clone());
        frames
    }

    fn intern(&mut self, kind: SiteKind, frame: &Frame, your_line: &Option<Frame>, stack: StackId) -> SiteId {
        let file = typed(&frame.file).unwrap_or(&frame.file).to_owned();
        let key = (kind, Frame { file, ..frame.clone() });
        if let Some(id) = self.by_frame.get(&key) {
            return *id;
        }
        let id = SiteId(self.list.len() as u32);
        let backward_stack = if kind == SiteKind::Backward { stack } else { StackId(0) };
        self.list.push(Site {
            id,
            kind,
            frame: frame.clone(),
            node: None,
            your_line: your_line.clone(),
            stack,
            backward_stack,
        });
        self.by_frame.insert(key, id);
        id
    }

    fn your(&mut self, frame: Frame) -> u32 {
        if let Some(&at) = self.by_your.get(&frame) {
            return at;
        }
        self.yours.push(frame.clone());
        let at = self.yours.len() as u32;
        self.by_your.insert(frame, at);
        at
    }

    /// The first frame of a stack that is outside of packages.
    pub(super) fn your_line(&self, stack: StackId) -> Option<&Frame> {
        let at = self.by_stack.get(&stack.0)?.your.checked_sub(1)?;
        self.yours.get(at as usize)
    }

    #[inline]
    fn meaning(&mut self, stack: StackId) -> Option<Meaning> {
        if self.last.0 != stack.0 {
            self.last = (stack.0, self.by_stack.get(&stack.0).copied());
        }
        self.last.1
    }

    /// This stack is known to be that of no optimizer.
    pub(super) fn is_outside_optimizers(&mut self, stack: StackId) -> bool {
        self.meaning(stack).is_some_and(|m| m.no_optimizer)
    }

    /// A module of PyTorch's is being called in this stack.
    pub(super) fn is_in_module(&mut self, stack: StackId) -> bool {
        self.meaning(stack).is_some_and(|m| m.in_module)
    }

    /// The site of a block that was allocated from `stack`, while a backward that was called from `backward`
    /// ran.
    #[inline]
    pub(super) fn of(&mut self, stack: StackId, in_backward: bool, backward: SiteId) -> SiteId {
        match self.meaning(stack) {
            Some(m) if !(m.torch_only && in_backward && backward != UNKNOWN) => {
                if in_backward && !m.placed && backward != UNKNOWN {
                    self.place(stack, m.line, backward);
                }
                m.line
            }
            Some(m) if in_backward && m.node != 0 => self.of_node(m.node, backward),
            _ if in_backward => backward,
            _ => UNKNOWN,
        }
    }

    fn node(&mut self, name: &str) -> u32 {
        let known = self.nodes.iter().position(|n| n == name);
        let at = known.unwrap_or_else(|| {
            self.nodes.push(name.to_string());
            self.nodes.len() - 1
        });
        at as u32 + 1
    }

    /// The site of what a node allocates in a backward.
    fn of_node(&mut self, node: u32, backward: SiteId) -> SiteId {
        if let Some(&id) = self.by_node.get(&(backward, node)) {
            return id;
        }
        let (Some(site), name) = (self.list.get(backward.0 as usize), self.nodes.get(node as usize - 1))
        else {
            return backward;
        };
        let id = SiteId(self.list.len() as u32);
        let site = Site { id, node: name.cloned(), ..site.clone() };
        self.list.push(site);
        self.by_node.insert((backward, node), id);
        id
    }

    /// Tells a site which backward it allocates in, once.
    #[cold]
    fn place(&mut self, stack: StackId, line: SiteId, backward: SiteId) {
        if let Some(m) = self.by_stack.get_mut(&stack.0) {
            m.placed = true;
        }
        self.last = (0, None);
        let Some(caller) = self.list.get(backward.0 as usize).cloned() else { return };
        if let Some(site) = self.list.get_mut(line.0 as usize).filter(|s| s.backward_stack.0 == 0) {
            site.backward_stack = caller.stack;
            site.your_line = site.your_line.take().or(caller.your_line);
        }
    }

    /// The site of what a backward called from `stack` allocates without a frame.
    pub(super) fn of_backward(&mut self, stack: StackId) -> SiteId {
        self.meaning(stack).map_or(UNKNOWN, |m| m.backward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, line: u32) -> Frame {
        Frame { file: file.into(), line, function: "f".into() }
    }

    fn learn(stacks: &[&[(&str, u32)]]) -> Sites {
        let (mut names, mut sites) = (Names::default(), Sites::default());
        for (i, s) in stacks.iter().enumerate() {
            let id = StackId(i as u32 + 1);
            names.add_stack(id, s.iter().map(|(f, l)| frame(f, *l)));
            sites.learn(id, &names);
        }
        sites
    }

    #[test]
    fn native_frames_are_called_after_the_function_that_asked_torch() {
        let frame =
            |module: &str| NativeFrame { module: module.into(), offset: 16, ..NativeFrame::default() };
        let stack = [
            "/v/torch/lib/libc10_cuda.so",
            "/v/torch/lib/libtorch_cpu.so",
            "/job/ext.so",
            "/usr/bin/python3.11",
        ];
        let all = stack.map(frame);
        assert_eq!(reached(&all), Some(2), "an extension");
        let direct = [0, 1, 3].map(|i: usize| all[i].clone());
        assert_eq!(reached(&direct), Some(1), "what Python called");
        assert_eq!((reached(&all[..2]), reached(&all[3..]), reached(&[])), (Some(1), Some(0), None));
        let thread = [
            "/v/torch/lib/libc10_cuda.so",
            "/v/torch/lib/libtorch_cpu.so",
            "/v/torch/lib/libtorch.so",
            "/lib/libc.so.6",
        ];
        assert_eq!(reached(&thread.map(frame)), Some(1), "what a thread of PyTorch's own began with");
        assert_eq!(reached(&thread[3..].iter().map(|m| frame(m)).collect::<Vec<_>>()), Some(0));
        let (mut names, mut sites) = (Names::default(), Sites::default());
        names.add_native(StackId(1), all.to_vec());
        names.add_stack(StackId(1), []);
        sites.learn(StackId(1), &names);
        let site = sites.of(StackId(1), false, UNKNOWN);
        let site = &sites.list[site.0 as usize];
        assert_eq!(
            (site.kind, &*site.frame.file, &*site.frame.function),
            (SiteKind::Native, "/job/ext.so", "+0x10")
        );
    }

    #[test]
    fn a_node_of_a_backward_is_a_site_of_its_own() {
        let (mut names, mut sites) = (Names::default(), Sites::default());
        names.add_stack(StackId(1), [frame("/job/train.py", 88)]);
        for (id, node) in [(2, "MmBackward0"), (3, "AddmmBackward0"), (4, "MmBackward0")] {
            names.add_node(StackId(id), node.into());
            names.add_stack(StackId(id), []);
        }
        (1..5).for_each(|id| sites.learn(StackId(id), &names));
        let backward = sites.of_backward(StackId(1));
        let [mm, addmm, again] = [2, 3, 4].map(|id| sites.of(StackId(id), true, backward));
        assert!(mm == again && mm != addmm && mm != backward);
        let site = &sites.list[mm.0 as usize];
        assert_eq!(
            (site.kind, site.frame.line, site.node.as_deref()),
            (SiteKind::Backward, 88, Some("MmBackward0"))
        );
        assert_eq!(sites.of(StackId(2), true, UNKNOWN), UNKNOWN, "nobody knows which backward it was");
        assert_eq!(sites.of(StackId(2), false, backward), UNKNOWN);
    }

    #[test]
    fn code_that_is_made_for_each_call_is_the_line_that_calls_it() {
        let files: Vec<String> = (0..40).map(|i| format!("/tmp/made/step_{i}.py")).collect();
        let stacks: Vec<Vec<(&str, u32)>> =
            files.iter().map(|f| vec![(f.as_str(), 2), (f.as_str(), 9), ("/job/train.py", 7)]).collect();
        let mut s = learn(&stacks.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut site = |n: u32| {
            let id = s.of(StackId(n), false, UNKNOWN);
            s.list[id.0 as usize].clone()
        };
        let (first, last) = (site(1), site(40));
        assert_eq!((&*first.frame.file, &*last.frame.file), ("/tmp/made/step_0.py", "/job/train.py"));
        assert_eq!((last.your_line.unwrap().line, site(FILES as u32 + 1).id), (7, last.id));
        assert_ne!(site(FILES as u32).id, last.id);
    }

    #[test]
    fn the_site_is_the_innermost_line_outside_of_torch() {
        let lib = "/v/lib/python3.11/site-packages";
        let trl = &format!("{lib}/trl/models/activation_offloading.py");
        let torch = &format!("{lib}/torch/nn/functional.py");
        let mut s = learn(&[
            &[("<strandline>", 1), (torch, 9), (trl, 430), (torch, 3), ("/job/train.py", 88)],
            &[(torch, 11), (trl, 430), ("/job/other.py", 2)],
            &[(torch, 5), (torch, 6)],
            &[("trl-1.3.0-py3-none-any.whl/trl/x.py", 5), ("/job/train.py", 7)],
            &[(trl, 77), (torch, 1)],
            &[("/usr/lib/python3.11/copy.py", 153), (trl, 78)],
        ]);
        let copied = s.of(StackId(6), false, UNKNOWN);
        assert_eq!(s.list[copied.0 as usize].frame.line, 78, "who copied it");
        let a = s.of(StackId(1), false, UNKNOWN);
        let site = s.list[a.0 as usize].clone();
        assert_eq!((site.frame.line, site.your_line.unwrap().line, site.kind), (430, 88, SiteKind::Line));
        assert_eq!(s.of(StackId(2), true, UNKNOWN), a, "the same line is the same site");
        let yours = [1, 2, 3, 4].map(|n| s.your_line(StackId(n)).map(|f| f.line));
        assert_eq!(yours, [Some(88), Some(2), None, Some(7)], "who called it is another one each time");
        let b = s.of_backward(StackId(1));
        assert_eq!(s.list[b.0 as usize].kind, SiteKind::Backward);
        assert_eq!(s.of(StackId(0), true, b), b);
        assert_eq!(s.of(StackId(3), true, b), b, "torch alone within backward: who called it");
        let t = s.of(StackId(3), false, b);
        assert_eq!(s.list[t.0 as usize].frame.line, 5);
        assert_eq!(s.of(StackId(0), false, b), UNKNOWN);
        assert_eq!(s.of(StackId(77), false, b), UNKNOWN);
        let w = s.of(StackId(4), false, b);
        assert_eq!(s.list[w.0 as usize].your_line.as_ref().unwrap().line, 7);
        let code = "c6urfefx2mjtqbyvvwhpgm3k7njv5bq2d4t6xhzcolsaei2wkynz";
        let (compiled, own) = (format!("/var/cache/6u/{code}.py"), format!("/job/{code}.py"));
        let mut generated = learn(&[
            &[(&compiled, 211), (torch, 9), ("/job/model.py", 48)],
            &[(&compiled, 214), (torch, 9), ("/job/model.py", 48)],
            &[(&own, 3), ("/job/model.py", 50)],
        ]);
        let lines: Vec<_> = (1..4).map(|n| generated.of(StackId(n), false, UNKNOWN)).collect();
        let of = |s: SiteId| generated.list[s.0 as usize].your_line.as_ref().unwrap().line;
        assert_eq!((lines[0], of(lines[0]), of(lines[2])), (lines[1], 48, 3), "who called what was compiled");
        let arrays = learn(&[
            &[("/x/site-packages/cupy/_creation/basic.py", 30), ("/home/u/a.py", 3)],
            &[
                ("/y/strandline/_cupy.py", 52),
                ("/x/site-packages/cupy/_creation/basic.py", 30),
                ("/home/u/a.py", 4),
            ],
            &[(torch, 7), ("/x/site-packages/strandline_simulated.py", 49), ("/home/u/a.py", 5)],
        ]);
        assert_eq!(
            arrays.list.iter().filter(|s| s.kind == SiteKind::Line).map(|s| s.frame.line).collect::<Vec<_>>(),
            [3, 4, 5]
        );
        let hook = s.of(StackId(5), true, b);
        let site = &s.list[hook.0 as usize];
        assert_eq!((site.frame.line, site.backward_stack), (77, StackId(1)));
        assert_eq!(
            site.your_line.as_ref().map(|f| f.line),
            Some(88),
            "a hook on an autograd thread: who called backward"
        );
    }
}
