//! Which objects Python's collector tracks: those whose headers are in one of its lists.

use crate::platform::memory::{self, is_address};
use crate::platform::pages::Pages;

/// Bytes of an object's collector header, which lies before the object.
pub(super) const HEADER: u64 = 16;

/// Neighbours of a header, where both point back to it: it is in one of the lists.
pub(super) fn neighbours(header: u64) -> Option<[u64; 2]> {
    let [next, previous] = memory::at::<2>(header)?.map(|w| w & !3);
    let [_, back] = memory::at::<2>(next)?;
    let [forth, _] = memory::at::<2>(previous)?;
    is_between(header, back, forth).then_some([next, previous])
}

/// Whether a header's neighbours point back to it: `back` is a word of the next one, `forth` of the previous one, with their flags.
fn is_between(header: u64, back: u64, forth: u64) -> bool {
    back & !3 == header && forth & !3 == header
}

/// Whether an object is tracked at this moment; the address may be that of an object that is gone. With the GIL held, while the
/// collector is not at work: an object that is not tracked any more, and memory that is none, have no neighbours that know them.
pub(crate) fn is_tracked(object: u64) -> bool {
    object > HEADER && neighbours(object - HEADER).is_some()
}

/// The same of many at once, by copies of the pages that they lie in.
pub(crate) fn are_tracked(pages: &Pages, objects: &[u64]) -> Vec<bool> {
    let headers: Vec<u64> = objects.iter().map(|o| o.saturating_sub(HEADER)).collect();
    let near = pages.words::<2>(&headers).into_iter();
    let near: Vec<u64> = near.flat_map(|words| words.unwrap_or_default().map(|w| w & !3)).collect();
    let beside = pages.words::<2>(&near);
    let is_one = |(header, beside): (u64, &[Option<[u64; 2]>])| match *beside {
        [Some([_, back]), Some([forth, _])] => is_address(header) && is_between(header, back, forth),
        _ => false,
    };
    headers.into_iter().zip(beside.chunks(2)).map(is_one).collect()
}
