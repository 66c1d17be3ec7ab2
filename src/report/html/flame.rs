//! Stacks of what is held, as one tree of frames from the outermost call inwards.

use super::super::files::short_path;
use super::super::model::Facts;
use super::super::numbered::Numbered;
use super::super::path;
use super::super::text::NO_FRAME;
use crate::event::{Frame, Names, SiteId, StackId, add};
use crate::replay::Replay;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Frames of a stack that are shown.
const DEPTH: usize = 48;
/// Nodes of a tree; the smallest are left out.
const NODES: usize = 1200;

/// A frame and what its calls hold.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) bytes: u64,
    /// The frame is of an installed package or of Python's own library.
    installed: bool,
    calls: BTreeMap<String, Tree>,
}

/// The tree of these stacks, each with its bytes. What has no Python frame hangs below the backward that allocated it.
pub(super) fn tree(replay: &Replay, names: &Names, stacks: FxHashMap<(SiteId, StackId), u64>) -> Tree {
    let mut root = Tree::default();
    let folders = Facts::of(replay).folders();
    for ((site, stack), bytes) in stacks {
        let (frames, node) = path::frames_of(replay, names, site, stack);
        let mut path: Vec<(String, bool)> =
            frames.into_iter().map(|f| (label(replay, f, &folders), replay.is_installed(&f.file))).collect();
        let skipped = path.len().saturating_sub(DEPTH);
        path.drain(..skipped);
        path.extend(node.map(|n| (n.to_owned(), true)));
        if path.is_empty() {
            path.push((NO_FRAME.to_owned(), false));
        }
        let mut at = &mut root;
        add(&mut at.bytes, bytes);
        for (name, installed) in path {
            at = at.calls.entry(name).or_default();
            add(&mut at.bytes, bytes);
            at.installed = installed;
        }
    }
    root
}

/// `train.py:88 main`: the job's own files as elsewhere in the report, those of packages by the last two parts of their paths, which are many
/// and narrow.
pub(super) fn label(replay: &Replay, f: &Frame, folders: &[String]) -> String {
    let file = match replay.is_installed(&f.file) {
        true => f.file.rmatch_indices('/').nth(1).map_or(&*f.file, |(slash, _)| &f.file[slash + 1..]),
        false => short_path(&f.file, folders),
    };
    let line = if f.line > 0 { format!(":{}", f.line) } else { String::new() };
    format!("{file}{line} {}", f.function)
}

impl Tree {
    /// As `[name, bytes, [calls], installed]`, the largest first; what is too small is not listed, so calls may sum to less.
    /// Bytes are 0 where they are those of the caller, as in most frames of a deep stack.
    pub(super) fn value(&self, words: &mut Numbered<String>) -> Value {
        let mut sizes = Vec::new();
        self.sizes(&mut sizes);
        sizes.sort_unstable_by_key(|b| std::cmp::Reverse(*b));
        let least = sizes.get(NODES).map_or(0, |b| b.saturating_add(1));
        self.listed("all", 0, least, words)
    }

    fn sizes(&self, into: &mut Vec<u64>) {
        into.push(self.bytes);
        self.calls.values().for_each(|c| c.sizes(into));
    }

    fn listed(&self, name: &str, around: u64, least: u64, words: &mut Numbered<String>) -> Value {
        let mut calls: Vec<(&String, &Tree)> = self.calls.iter().filter(|(_, c)| c.bytes >= least).collect();
        calls.sort_by_key(|(_, c)| std::cmp::Reverse(c.bytes));
        let bytes = if self.bytes == around { 0 } else { self.bytes };
        let name = words.number(name);
        let calls: Vec<Value> =
            calls.into_iter().map(|(n, c)| c.listed(n, self.bytes, least, words)).collect();
        json!([name, bytes, calls, u8::from(self.installed)])
    }
}
