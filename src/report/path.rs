//! The frames that lead to a block, as trees of stacks are drawn from.

use crate::event::{Frame, Names, SiteId, StackId};
use crate::replay::Replay;

/// Frames of a stack, the outermost first, and the autograd node that allocated. What has no Python frame has those of the backward
/// that allocated it.
pub(super) fn frames_of<'a>(
    replay: &'a Replay,
    names: &'a Names,
    site: SiteId,
    stack: StackId,
) -> (Vec<&'a Frame>, Option<&'a str>) {
    let site = replay.site(site);
    let from = match site {
        Some(s) if names.frames(stack).next().is_none() => s.stack,
        _ => stack,
    };
    let mut frames: Vec<&Frame> = names.frames(from).collect();
    frames.reverse();
    (frames, site.and_then(|s| s.node.as_deref()))
}
