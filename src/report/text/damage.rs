//! What is wrong with the file of a recording, and what of the report depends on it.

use super::super::model::Process;
use super::super::style::{Ink, Style};
use super::super::units::plural;

/// Places that are told.
const MOST: usize = 3;

/// The lines; none of a whole recording.
pub(super) fn lines(p: &Process<'_>, style: Style) -> Vec<String> {
    let Some(what) = what(p) else { return Vec::new() };
    let rest = match p.replay.events() {
        0 => "None of its events can be read".to_owned(),
        n => format!(
            "This report is made from the {} that can be read: memory and steps of the missing part are not counted",
            plural(n, "event")
        ),
    };
    let text = style.wrap("  damage ", &format!("{what}. {rest}"));
    text.into_iter().map(|l| style.paint(Ink::Doubt, &l)).collect()
}

/// What is wrong, in one line: of one place only once where it is.
fn what(p: &Process<'_>) -> Option<String> {
    let (mut parts, mut place) = (Vec::new(), "");
    for told in p.damage.iter().take(MOST).map(|d| d.trim_end_matches('.')) {
        let (at, what) = told.split_once(": ").unwrap_or(("", told));
        parts.push(if !at.is_empty() && at == place { what } else { told });
        place = at;
    }
    let more = p.damage.len().saturating_sub(MOST) as u64;
    let more = (more > 0).then(|| plural(more, "more damaged place"));
    let all: Vec<&str> = parts.into_iter().chain(more.as_deref()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// When a block was allocated of which no event is known.
pub(super) fn early(p: &Process<'_>) -> &'static str {
    if p.damage.is_empty() && p.replay.lost() == 0 {
        "before the recording began"
    } else {
        "before the recording began or where events are missing"
    }
}
