//! Frames, stacks and pools, each written once.

use std::io::{self, Write};

use super::field::Field;
use super::out::Out;
use crate::event::{Names, PoolId, StackId};

impl<W: Write> Out<W> {
    /// A stack as the value of an entry: by its number where it has been written.
    pub(super) fn stack_field(&self, id: StackId) -> Field<'static> {
        self.shared.stacks.get(&id).map_or(Field::Stack(id), |&m| Field::Again(m))
    }

    /// The same of a pool.
    pub(super) fn pool_field(&self, pool: PoolId) -> Field<'static> {
        self.shared.pools.get(&pool).map_or(Field::Pool(pool), |&m| Field::Again(m))
    }

    /// A stack as the list of its frames, innermost first; an empty list where none is known.
    pub(super) fn stack(&mut self, names: &Names, id: StackId) -> io::Result<()> {
        if let Some(&m) = self.shared.stacks.get(&id) {
            return self.again(m);
        }
        let memo = self.shared_list()?;
        self.shared.stacks.insert(id, memo);
        for &n in names.stack(id) {
            if let Some(&m) = self.shared.frames.get(&n) {
                self.again(m)?;
                continue;
            }
            let Some(frame) = names.frame(n) else { continue };
            let memo = self.shared_dict()?;
            self.shared.frames.insert(n, memo);
            self.key("name")?.text(plain_name(&frame.function))?;
            self.key("filename")?.text(&frame.file)?;
            self.key("line")?.int(frame.line)?;
            self.close()?;
        }
        self.close()
    }

    /// A pool as a pair.
    pub(super) fn pool(&mut self, pool: PoolId) -> io::Result<()> {
        if let Some(&m) = self.shared.pools.get(&pool) {
            return self.again(m);
        }
        let memo = self.pair(pool.0, pool.1)?;
        self.shared.pools.insert(pool, memo);
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
