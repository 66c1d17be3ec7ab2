//! From a finding to the statement that keeps it: the probe's answer, and the user's own source as it lies on this machine.

use super::find::Statement;
use super::gradients;
use super::look::{GOOD_PART, Look, Statements, keeper, script};
use super::names::number;
use super::remade::{self, Line};
use super::resets::is_reset;
use super::texts::{Texts, is_of_this_machine};
use crate::holder;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use strandline::detect::Finding;
use strandline::event::{Frame, Names, StackId, total};
use strandline::replay::{Replay, Site};
use strandline::report::{HeldBy, Holder, KeptAt};

/// The statements that keep what a finding is about, which is `held_by` these; else the file that was not searched because it was modified
/// since. `began`: when its recording did, in nanoseconds of the Unix epoch. What was written since then, is not the user's own, or was
/// recorded on another machine, is not read.
pub(crate) fn kept_at(
    finding: &Finding,
    replay: &Replay,
    held_by: &HeldBy,
    names: &Names,
    began: u64,
) -> Result<Statements, Option<String>> {
    let texts = Texts::of(replay, began);
    search(finding, replay, held_by, names, &texts).ok_or_else(|| texts.modified.into_inner())
}

fn search(
    finding: &Finding,
    replay: &Replay,
    held_by: &HeldBy,
    names: &Names,
    texts: &Texts<'_>,
) -> Option<Statements> {
    // The user's own, and a file at all.
    let is_own = |file: &str| !file.is_empty() && !replay.is_installed(file);
    if !is_of_this_machine(replay) {
        return None;
    }
    if finding.is_remade() {
        let site = finding.sites.first().and_then(|s| s.site(replay));
        let frames = site.into_iter().flat_map(|s| names.frames(s.stack)).filter(|f| is_own(&f.file));
        if let Some(one) = remade_at(frames, texts) {
            return Some((one, Vec::new()));
        }
    }
    let stacks = |of: fn(&Site) -> Vec<StackId>| -> Vec<&Frame> {
        let sites = finding.sites.iter().take(4).filter_map(|s| s.site(replay));
        sites.flat_map(|s| of(&s)).flat_map(|id| names.frames(id)).filter(|f| is_own(&f.file)).collect()
    };
    // What a backward has made, and nothing of Python's leads to, is in a cycle of C++'s: a gradient's graph has the tensor whose gradient it is.
    let of_cycle = || {
        let backwards = stacks(|s| vec![s.backward_stack]);
        backwards.into_iter().find_map(|f| gradients_at(f, texts)).map(|one| (one, Vec::new()))
    };
    let answer = holder::answer_of(finding, replay)?;
    let HeldBy::Found(holders) = held_by else {
        return if matches!(held_by, HeldBy::NotFound(_)) { of_cycle() } else { None };
    };
    const LEAST: f64 = 0.01;
    // What does not grow keeps none of what does; and gradients are made by a backward, which may give them a graph.
    let first = holders.first().filter(|h| !h.stays && (h.graph || !h.gradient))?;
    // Holders that explain little of it do not say where it is kept.
    let staying = total(holders.iter().filter(|h| h.stays || h.ends).map(|h| h.blocks));
    let asked = number(answer, "blocks").saturating_sub(staying);
    let growing = || holders.iter().filter(|h| !h.stays && !h.ends && (h.graph || !h.gradient));
    let explains = |blocks: u64| blocks * 5 >= asked * 2;
    // Leaks that grow in the same steps are one finding: each holder has a part of it.
    let is_of_several = !explains(first.blocks);
    if is_of_several && !explains(total(growing().map(|h| h.blocks))) {
        return of_cycle();
    }
    let stacks = stacks(|s| vec![s.stack, s.backward_stack]);
    if first.has_growing_gradients() {
        return stacks.iter().find_map(|f| gradients_at(f, texts)).map(|one| (one, Vec::new()));
    }
    let lines = answer.get("about").and_then(|a| a.get("lines")?.as_array());
    let lines: Vec<(&str, u32)> = lines.into_iter().flatten().filter_map(line).collect();
    let others = || replay.sites().iter().map(|s| names.frames(s.stack).filter(|f| is_own(&f.file)));
    let elsewhere = others().flatten().map(|f| f.file.as_str()).collect();
    let lines_of = |s: &Site| {
        let frames = [s.stack, s.backward_stack].into_iter().flat_map(|id| names.frames(id));
        frames.map(|f| (f.file.as_str(), f.line)).collect()
    };
    let sites = finding.sites.iter().filter_map(|s| Some((lines_of(&s.site(replay)?), s.share))).collect();
    let script = script(&stacks, others());
    let look = Look { texts, stacks: &stacks, script, lines: &lines, elsewhere, sites };
    let of = |holder: &Holder| look.of(answer, holder, &is_own);
    let has_as_much = |h: &Holder| is_of_several && h.blocks * 2 >= first.blocks;
    let mut leading = growing().filter(|h| **h == *first || has_as_much(h));
    let (lead, (one, beside)) = leading.find_map(|h| Some((h, of(h)?)))?;
    let least = if is_of_several { GOOD_PART / 2.0 } else { GOOD_PART };
    let is_good = |h: &&Holder| **h != *lead && !h.stays && !h.gradient && h.share >= least;
    // What has next to none of the memory is not worth a word.
    let is_worth = |h: &&Holder| is_good(h) && h.share_to_tell() >= LEAST;
    let others = holders.iter().filter(is_worth).filter_map(|h| Some((of(h)?.0, h.share_to_tell())));
    let mut all: Vec<(KeptAt, f64)> = Vec::new();
    for (k, share) in beside.into_iter().chain(others) {
        let is_it = |other: &KeptAt| (&k.file, k.line, &k.source) == (&other.file, other.line, &other.source);
        if !is_it(&one) && !all.iter().any(|(other, _)| is_it(other)) {
            all.push((k, share));
        }
    }
    Some((one, all))
}

/// Whether the source of the job gives a holder's name something new now and then that does not build on what it had. `began`: as for [`kept_at`].
pub(crate) fn begins_anew(finding: &Finding, replay: &Replay, holder: &Holder, began: u64) -> bool {
    let told = || {
        let told = holder::answer_of(finding, replay)?.get("holders")?.as_array()?;
        let told = told.iter().find(|h| h["name"] == *holder.name && (h["graph"] == true) == holder.graph)?;
        let scope = told.get("scope")?;
        let text = Texts::of(replay, began).unchanged(scope.get("file")?.as_str()?).ok()?;
        Some(is_reset(&text, &keeper(scope, told, told)?))
    };
    is_of_this_machine(replay) && told() == Some(true)
}

/// The same of one statement, for what Python itself has named, in the words of the probe's answer: `scopes`, the nearest first. `stack`: where it
/// was allocated.
pub(crate) fn kept_in_scopes<'a>(
    scopes: &[Value],
    stack: impl IntoIterator<Item = &'a Frame>,
    replay: &Replay,
    began: u64,
) -> Result<KeptAt, Option<String>> {
    if !is_of_this_machine(replay) {
        return Err(None);
    }
    let is_own = |file: &str| !file.is_empty() && !replay.is_installed(file);
    let stacks: Vec<&Frame> = stack.into_iter().filter(|f| is_own(&f.file)).collect();
    let lines: Vec<(&str, u32)> = stacks.iter().map(|f| (f.file.as_str(), f.line)).collect();
    let texts = Texts::of(replay, began);
    let none = std::iter::empty::<std::iter::Empty<&Frame>>();
    let script = script(&stacks, none);
    let look = Look {
        texts: &texts,
        stacks: &stacks,
        script,
        lines: &lines,
        elsewhere: BTreeSet::new(),
        sites: Vec::new(),
    };
    let told = json!({ "once": true });
    let found = look.first(scopes.iter().map(|scope| (scope, scope)), &told, &is_own);
    found.map(|(one, _)| one).ok_or_else(|| texts.modified.into_inner())
}

/// The statement that makes a block anew, and larger each time: the innermost of these lines of the user's own, or that of whoever it returns it to.
fn remade_at<'a>(frames: impl IntoIterator<Item = &'a Frame>, texts: &Texts<'_>) -> Option<KeptAt> {
    for frame in frames {
        match remade::at(&texts.of_own(&frame.file)?, frame.line) {
            Line::Builds(Statement { line, text, remedy }) => {
                return Some(KeptAt { file: frame.file.clone(), line, source: text, remedy });
            }
            Line::Returns => {}
            Line::Other => return None,
        }
    }
    None
}

/// The backward that gives gradients a graph, where the line of a frame has it.
fn gradients_at(frame: &Frame, texts: &Texts<'_>) -> Option<KeptAt> {
    let Statement { line, text, remedy } = gradients::at(&texts.of_own(&frame.file)?, frame.line)?;
    Some(KeptAt { file: frame.file.clone(), line, source: text, remedy })
}

/// `train.py:12`.
fn line(text: &Value) -> Option<(&str, u32)> {
    let (file, line) = text.as_str()?.rsplit_once(':')?;
    Some((file, line.parse().ok()?))
}
