//! Private pools that become more: of captured graphs, or `torch.cuda.MemPool`s. No block lives on, but nothing else can use their memory.

use crate::detect::amounts::{plural, size, thousands};
use crate::detect::certainty::Evidence;
use crate::detect::check::{Check, Context, Entry, When};
use crate::detect::finding::{Finding, GrainName};
use crate::detect::forecast::headroom;
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{Note, Sites};
use crate::detect::steady;
use crate::event::{SiteId, total};
use crate::replay::{Device, Grain, PrivatePool, Replay};
use rustc_hash::FxHashMap;

pub(super) const DETECTOR: Entry =
    Entry { kind: KIND, check: Check::Look { when: When::DueAndAtTheEnd, all } };

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some(
        "reuse pools: make a torch.cuda.MemPool once; capture a CUDA graph once for each shape, and all of them into one pool \
         (torch.cuda.graph(g, pool=handle), handle = torch.cuda.graph_pool_handle())",
    ),
    ..KindInfo::named("pool-growth", "more private memory pools every {grain}")
});

/// Different steps in which a line's pools came that make it growth.
const STEPS: usize = 8;

/// Pools of one line that come one after the other, until now.
struct Growing<'a> {
    site: SiteId,
    pools: Vec<&'a PrivatePool>,
    /// Different steps in which they came, by time.
    steps: Vec<u32>,
}

fn all(cx: &Context<'_>) -> Vec<Finding> {
    cx.replay.devices().flat_map(|d| growing(cx.replay, d).into_iter().map(|g| g.finding(cx, d))).collect()
}

/// The largest first.
fn growing<'a>(replay: &Replay, d: &'a Device) -> Vec<Growing<'a>> {
    let mut by_site: FxHashMap<u32, Vec<&PrivatePool>> = FxHashMap::default();
    for pool in d.private_pools().iter().filter(|p| p.first_step.is_some()) {
        by_site.entry(pool.largest.1.0).or_default().push(pool);
    }
    let of = |(site, pools): (u32, Vec<&'a PrivatePool>)| {
        let mut steps: Vec<u32> = pools.iter().filter_map(|p| p.first_step).collect();
        steps.sort_unstable();
        steps.dedup();
        is_steady(&steps, replay.steps()).then_some(Growing { site: SiteId(site), pools, steps })
    };
    let mut all: Vec<Growing<'_>> = by_site.into_iter().filter_map(of).collect();
    all.sort_by_key(|g| (std::cmp::Reverse(g.bytes()), g.site.0));
    all
}

/// Whether what came in these steps goes on to come. A graph for each shape that is seen comes ever more rarely.
fn is_steady(steps: &[u32], now: u32) -> bool {
    let [first, .., last] = *steps else { return false };
    let pace = f64::from(last - first) / (steps.len() - 1) as f64;
    let middle = first + now.saturating_sub(first) / 2;
    let late = steps.iter().filter(|s| **s > middle).count();
    steps.len() >= STEPS
        && late * 5 >= steps.len() * 2
        && f64::from(now.saturating_sub(last)) <= 2.0 * pace + 1.0
}

impl Growing<'_> {
    fn bytes(&self) -> u64 {
        total(self.pools.iter().map(|p| p.bytes.0))
    }

    fn finding(&self, cx: &Context<'_>, d: &Device) -> Finding {
        let (replay, bytes, n) = (cx.replay, self.bytes(), self.pools.len() as u64);
        let (first, last) = (self.steps[0], self.steps[self.steps.len() - 1]);
        let of_first = total(self.pools.iter().filter(|p| p.first_step == Some(first)).map(|p| p.bytes.0));
        let rate = (bytes - of_first.min(bytes)) as f64 / f64::from((last - first).max(1));
        let mut sites = Sites::default();
        sites.add(self.site, bytes, n);
        let noun = GrainName::of(replay, Grain::Step).noun();
        let graphs = self.pools.iter().any(|p| p.id.0 != 0);
        let explain = format!(
            "{} were created in {} different {noun}s since {noun} {} and all still exist, {} in total; memory in a pool cannot be used outside of that pool",
            plural(n, "private pool"),
            thousands(self.steps.len() as u64),
            thousands(first.into()),
            size(bytes),
        ) + if graphs {
            ". A captured CUDA graph keeps its pool; PyTorch returns the memory of deleted graphs to the driver when memory runs short"
        } else {
            ""
        };
        let note = cx.finding(Note { first_step: first, sites, rate, explain, ..Note::new(KIND, d) });
        // What private pools have and no block uses is out of reach of all others.
        let private = total(d.private_pools().iter().map(|p| p.bytes.0));
        let unused = d.rows.last().map_or(0, |r| r.reserved.0.saturating_sub(r.allocated.0));
        let room = headroom(replay, d.id, 0).without(private.min(unused));
        let evidence =
            Evidence::new("different steps in which private pools were created", self.steps.len() as f64);
        steady::growing(replay, note, &room, evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_ever_more_rarely_or_no_more_is_not_steady() {
        let every = |n: u32| (1..=20).map(|i| i * n).collect::<Vec<u32>>();
        assert!(is_steady(&every(1), 20) && is_steady(&every(10), 205));
        assert!(is_steady(&every(1)[..8], 8) && !is_steady(&every(1)[..7], 7));
        assert!(!is_steady(&every(1), 24) && !is_steady(&every(10), 240), "the next one is long due");
        assert!(!is_steady(&[1, 2, 3, 5, 8, 12, 20, 33, 55], 60), "a shape is new ever more rarely");
        assert!(!is_steady(&[], 9) && !is_steady(&[3], 9));
    }
}
