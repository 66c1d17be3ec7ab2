//! A place in a bucket: what is there, and requests.

use super::address::{Address, Service};
use super::failed::{WRITE, failed};
use super::http;
use crate::error::{Error, status};
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreExt, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// Requests that are under way at once.
pub(super) const AT_ONCE: usize = 8;
/// Bytes of one request: what each of them has in memory.
pub(crate) const PART: u64 = 8 << 20;

/// A place in a store.
#[derive(Clone)]
pub(crate) struct Store {
    pub(super) inner: Arc<dyn ObjectStore>,
    pub(crate) address: Address,
}

/// An object that was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its name below the place.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) size: u64,
    /// Changes with its bytes.
    pub(super) tag: Option<String>,
}

impl Store {
    /// The store at an address, by the settings of the environment that its own tools have (`AWS_…`, `GOOGLE_…`, `AZURE_…`). Nothing is sent yet.
    ///
    /// # Errors
    /// The settings cannot be meant.
    pub(crate) fn new(address: Address) -> Result<Store, Error> {
        Store::that_retries(address, 4)
    }

    /// The same, with this many further tries of a request that fails.
    ///
    /// # Errors
    /// As [`Store::new`].
    pub(crate) fn that_retries(address: Address, max_retries: usize) -> Result<Store, Error> {
        let retry = RetryConfig {
            backoff: BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() },
            max_retries,
            ..RetryConfig::default()
        };
        let bucket = &address.bucket;
        let made: object_store::Result<Arc<dyn ObjectStore>> = match address.service {
            Service::S3 => {
                let mut s3 = AmazonS3Builder::from_env();
                // As Amazon's own tools have it; the library's name for it is another one.
                if let Ok(endpoint) = std::env::var("AWS_ENDPOINT_URL_S3") {
                    s3 = s3.with_endpoint(endpoint);
                }
                let s3 = s3.with_bucket_name(bucket).with_retry(retry).with_allow_http(true);
                s3.with_http_connector(http::Connector).build().map(|s| Arc::new(s) as _)
            }
            Service::Google => {
                let google = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry);
                google.with_http_connector(http::Connector).build().map(|s| Arc::new(s) as _)
            }
            Service::Azure => {
                let azure = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retry);
                azure.with_http_connector(http::Connector).build().map(|s| Arc::new(s) as _)
            }
        };
        match made {
            Ok(inner) => Ok(Store { inner, address }),
            Err(e) => Err(failed("cannot use", &address, &e)),
        }
    }

    /// The objects below a name, however deep.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(crate) fn list(&self, below: &str) -> Result<Vec<Listed>, Error> {
        let (at, key) = self.place(below);
        let own = self.key("");
        let listed = run(self.inner.list(Some(&key)).try_collect::<Vec<_>>())?;
        let listed = listed.map_err(|e| failed("cannot list", &at, &e))?;
        let name = |key: &Key| -> Option<String> {
            let parts: Vec<_> = key.prefix_match(&own)?.map(|part| part.as_ref().to_owned()).collect();
            Some(parts.join("/"))
        };
        let one = |m: object_store::ObjectMeta| {
            Some(Listed { name: name(&m.location)?, size: m.size, tag: m.e_tag })
        };
        Ok(listed.into_iter().filter_map(one).collect())
    }

    /// Makes an object of these bytes, of one part's size at most.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
        let (at, key) = self.place(name);
        run(self.inner.put(&key, bytes.into()))?.map(drop).map_err(|e| failed(WRITE, &at, &e))
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// It is there and stays.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Error> {
        let (at, key) = self.place(name);
        match run(self.inner.delete(&key))? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(failed("cannot remove", &at, &e)),
        }
    }

    /// The address and the key of a name below this place.
    pub(super) fn place(&self, name: &str) -> (Address, Key) {
        let key = self.key(name);
        (Address { prefix: key.as_ref().to_owned(), ..self.address.clone() }, key)
    }

    /// Names are keys as they are: what is escaped in them stays so.
    fn key(&self, name: &str) -> Key {
        let whole = format!("{}/{name}", self.address.prefix);
        Key::parse(whole.trim_matches('/')).unwrap_or_else(|_| Key::from(whole))
    }
}

/// Runs one request to its end, on this thread.
pub(super) fn run<T>(work: impl Future<Output = T>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime =
        runtime.map_err(|e| Error::new(format!("cannot make a request: {e}")).status(status::USAGE))?;
    Ok(runtime.block_on(work))
}
