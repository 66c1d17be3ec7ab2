//! What may pass: names that anybody has, and paths of what anybody can install.

use strandline::event::WordList;

/// Where installed files lie. What follows is the same for everybody.
const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Libraries of PyTorch, CUDA and the system, by the beginning of their names.
pub(super) const PUBLIC: WordList = WordList(
    "libc10 libtorch libcaffe2 libcuda libcublas libcudnn libcufft libcurand libcusolver libcusparse \
     libcupti libnccl libnvidia- libnvrtc libnvToolsExt libstdc++. libc.so libm.so libgcc_s. libpython3. libffi.",
);
/// Nodes of PyTorch's own that are not called after a function.
pub(super) const NODES: [&str; 6] =
    ["AccumulateGrad", "CopyBackwards", "CopySlices", "GraphRoot", "PyNode", "CppNode"];

/// Types that anybody has.
pub(super) const TYPES: WordList =
    WordList("dict list tuple set frozenset deque defaultdict OrderedDict Tensor Parameter generator cell");
/// A path from the folder on in which packages are installed, or Python's own modules lie.
pub(super) fn installed(path: &str) -> Option<String> {
    for root in INSTALLED {
        if let Some(at) = path.rfind(root) {
            return Some(format!("python{}", &path[at..]));
        }
    }
    if let Some(at) = path.rfind(".whl/") {
        let begin = path[..at].rfind('/').map_or(0, |i| i + 1);
        return Some(format!("python/{}", &path[begin..]));
    }
    for root in ["/lib/python3.", "/lib64/python3."] {
        if let Some(at) = path.rfind(root) {
            let version = path[at + root.len()..].split('/').next().unwrap_or_default();
            if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) {
                return Some(format!("python{}", &path[at..]));
            }
        }
    }
    None
}

/// `python`, `python3`, `python3.12`.
pub(super) fn is_python(name: &str) -> bool {
    let rest = name.strip_prefix("python");
    rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// A sentence of ours that may name a file: every word with a path in it is left out.
pub(super) fn sentence(text: &str) -> String {
    let words = text.split(' ').map(|word| if word.contains('/') { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
