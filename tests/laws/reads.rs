//! Where the preload reads or writes through an address. What Python, CUDA, the loader or a caller owns is reached in a few places, each of which
//! proves what lies there: a new one is a decision, not a line.

use super::{none, sources};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;

/// What makes sure that something is there, and the files, below `preload/src`, that rely on it: in how many places.
const READS: &[(&str, &[(&str, usize)])] = &[
    (
        "memory of our own",
        &[
            ("hooks/exports.rs", 2),
            ("hooks/functions.rs", 1),
            ("hooks/sticky_error.rs", 1),
            ("lifecycle/watcher.rs", 3),
            ("platform/errno.rs", 2),
            ("platform/heap.rs", 2),
            ("platform/runtimes.rs", 1),
            ("platform/say.rs", 1),
            ("pluggable/driver.rs", 2),
            ("pluggable/fail.rs", 2),
            ("recorder/devices.rs", 3),
            ("recorder/guard.rs", 12),
            ("recorder/thread.rs", 42),
            ("stacks/mod.rs", 1),
            ("stacks/outgoing.rs", 13),
            ("stacks/python.rs", 3),
            ("stacks/running.rs", 1),
            ("stacks/tables.rs", 1),
            ("tail/memory.rs", 4),
        ],
    ),
    ("what a successful call wrote for its caller, not null", &[("hooks/filled.rs", 1)]),
    (
        "the caller's strings and names, not null, which the real function has read or Python, CUDA and the loader own for ever",
        &[
            ("control.rs", 1),
            ("hooks/dlsym.rs", 1),
            ("hooks/entry_points.rs", 3),
            ("late/mod.rs", 1),
            ("platform/config.rs", 1),
            ("python/version.rs", 1),
        ],
    ),
    ("the caller's std::string, and this thread's own place", &[("hooks/torch.rs", 7)]),
    ("a live node's first word, and this thread's own place", &[("hooks/autograd.rs", 5)]),
    (
        "tables and names of a loaded library, under the loader's lock, and a file that is mapped whole",
        &[
            ("late/redirect.rs", 5),
            ("platform/elf.rs", 5),
            ("platform/object.rs", 4),
            ("stacks/native/cfi.rs", 1),
            ("stacks/native/modules.rs", 8),
        ],
    ),
    ("`environ` while the process has one thread, and our own copy", &[("platform/environment.rs", 4)]),
    ("copies by the kernel, and `read`, whose callers are listed", &[("platform/memory.rs", 3)]),
    (
        "an exported object that its RTTI has named, and its caller's buffers",
        &[("pluggable/mod.rs", 2), ("torch/attach.rs", 6)],
    ),
    ("an entry of the allocator's that lives during the call", &[("torch/tracker.rs", 2)]),
    ("a thread-local of c10's, found by its own setter", &[("torch/grad.rs", 3)]),
    (
        "objects that the collector tracks and what they hold, under the GIL, in versions whose layout is known",
        &[
            ("probe/attributes.rs", 32),
            ("probe/bound.rs", 17),
            ("probe/chains.rs", 1),
            ("probe/climb.rs", 1),
            ("probe/close.rs", 5),
            ("probe/contexts.rs", 7),
            ("probe/frames.rs", 6),
            ("probe/looks.rs", 3),
            ("probe/modules.rs", 2),
            ("probe/names.rs", 27),
            ("probe/naming.rs", 11),
            ("probe/inside.rs", 1),
            ("probe/near.rs", 6),
            ("probe/objects.rs", 30),
            ("probe/pieces.rs", 17),
            ("probe/proof.rs", 4),
            ("probe/rebound.rs", 5),
            ("probe/tensors.rs", 5),
            ("probe/verify.rs", 10),
            ("probe/work.rs", 5),
        ],
    ),
    ("the counts of a collector that `find` has recognised", &[("python/collector.rs", 9)]),
    (
        "this thread's own state in Python 3.8 to 3.10, once its frame was where it says",
        &[("python/untraced.rs", 2)],
    ),
    ("exported pointers of Python's to its own classes", &[("python/interpreter.rs", 5)]),
    ("`_PyRuntime`, whose size its own head tells", &[("stacks/described.rs", 1)]),
    (
        "stacks::memory::At, not null; stacks::object::Code, of the type of code objects",
        &[
            ("stacks/fraction.rs", 1),
            ("stacks/intern.rs", 1),
            ("stacks/memory.rs", 1),
            ("stacks/object.rs", 5),
        ],
    ),
    ("this thread's own stack and descriptor", &[("stacks/native/mod.rs", 3), ("stacks/slot.rs", 3)]),
    ("the vtable of a live node", &[("stacks/node.rs", 3)]),
    ("strings and bytes of objects that we hold references to", &[("stacks/proof.rs", 4)]),
    ("a word of the type of code objects whose place was proved", &[("stacks/watch.rs", 1)]),
    ("a function and its arguments as Python's calls pass them", &[("steps/frameless.rs", 4)]),
    ("NVTX's table, of the length that it says, and its caller's strings, not null", &[("steps/nvtx.rs", 5)]),
];

/// Functions and methods that read or write through an address.
const CALLS: [&str; 19] = [
    "as_mut",
    "as_ref",
    "copy",
    "copy_from_nonoverlapping",
    "copy_nonoverlapping",
    "copy_to_nonoverlapping",
    "from_ptr",
    "from_raw",
    "from_raw_parts",
    "from_raw_parts_mut",
    "read",
    "read_unaligned",
    "read_volatile",
    "replace",
    "swap",
    "write",
    "write_bytes",
    "write_unaligned",
    "write_volatile",
];
/// Words that an expression may follow.
const BEFORE: [&str; 8] = ["else", "if", "in", "let", "match", "move", "return", "while"];

/// How often `unsafe` blocks of these tokens, those of macros too, dereference something or call one of [`CALLS`].
fn accesses(tokens: TokenStream, is_unsafe: bool) -> usize {
    let (mut found, mut before, mut after) = (0, None, tokens.into_iter().peekable());
    while let Some(token) = after.next() {
        let next = after.peek();
        found += match &token {
            TokenTree::Group(g) => {
                let begins = g.delimiter() == Delimiter::Brace && is_word(before.as_ref(), &["unsafe"]);
                accesses(g.stream(), is_unsafe || begins)
            }
            TokenTree::Punct(p) if is_unsafe && p.as_char() == '*' => {
                let is_first =
                    matches!(before, None | Some(TokenTree::Punct(_))) || is_word(before.as_ref(), &BEFORE);
                usize::from(is_first && !is_word(next, &["const", "mut"]))
            }
            TokenTree::Ident(_) if is_unsafe && is_word(Some(&token), &CALLS) => {
                let is_called = match next {
                    Some(TokenTree::Group(g)) => g.delimiter() == Delimiter::Parenthesis,
                    Some(TokenTree::Punct(p)) => p.as_char() == ':',
                    _ => false,
                };
                usize::from(is_called)
            }
            _ => 0,
        };
        before = Some(token);
    }
    found
}

fn is_word(token: Option<&TokenTree>, words: &[&str]) -> bool {
    matches!(token, Some(TokenTree::Ident(i)) if words.iter().any(|w| i == w))
}

fn accesses_of(text: &str) -> usize {
    accesses(text.parse().expect("Rust"), false)
}

#[test]
fn what_others_own_is_reached_in_few_places() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources(&["preload/src"]) {
        let n = accesses_of(&source.product);
        if n > 0 {
            found.insert(source.path, n);
        }
    }
    let known: BTreeMap<String, usize> =
        READS.iter().flat_map(|(_, files)| *files).map(|(f, n)| (format!("preload/src/{f}"), *n)).collect();
    let files: std::collections::BTreeSet<&String> = found.keys().chain(known.keys()).collect();
    let broken = files.into_iter().filter(|f| found.get(*f) != known.get(*f)).map(|f| {
        let count = |all: &BTreeMap<String, usize>| all.get(f).copied().unwrap_or(0);
        format!("{f}: {} places go through an address, {} are known", count(&found), count(&known))
    });
    none(
        "memory is reached by its address where that was not looked at (tests/laws/reads.rs)",
        broken.collect(),
    );
}

#[test]
fn every_way_through_an_address_is_seen() {
    for one in [
        "let x = unsafe { *p };",
        "hooks! { f: F(p: P) => { note(unsafe { *p }) } }",
        "unsafe { *word = 1 }",
        "let v = unsafe { &*p.cast::<T>() };",
        "return unsafe { (*p.add(1)).next };",
        "let v = unsafe { (a as *const u64).read_unaligned() };",
        "unsafe { if x { return *p } }",
        "let s = unsafe { CStr::from_ptr(name) };",
        "unsafe { core::ptr::read::<u64>(p) };",
        "let t = unsafe { p.as_ref() };",
    ] {
        assert_eq!(accesses_of(one), 1, "{one}");
    }
    for none in [
        "let x = a * b;",
        "let x = unsafe { f(a * b) };",
        "unsafe { g(p as *const u8) }",
        "let x = *reference;",
    ] {
        assert_eq!(accesses_of(none), 0, "{none}");
    }
}
