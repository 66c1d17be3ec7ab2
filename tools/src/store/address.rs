//! The address of something in an object store: `s3://bucket/prefix`.

use crate::error::Error;
use crate::say;
use std::fmt;
use std::path::Path;
use strandline::event::{named, printable};

named! {
    /// Whose store it is, and what its addresses begin with.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Service {
        /// Amazon's S3, and what speaks its language.
        S3 = "s3://",
        /// Google Cloud Storage.
        Google = "gs://",
        /// Azure's blobs.
        Azure = "az://",
    }
}

/// A place in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) service: Service,
    pub(super) bucket: String,
    /// Without a slash at either end; empty for the bucket itself.
    pub(super) prefix: String,
}

impl Address {
    /// What a person has given as a path, if it is such an address.
    ///
    /// # Errors
    /// It is one, and names no bucket or is no text.
    pub(crate) fn of(path: &Path) -> Result<Option<Address>, Error> {
        let text = path.to_string_lossy();
        let Some(service) = Service::ALL.into_iter().find(|s| text.starts_with(s.name())) else {
            return match text.split_once("://") {
                Some((scheme, _)) if is_scheme(scheme) && !path.exists() => {
                    let what = format!("{}: no store of this kind can be used", say::path(path));
                    Err(Error::usage(
                        what,
                        "give s3://bucket/folder, gs://bucket/folder or az://container/folder",
                    ))
                }
                _ => Ok(None),
            };
        };
        let scheme = service.name();
        let (bucket, prefix) = text[scheme.len()..].split_once('/').unwrap_or((&text[scheme.len()..], ""));
        let prefix = prefix.trim_matches('/');
        if bucket.is_empty() || prefix.split('/').any(|part| part.is_empty() && !prefix.is_empty()) {
            let what = format!("{}: this is not a path in a bucket", say::path(path));
            let hint = format!("write it like {scheme}bucket/folder");
            return Err(Error::usage(what, hint));
        }
        Ok(Some(Address { service, bucket: bucket.into(), prefix: prefix.into() }))
    }

    /// What must be one, as an option has it.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn parse(text: &str) -> Result<Address, String> {
        match Address::of(Path::new(text)) {
            Ok(Some(address)) => Ok(address),
            Ok(None) => Err("not an address of an object store; write for example s3://bucket/run-17".into()),
            Err(e) => Err(e.parts().0.to_owned()),
        }
    }

    /// The last part of it: what it is called.
    pub(super) fn name(&self) -> &str {
        let last = self.prefix.rsplit('/').next().filter(|name| !name.is_empty());
        last.unwrap_or(&self.bucket)
    }
}

fn is_scheme(text: &str) -> bool {
    text.len() > 1 && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.service.name();
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "{scheme}{}{slash}{}", printable(&self.bucket), printable(&self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::status;

    #[test]
    fn an_address_has_a_bucket_and_a_prefix() {
        let of = |text: &str| Address::of(Path::new(text)).map(|a| a.map(|a| (a.to_string(), a.prefix)));
        let some = |text: &str, prefix: &str| Some((text.to_owned(), prefix.to_owned()));
        assert_eq!(of("s3://b/x/y/").unwrap(), some("s3://b/x/y", "x/y"));
        assert_eq!(of("gs://b").unwrap(), some("gs://b", ""));
        assert_eq!(of("az://box/a").unwrap(), some("az://box/a", "a"));
        assert_eq!(of("/tmp/s3").unwrap(), None);
        assert_eq!(of("runs/a://b").unwrap(), None);
        assert_eq!(Address::parse("s3://b/x").map(|a| a.to_string()), Ok("s3://b/x".into()));
        assert!(Address::parse("/tmp/s3").is_err() && Address::parse("ftp://b/x").is_err());
        for wrong in ["s3://", "s3:///x", "s3://b/x//y", "hdfs://b/x", "https://b.s3.amazonaws.com/x"] {
            assert_eq!(of(wrong).unwrap_err().exit_status(), status::USAGE, "{wrong}");
        }
    }
}
