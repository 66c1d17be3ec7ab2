//! Frames, stacks and pools, each written once.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::out::Out;
use super::pickle::Memo;
use crate::event::{Names, PoolId, StackId};

/// What was written before and can be named again.
#[derive(Default)]
pub(super) struct Shared {
    frames: FxHashMap<u32, Memo>,
    stacks: FxHashMap<StackId, Memo>,
    pools: FxHashMap<PoolId, Memo>,
}

impl Shared {
    /// A stack as the list of its frames, innermost first; an empty list where none is known.
    pub(super) fn stack<W: Write>(&mut self, out: &mut Out<W>, names: &Names, id: StackId) -> io::Result<()> {
        if let Some(&m) = self.stacks.get(&id) {
            return out.again(m);
        }
        let memo = out.shared_list()?;
        self.stacks.insert(id, memo);
        for &n in names.stack(id) {
            if let Some(&m) = self.frames.get(&n) {
                out.again(m)?;
                continue;
            }
            let Some(frame) = names.frame(n) else { continue };
            let memo = out.shared_dict()?;
            self.frames.insert(n, memo);
            out.key("name")?.text(plain_name(&frame.function))?;
            out.key("filename")?.text(&frame.file)?;
            out.key("line")?.int(frame.line)?;
            out.close()?;
        }
        out.close()
    }

    /// A pool as a pair.
    pub(super) fn pool<W: Write>(&mut self, out: &mut Out<W>, pool: PoolId) -> io::Result<()> {
        if let Some(&m) = self.pools.get(&pool) {
            return out.again(m);
        }
        let memo = out.pair(pool.0, pool.1)?;
        self.pools.insert(pool, memo);
        Ok(())
    }
}

/// The name as PyTorch writes it: `co_name`, which is the last part of the qualified name.
fn plain_name(qualified: &str) -> &str {
    qualified.rsplit('.').next().unwrap_or(qualified)
}

#[cfg(test)]
mod tests {
    use super::plain_name;

    #[test]
    fn names_are_those_of_code_objects() {
        assert_eq!(plain_name("OffloadActivations.unpack"), "unpack");
        assert_eq!(plain_name("main.<locals>.<lambda>"), "<lambda>");
        assert_eq!(plain_name("<module>"), "<module>");
    }
}
