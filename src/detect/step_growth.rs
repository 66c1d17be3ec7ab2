//! Blocks of the stream that trains (or of a private pool) that stay live, more of them with every mark.

use super::case::Member;
use super::explain::{lines, number, oldest, plural, size};
use super::finding::Finding;
use super::growth::Rule;

/// Why, in one sentence.
pub(super) fn explain(f: &Finding, members: &[Member], mark: u32) -> String {
    let (noun, lines) = (f.grain.noun(), lines(f.sites.len()));
    let what = format!("{} ({}) of {lines}", plural(f.blocks_now, "block"), size(f.bytes_now));
    match members.first().map(|m| m.growth.rule) {
        Some(Rule::Backlog { life }) => format!(
            "{what} are waiting more than when this began: each is freed in the end, after up to {}, and more come than go",
            plural(life.into(), noun)
        ),
        Some(Rule::Kept { marks, life, .. }) => {
            let longest = match life {
                0 => format!("nothing that grew older than two {noun}s was freed there before"),
                life => format!("the longest life that had ended there was {}", plural(life.into(), noun)),
            };
            format!(
                "{what} from {} different {noun}s are still live, the oldest for {}; {longest}",
                number(marks.into()),
                oldest(f, mark)
            )
        }
        None => what,
    }
}
