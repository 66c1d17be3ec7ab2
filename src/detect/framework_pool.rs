//! Pools of frameworks that divide their memory among arrays themselves, into which nobody sees.

use crate::replay::{Device, Replay};

/// A framework's pool, as the recording's facts tell: whose, and what to set for it to have none.
pub(super) fn pool_of(replay: &Replay) -> Option<(&str, &str)> {
    let pool = replay.meta().get("pool")?;
    Some((pool.get("of")?.as_str()?, pool.get("setting")?.as_str()?))
}

/// Why such a pool keeps a recording from being judged, as a clause.
pub(super) fn blinds(replay: &Replay) -> Option<String> {
    if let Some((of, setting)) = pool_of(replay) {
        return Some(format!(
            "{of} divides its memory among its arrays without CUDA calls, so the arrays cannot be recorded; with {setting} set, it makes a CUDA call for each array"
        ));
    }
    // CuPy tells of the pool's blocks.
    if replay.meta().get("inside_pool").and_then(|told| told.as_bool()) == Some(true) {
        return None;
    }
    let is_cupy = replay.meta().get("framework").and_then(|f| f.as_str()) == Some("CuPy");
    let keeps = |d: &Device| {
        let [came, went] = d.calls_at_mark();
        went.saturating_mul(2) < came
    };
    (is_cupy && replay.devices().any(keeps)).then(|| {
        "CuPy keeps freed memory in its own memory pool, whose blocks are not recorded; to record them, call `import strandline; strandline.start()` after `import cupy`, or call cupy.cuda.set_allocator(None)"
            .to_owned()
    })
}
