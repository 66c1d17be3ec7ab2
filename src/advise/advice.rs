//! Of all that could be changed, what would lower the peak.

use super::kinds;
use super::look::{KindInfo, Look};
use crate::event::{Bytes, DeviceId, SiteId, total};

/// Less than this part of the peak is not worth a change.
const LEAST_PART: u64 = 50;
/// Neither are so few bytes.
const LEAST: u64 = 1 << 20;

/// One change that would lower the peak of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Which device.
    pub device: DeviceId,
    /// What is said of its kind.
    pub info: &'static KindInfo,
    /// The line that it is about.
    pub site: SiteId,
    /// Bytes at the peak that would not be there.
    pub bytes: Bytes,
    /// In so many blocks.
    pub blocks: usize,
    /// The most that was allocated.
    pub peak: Bytes,
    /// The most that would have been allocated, by the same events without those blocks.
    pub without: Bytes,
}

/// What would lower the peak of a device, the most first.
pub fn advise(look: &Look<'_>) -> Vec<Advice> {
    let (peak, at) = look.timeline.peak();
    let mut all = Vec::new();
    for kind in kinds::ALL {
        for candidate in (kind.find)(look) {
            let without = look.timeline.peak_without(&candidate.cuts);
            let saved = peak.saturating_sub(without);
            if saved < LEAST.max(peak / LEAST_PART) {
                continue;
            }
            let then = || candidate.cuts.iter().filter(|c| c.from <= at && at < c.to);
            all.push(Advice {
                device: look.timeline.device,
                info: &kind.info,
                site: candidate.site,
                bytes: Bytes(total(then().map(|c| c.bytes))),
                blocks: then().count(),
                peak: Bytes(peak),
                without: Bytes(without),
            });
        }
    }
    all.sort_by_key(|a| a.without);
    all
}
