//! The first bytes of a recording: what it is, whose it is, and where its tail lies.
//!
//! ```text
//! 0   magic   11 bytes and a zero, `\x89STRAND\r\n\x1a\n\0`: a transfer as text, or one that cuts the eighth bit, breaks it
//! 12  version u32      16  JSON length u32      20  crc32 of the JSON u32      24  JSON, then zeros to a multiple of 4096
//! …   4096 bytes for maps, since version 2 (see `format::map`)
//! ```

use super::region::Identity;
use serde_json::{Map, Value, json};

/// First bytes of every recording.
pub const MAGIC: [u8; 12] = *b"\x89STRAND\r\n\x1a\n\0";
/// Version of the file format.
pub const VERSION: u32 = 2;
/// Since this version the last block is left for maps: see [`super::map`].
const MAPPED: u32 = 2;
/// The header is a multiple of this.
pub const BLOCK: usize = 4096;
/// Longest JSON.
pub const MAX_JSON: usize = 1 << 20;
const FIXED: usize = 24;

/// What a recording says about itself before anything happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Whose recording it is, and the region that its tail lies in.
    pub who: Identity,
    /// Path of the region's file; `None` where the rings are anonymous memory.
    pub tail: Option<String>,
    /// Nanoseconds since 1970 when the recording began.
    pub unix_ns: u64,
    /// Facts about process and build, as the first Meta: a JSON object (docs/recording.md).
    pub provenance: Value,
}

/// Why the first bytes are not a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// A file without a byte: its process ended, or its disk was full, before the header.
    Empty,
    /// Not a recording.
    NotARecording,
    /// A recording whose line ends or eighth bits were "corrected" in transfer.
    TextMode,
    /// Made by a newer strandline.
    Version(u32),
    /// Shorter than it says.
    Truncated,
    /// The checksum or the JSON is wrong.
    Damaged,
}

impl std::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HeaderError::Empty => f.write_str("the file is empty: nothing was recorded into it"),
            HeaderError::NotARecording => f.write_str("not a strandline recording (wrong first bytes)"),
            HeaderError::TextMode => f.write_str(
                "a strandline recording that was transferred as text: copy it again in binary mode",
            ),
            HeaderError::Version(v) => write!(
                f,
                "recording format {v}; this strandline reads up to {VERSION}: use the version that recorded it, or a newer one"
            ),
            HeaderError::Truncated => f.write_str("the file is incomplete (it ends inside its header)"),
            HeaderError::Damaged => f.write_str("the header's checksum does not match its bytes"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl Header {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut json = self.json().to_string().into_bytes();
        if json.len() > MAX_JSON {
            json = Header { provenance: json!({"provenance": "too long"}), ..self.clone() }
                .json()
                .to_string()
                .into();
        }
        let mut out = framed(&json);
        out.resize(out.len().next_multiple_of(BLOCK) + BLOCK, 0);
        out
    }

    /// The header in `bytes` as a copy has it that is kept elsewhere: without a tail, without maps, with one fact more where there is room
    /// for it, and as long as it was.
    ///
    /// # Errors
    /// [`HeaderError`] where it is none.
    pub fn for_copy(bytes: &[u8], fact: &str, value: Value) -> Result<Vec<u8>, HeaderError> {
        let mut header = Header { tail: None, ..Header::decode(bytes)? };
        let was = word(bytes, 16).ok_or(HeaderError::Truncated)? as usize;
        let room = bytes.len().saturating_sub(FIXED + BLOCK);
        let plain = header.json().to_string();
        if let Some(facts) = header.provenance.as_object_mut() {
            facts.insert(fact.to_owned(), value);
        }
        let mut json = Some(header.json().to_string()).filter(|json| json.len() <= room).unwrap_or(plain);
        // Its length says where the pages begin.
        json.extend(std::iter::repeat_n(' ', was.saturating_sub(json.len())));
        let mut out = framed(json.as_bytes());
        out.resize(bytes.len(), 0);
        Ok(out)
    }

    fn json(&self) -> Value {
        json!({
            "pid": self.who.pid, "start": self.who.start,
            "region": format!("{:016x}{:016x}", self.who.id[1], self.who.id[0]),
            "tail": self.tail, "unix_ns": self.unix_ns, "provenance": self.provenance,
        })
    }

    /// Bytes of the header that begins with `first`, which must hold at least [`BLOCK`] bytes (or the whole file).
    ///
    /// # Errors
    /// [`HeaderError`] where it is none.
    pub fn length(first: &[u8]) -> Result<usize, HeaderError> {
        if first.is_empty() {
            return Err(HeaderError::Empty);
        }
        let magic = first.get(..MAGIC.len()).unwrap_or(first);
        if magic != MAGIC.get(..magic.len()).unwrap_or_default() {
            let mangled =
                [&b"\x89STRAND\n\x1a\n"[..], b"\x09STRAND", b"\x89STRAND\r\r\n", b"\xef\xbf\xbdSTRAND"];
            let is = mangled.iter().any(|m| first.starts_with(m));
            return Err(if is { HeaderError::TextMode } else { HeaderError::NotARecording });
        }
        let version = word(first, 12).ok_or(HeaderError::Truncated)?;
        if version == 0 || version > VERSION {
            return Err(HeaderError::Version(version));
        }
        let json = word(first, 16).ok_or(HeaderError::Truncated)? as usize;
        if json > MAX_JSON {
            return Err(HeaderError::Damaged);
        }
        let maps = if version >= MAPPED { BLOCK } else { 0 };
        Ok((FIXED + json).next_multiple_of(BLOCK) + maps)
    }

    /// Whether the recording that begins with `first` may have dropped bytes, and says so in its header's last block.
    pub fn is_mapped(first: &[u8]) -> bool {
        word(first, 12).is_some_and(|version| version >= MAPPED)
    }

    /// Reads a header; `bytes` hold [`Header::length`] bytes.
    ///
    /// # Errors
    /// [`HeaderError`] where it is none.
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderError> {
        Header::length(bytes)?;
        let (len, crc) = (word(bytes, 16), word(bytes, 20));
        let (len, crc) = len.zip(crc).ok_or(HeaderError::Truncated)?;
        let json = bytes.get(FIXED..FIXED + len as usize).ok_or(HeaderError::Truncated)?;
        if crc32fast::hash(json) != crc {
            return Err(HeaderError::Damaged);
        }
        let v: Map<String, Value> = serde_json::from_slice(json).map_err(|_| HeaderError::Damaged)?;
        let number = |k: &str| v.get(k).and_then(Value::as_u64).unwrap_or(0);
        let text = |k: &str| v.get(k).and_then(Value::as_str);
        let region = text("region").and_then(|s| u128::from_str_radix(s, 16).ok()).unwrap_or(0);
        Ok(Header {
            who: Identity {
                pid: u32::try_from(number("pid")).unwrap_or(0),
                start: number("start"),
                id: [region as u64, (region >> 64) as u64],
            },
            tail: text("tail").map(str::to_owned),
            unix_ns: number("unix_ns"),
            provenance: v.get("provenance").cloned().unwrap_or(Value::Null),
        })
    }
}

/// The JSON, with what stands before it.
fn framed(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(json.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(json).to_le_bytes());
    out.extend_from_slice(json);
    out
}

fn word(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            who: Identity { pid: 4711, start: 99, id: [u64::MAX, 1] },
            tail: Some("/dev/shm/strandline-4711".into()),
            unix_ns: 1_700_000_000_000_000_000,
            provenance: json!({"host": "h", "rank": 0}),
        }
    }

    #[test]
    fn a_header_comes_back() {
        let b = sample().encode();
        assert_eq!((b.len(), Header::length(&b), Header::is_mapped(&b)), (2 * BLOCK, Ok(2 * BLOCK), true));
        assert_eq!(Header::decode(&b), Ok(sample()));
    }

    #[test]
    fn a_copy_has_a_header_as_long_that_names_no_tail() {
        let long = "x".repeat(BLOCK - 170);
        for (host, tail) in [("h", Some("/dev/shm/strandline-4711")), ("h", None), (long.as_str(), None)] {
            let own = Header { tail: tail.map(str::to_owned), provenance: json!({"host": host}), ..sample() };
            let b = own.encode();
            let copy = Header::for_copy(&b, "every", json!("x".repeat(60))).unwrap();
            assert_eq!((copy.len(), Header::length(&copy)), (b.len(), Ok(b.len())), "{tail:?}");
            let read = Header::decode(&copy).unwrap();
            assert_eq!((read.who, read.tail, read.unix_ns), (own.who, None, own.unix_ns));
            assert_eq!(read.provenance["host"], host);
            assert_eq!(read.provenance.get("every").is_some(), host == "h", "only where there is room");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let b = sample().encode();
        assert_eq!(Header::decode(b"PK\x03\x04"), Err(HeaderError::NotARecording));
        assert_eq!(Header::decode(b""), Err(HeaderError::Empty));
        assert_eq!(Header::decode(&b[..9]), Err(HeaderError::Truncated));
        assert_eq!(Header::decode(&b[..100]), Err(HeaderError::Truncated));
        let unix: Vec<u8> = String::from_utf8_lossy(&b).replace("\r\n", "\n").into_bytes();
        assert_eq!(Header::decode(&unix), Err(HeaderError::TextMode));
        let mut bad = b.clone();
        bad[40] ^= 1;
        assert_eq!(Header::decode(&bad), Err(HeaderError::Damaged));
        bad[12] = 3;
        assert_eq!(Header::decode(&bad), Err(HeaderError::Version(3)));
        let mut old = b;
        old[12] = 1;
        assert_eq!((Header::length(&old), Header::is_mapped(&old)), (Ok(BLOCK), false));
        assert_eq!(Header::decode(&old), Ok(sample()));
    }
}
