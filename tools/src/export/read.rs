//! Goes over recordings once more, for what an export prints.

use crate::analyze::{Judged, Moment, symbolized};
use crate::cli::{self, ExportFormat};
use crate::error::Error;
use crate::symbols::Symbols;
use std::collections::BTreeMap;
use strandline::event::{Frame, NativeFrame, StackId};
use strandline::report::export::{Profile, Sums, Timeline};
use strandline::report::{Process, Report};

/// What stacks hold at the moments that are asked for.
///
/// # Errors
/// There is no such moment, or the recording cannot be read again.
pub(super) fn profile<'a>(
    judged: &Judged,
    process: &'a Process<'a>,
    report: &Report<'_>,
    options: &cli::Export,
) -> Result<Profile<'a>, Error> {
    let usual: &[Moment] = match options.format {
        ExportFormat::Speedscope => &[Moment::Peak, Moment::End],
        _ => &[Moment::Peak],
    };
    let asked = if options.at.is_empty() { usual } else { &options.at };
    // Of a process that allocated nothing there is no peak, which is no error where several are exported.
    let is_optional = options.at.is_empty();
    let mut places = Vec::new();
    for moment in asked {
        match moment.find(judged) {
            Ok(place) => places.push(place),
            Err(_) if is_optional => {}
            Err(e) => return Err(e),
        }
    }
    let sums = sums(judged, places.iter().map(|p| p.events))?;
    let native = native(judged, &sums);
    let words = places.into_iter().map(|p| p.words).collect();
    Ok(Profile::new(report, process, sums, native, words))
}

/// How memory went on in time, and the Unix time in nanoseconds at which the process's clock was 0.
///
/// # Errors
/// The recording cannot be read again.
pub(super) fn timeline(judged: &Judged, lines: usize) -> Result<(Timeline, u64), Error> {
    let lines = match Moment::Peak.find(judged) {
        Ok(peak) if lines > 0 => sums(judged, [peak.events])?.lines(lines),
        _ => Vec::new(),
    };
    let mut timeline = Timeline::new(&judged.replay, lines);
    judged.again()?.each(|item, names| timeline.apply(item, names));
    timeline.end();
    Ok((timeline, judged.epoch_ns()))
}

fn sums(judged: &Judged, moments: impl IntoIterator<Item = u64>) -> Result<Sums, Error> {
    let mut sums = Sums::at(moments);
    judged.again()?.each(|item, names| sums.apply(item, names));
    sums.end();
    Ok(sums)
}

/// Native frames of the stacks that have some, looked up. Below a Python frame those that lead from the interpreter to the block.
fn native(judged: &Judged, sums: &Sums) -> BTreeMap<StackId, Vec<Frame>> {
    let (mut symbols, mut all) = (Symbols::default(), BTreeMap::new());
    let names = &judged.read.names;
    for stack in sums.stacks() {
        let mut native = names.native(stack);
        if native.is_empty() || all.contains_key(&stack) {
            continue;
        }
        if !names.stack(stack).is_empty() {
            let python = native.iter().position(is_interpreter).unwrap_or(native.len());
            native = &native[..python];
        }
        all.insert(stack, symbolized(native, judged.share.as_ref(), &mut symbols).frames);
    }
    all
}

fn is_interpreter(f: &NativeFrame) -> bool {
    let name = f.module.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || name.starts_with("libpython")
}
