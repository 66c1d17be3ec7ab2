//! A store for tests, in this process's memory.

use super::address::Address;
use super::bucket::{Store, run};
use object_store::ObjectStoreExt;
use std::sync::Arc;

impl Store {
    /// A store in this process's memory.
    pub(crate) fn in_memory(address: Address) -> Store {
        Store { inner: Arc::new(object_store::memory::InMemory::new()), address }
    }

    /// An object.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let (_, key) = self.place(name);
        run(async { self.inner.get(&key).await.unwrap().bytes().await.unwrap() }).unwrap().to_vec()
    }
}
