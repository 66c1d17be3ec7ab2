//! Call sites: which line allocated.

use crate::event::{Frame, Names, SiteId, StackId};
use rustc_hash::FxHashMap;

/// Why blocks are grouped under a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SiteKind {
    /// The innermost frame outside PyTorch's own files is [`Site::frame`].
    Line,
    /// Allocated by an autograd thread without a Python frame: [`Site::frame`] is the line that called
    /// backward.
    Backward,
    /// No Python frame is known. [`Site::frame`] is empty.
    Unknown,
}

/// A call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its number.
    pub id: SiteId,
    /// What its frame means.
    pub kind: SiteKind,
    /// The line (see [`SiteKind`]).
    pub frame: Frame,
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
}

/// All sites.
#[derive(Clone, Debug)]
pub(super) struct Sites {
    pub(super) list: Vec<Site>,
    by_frame: FxHashMap<(SiteKind, Frame), SiteId>,
    by_stack: FxHashMap<u32, Meaning>,
    /// The last answer: runs of allocations share a stack.
    last: (u32, Option<Meaning>),
}

/// The site of blocks of which no frame is known.
pub(super) const UNKNOWN: SiteId = SiteId(0);

impl Default for Sites {
    fn default() -> Sites {
        let unknown = Site {
            id: UNKNOWN,
            kind: SiteKind::Unknown,
            frame: Frame::default(),
            your_line: None,
            stack: StackId(0),
            backward_stack: StackId(0),
        };
        Sites {
            list: vec![unknown],
            by_frame: FxHashMap::default(),
            by_stack: FxHashMap::default(),
            last: (0, None),
        }
    }
}

/// Files of PyTorch itself, pseudo-files, and what strandline evaluates in the process.
fn is_torch(file: &str) -> bool {
    file.contains("/torch/") || file.starts_with('<')
}

/// Files that somebody else wrote and installed.
fn is_installed(file: &str) -> bool {
    is_torch(file)
        || ["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", ".whl/", ".zip/"]
            .iter()
            .any(|p| file.contains(p))
}

impl Sites {
    pub(super) fn learn(&mut self, stack: StackId, names: &Names) {
        let frames: Vec<&Frame> = names.frames(stack).collect();
        let Some(inner) = frames.first() else { return };
        let line = frames.iter().find(|f| !is_torch(&f.file));
        let your = frames.iter().find(|f| !is_installed(&f.file)).map(|f| (*f).clone());
        let torch_only = line.is_none();
        let frame = line.unwrap_or(inner);
        let line = self.intern(SiteKind::Line, frame, &your, stack);
        let backward = self.intern(SiteKind::Backward, frame, &your, stack);
        self.by_stack.insert(stack.0, Meaning { line, backward, torch_only, placed: false });
        self.last = (0, None);
    }

    fn intern(&mut self, kind: SiteKind, frame: &Frame, your_line: &Option<Frame>, stack: StackId) -> SiteId {
        let key = (kind, frame.clone());
        if let Some(id) = self.by_frame.get(&key) {
            return *id;
        }
        let id = SiteId(self.list.len() as u32);
        let backward_stack = if kind == SiteKind::Backward { stack } else { StackId(0) };
        self.list.push(Site {
            id,
            kind,
            frame: frame.clone(),
            your_line: your_line.clone(),
            stack,
            backward_stack,
        });
        self.by_frame.insert(key, id);
        id
    }

    #[inline]
    fn meaning(&mut self, stack: StackId) -> Option<Meaning> {
        if self.last.0 != stack.0 {
            self.last = (stack.0, self.by_stack.get(&stack.0).copied());
        }
        self.last.1
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
            _ if in_backward => backward,
            _ => UNKNOWN,
        }
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
        ]);
        let a = s.of(StackId(1), false, UNKNOWN);
        let site = s.list[a.0 as usize].clone();
        assert_eq!((site.frame.line, site.your_line.unwrap().line, site.kind), (430, 88, SiteKind::Line));
        assert_eq!(s.of(StackId(2), true, UNKNOWN), a, "the same line is the same site");
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
