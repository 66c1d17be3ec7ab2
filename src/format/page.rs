//! A page: a frame around some bytes, which says what they are, how many, and whether they are whole.
//!
//! ```text
//! 0   magic u32        finds the next page after damage
//! 4   tag u16          what the payload is; unknown tags are skipped by their length
//! 6   flags u16        bit 0: the payload is zstd
//! 8   length u64       bytes from the end of this frame to the next page
//! 16  raw u32          bytes of the payload when decompressed
//! 20  sequence u32     counts pages
//! 24  crc32 u32        of the payload as it lies on disk
//! 28  crc32 u32        of the 28 bytes before
//! ```
//!
//! A Skip page's payload is shorter than its length: [`Frame::payload`] bytes (its `raw`), then a range that was dropped.

use super::fields::numbered;

/// Bytes of a frame.
pub const FRAME: usize = 32;
/// First four bytes of every page.
pub const MAGIC: [u8; 4] = *b"\xf5SLP";
/// Largest payload, on disk and decompressed. Writers stay far below.
pub const MAX_PAYLOAD: u32 = 64 << 20;
/// zstd level: the job pays for it.
const LEVEL: i32 = 1;
/// Smaller payloads are not worth compressing.
const WORTH_IT: usize = 128;
const ZSTD: u16 = 1;

numbered! {
    /// What a page holds.
    enum Tag: u16, from_u16;
    /// A JSON object of facts.
    Meta = 1,
    /// Definitions: see `format::definition`.
    Definitions = 2,
    /// Records of one thread: see `format::events`.
    Events = 3,
    /// Everything published before a moment is in the pages so far: see `format::marks`.
    Sweep = 4,
    /// State: see `format::checkpoint`.
    Checkpoint = 5,
    /// A range that was dropped: see `format::marks`.
    Skip = 6,
    /// The recording is complete.
    End = 7,
    /// A chunk begins, which is readable on its own: see `format::marks`.
    Chunk = 8,
}

/// A frame, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// [`Tag`] as a number.
    pub tag: u16,
    /// The payload is compressed.
    pub zstd: bool,
    /// Bytes to the next page.
    pub length: u64,
    /// Bytes of the payload, decompressed.
    pub raw: u32,
    /// Which page of the recording this is.
    pub sequence: u32,
    /// Checksum of the payload on disk.
    pub crc: u32,
}

impl Frame {
    /// The frame at the front of `b`, if it is one and whole.
    pub fn decode(b: &[u8]) -> Option<Frame> {
        let b = b.get(..FRAME)?;
        let word = |at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
        if b.get(..4)? != MAGIC || crc32fast::hash(b.get(..28)?) != word(28)? {
            return None;
        }
        let kind = word(4)?;
        Some(Frame {
            tag: kind as u16,
            zstd: kind >> 16 & u32::from(ZSTD) != 0,
            length: u64::from(word(8)?) | u64::from(word(12)?) << 32,
            raw: word(16)?,
            sequence: word(20)?,
            crc: word(24)?,
        })
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; FRAME] {
        let mut b = [0; FRAME];
        let kind = u32::from(self.tag) | u32::from(self.zstd) << 16;
        let words = [kind, self.length as u32, (self.length >> 32) as u32, self.raw, self.sequence, self.crc];
        let (magic, rest) = b.split_at_mut(4);
        magic.copy_from_slice(&MAGIC);
        for (to, w) in rest.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&w.to_le_bytes());
        }
        let (covered, crc) = b.split_at_mut(28);
        crc.copy_from_slice(&crc32fast::hash(covered).to_le_bytes());
        b
    }

    /// Bytes of the payload on disk.
    pub fn payload(&self) -> u64 {
        if self.tag == Tag::Skip as u16 { u64::from(self.raw) } else { self.length }
    }
}

/// Frames payloads; keeps the compressor's memory.
pub struct Framer {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    sequence: u32,
}

impl Default for Framer {
    fn default() -> Self {
        Framer { zstd: zstd::bulk::Compressor::new(LEVEL).ok(), sequence: 0 }
    }
}

impl Framer {
    /// Appends a page with this payload to `out`, compressed where that helps. A payload beyond [`MAX_PAYLOAD`] (a
    /// checkpoint of millions of blocks) makes no page.
    pub fn page(&mut self, out: &mut Vec<u8>, tag: Tag, payload: &[u8]) {
        if payload.len() > MAX_PAYLOAD as usize {
            return;
        }
        let squeezed = if payload.len() < WORTH_IT {
            None
        } else {
            self.zstd.as_mut().and_then(|z| z.compress(payload).ok()).filter(|c| c.len() < payload.len())
        };
        let body = squeezed.as_deref().unwrap_or(payload);
        let frame = Frame {
            tag: tag as u16,
            zstd: squeezed.is_some(),
            length: body.len() as u64,
            raw: payload.len() as u32,
            sequence: self.next(),
            crc: crc32fast::hash(body),
        };
        out.extend_from_slice(&frame.encode());
        out.extend_from_slice(body);
    }

    /// A Skip page's frame and payload, for a range of `length` bytes after the frame.
    pub fn skip(&mut self, length: u64, payload: &[u8]) -> Vec<u8> {
        let frame = Frame {
            tag: Tag::Skip as u16,
            zstd: false,
            length: length.max(payload.len() as u64),
            raw: payload.len() as u32,
            sequence: self.next(),
            crc: crc32fast::hash(payload),
        };
        [&frame.encode()[..], payload].concat()
    }

    fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }
}

/// Opens payloads; keeps the decompressor's memory.
pub struct Opener {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    raw: Vec<u8>,
}

impl Default for Opener {
    fn default() -> Self {
        Opener { zstd: zstd::bulk::Decompressor::new().ok(), raw: Vec::new() }
    }
}

impl Opener {
    /// The payload of a frame, checked and decompressed. What is wrong with it, else.
    ///
    /// # Errors
    /// A text for people: the checksum, the compression or the length is not right.
    pub fn open<'a>(&'a mut self, frame: &Frame, on_disk: &'a [u8]) -> Result<&'a [u8], &'static str> {
        if crc32fast::hash(on_disk) != frame.crc {
            return Err("checksum does not match");
        }
        if !frame.zstd {
            return if on_disk.len() == frame.raw as usize {
                Ok(on_disk)
            } else {
                Err("length does not match")
            };
        }
        if frame.raw > MAX_PAYLOAD {
            return Err("too large to be true");
        }
        self.raw.clear();
        self.raw.reserve(frame.raw as usize);
        let zstd = self.zstd.as_mut().ok_or("no memory for decompression")?;
        match zstd.decompress_to_buffer(on_disk, &mut self.raw) {
            Ok(n) if n == frame.raw as usize => Ok(&self.raw),
            Ok(_) => Err("decompressed length does not match"),
            Err(_) => Err("does not decompress"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_and_a_flipped_bit_is_seen() {
        let (mut framer, mut opener) = (Framer::default(), Opener::default());
        for payload in [vec![], b"short".to_vec(), vec![7; 5000], (0..2000).map(|n| (n * n) as u8).collect()]
        {
            let mut b = Vec::new();
            framer.page(&mut b, Tag::Events, &payload);
            let f = Frame::decode(&b).unwrap();
            assert_eq!((f.tag, f.length as usize), (Tag::Events as u16, b.len() - FRAME));
            assert_eq!(opener.open(&f, &b[FRAME..]), Ok(&payload[..]));
            for bit in 0..b.len() * 8 {
                let mut bad = b.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let seen = Frame::decode(&bad).is_none_or(|f| opener.open(&f, &bad[FRAME..]).is_err());
                assert!(seen, "bit {bit}");
            }
        }
        assert_eq!(framer.sequence, 4);
    }
}
