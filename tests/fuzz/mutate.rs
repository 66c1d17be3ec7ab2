//! Mutations by chance that is the same every time.

/// Makes one input.
pub(crate) struct Mutator {
    state: u64,
}

/// Numbers at which something changes.
const EDGES: [u64; 14] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

impl Mutator {
    /// The one of this target and round.
    pub(crate) fn new(name: &str, round: u64) -> Mutator {
        let name = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let mut mutator = Mutator { state: (name ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1 };
        for _ in 0..4 {
            let _ = mutator.below(2);
        }
        mutator
    }

    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((self.state >> 11) % n.max(1) as u64) as usize
    }

    /// One of the seeds, with a few things done to it.
    pub(crate) fn mutated(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        let times = 1 + self.below(4) * self.below(4);
        for _ in 0..times {
            self.mutate(&mut bytes, seeds);
        }
        bytes
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        if bytes.is_empty() {
            bytes.push(self.below(256) as u8);
        }
        let at = self.below(bytes.len());
        let most = (bytes.len() - at).min(1 + [4, 64, 4096][self.below(3)]);
        let n = 1 + self.below(most);
        match self.below(12) {
            0 | 1 => bytes[at] ^= 1 << self.below(8),
            2 => bytes[at] = self.below(256) as u8,
            3 => bytes[at] = EDGES[self.below(5)] as u8,
            4 | 5 => {
                let width = [2, 4, 8][self.below(3)];
                let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
                let room = width.min(bytes.len() - at);
                bytes[at..at + room].copy_from_slice(&edge[..room]);
            }
            // A number in pieces of seven bits that does not end where it did.
            6 => bytes[at] |= 0x80,
            7 => drop(bytes.drain(at..at + n)),
            8 => {
                let piece = bytes[at..at + n].to_vec();
                let to = self.below(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
            9 => {
                let piece = bytes[at..at + n].repeat(1 + self.below(16));
                drop(bytes.splice(at..at, piece));
            }
            10 => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len());
                let end = from + (other.len() - from).min(n);
                drop(bytes.splice(at..at + n, other[from..end].iter().copied()));
            }
            _ => bytes.truncate(at),
        }
    }
}
