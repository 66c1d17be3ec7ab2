//! Blocks of the stream that trains (or of a private pool) that stay live, more of them with every mark.

use crate::detect::amounts::{many, plural, size, thousands};
use crate::detect::check::{Check, Entry, Grown};
use crate::detect::explain::{lines, oldest, remade, these_lines};
use crate::detect::growth::Rule;
use crate::detect::kind::{Kind, KindInfo};
use crate::replay::{Cohort, Replay};

pub(super) const DETECTOR: Entry = Entry { kind: KIND, check: Check::Growth { claims, explain } };

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some(
        "find where these tensors are stored: remove old entries, or limit their number; of a tensor with one element, keep only its number, x.item()",
    ),
    remedy_with_graph: Some(
        "store a number (.item()) or a tensor without its graph (.detach()), not the loss or the output itself",
    ),
    remedy_without_torch: Some(
        "free each array when it is no longer needed, limit how many are kept, or keep numbers instead of arrays: float(x)",
    ),
    // What keeps tensors without a graph is not helped by detaching them.
    remedy_without_graph: Some(
        "release tensors that are no longer needed: clear their container at regular intervals, or limit its size",
    ),
    is_leak: true,
    has_holder: true,
    may_be_buffer: true,
    ..KindInfo::named("step-growth", "memory grows every {grain}")
});

/// Whether growth of a cohort is of this kind: all that no kind before it claims.
fn claims(_: &Replay, _: &Cohort) -> bool {
    true
}

/// Why, in one sentence.
fn explain(g: &Grown<'_>) -> String {
    let f = g.finding;
    let noun = f.grain.noun();
    let of = lines(g);
    let blocks = format!("{} ({})", plural(f.blocks_now, "block"), size(f.bytes_now));
    let what = format!("{blocks} from {of}");
    match g.members.first().map(|m| m.growth.rule) {
        Some(Rule::Backlog { life }) => format!(
            "{blocks} more from {of} are live now than when the growth began, because more are allocated than freed; freed blocks lived for up to {}",
            plural(life.into(), noun)
        ),
        Some(Rule::Kept { marks, life, .. }) => {
            let (nouns, marks) = (many(noun), f.births().map_or(marks, |births| births as u32));
            let these = these_lines(g);
            let lives = g.members.iter().filter_map(|m| match m.growth.rule {
                Rule::Kept { life, .. } => Some(life),
                _ => None,
            });
            let cohorts = g.members.iter().filter_map(|m| g.replay.cohorts().get(m.id.0 as usize));
            let freed: u64 = cohorts.map(|c| c.at_mark.1).sum();
            let longest = match lives.max().unwrap_or(life) {
                _ if freed == 0 => format!("no block from {these} was freed"),
                0 => format!("blocks from {these} that were freed lived at most 2 {nouns}"),
                life => {
                    format!("no freed block from {these} was older than {}", plural(life.into(), noun))
                }
            };
            format!(
                "{what}, allocated in {} of {}, were still live at the end of {noun} {}, the oldest for {}; {longest}",
                // A block that was freed since was one of the last of its step.
                thousands(u64::from(marks).min(f.blocks_now)),
                plural(g.mark.into(), noun),
                thousands(g.mark.into()),
                oldest(f, g.mark)
            )
        }
        Some(Rule::Remade { rises, .. }) => remade(g, rises),
        None => what,
    }
}
