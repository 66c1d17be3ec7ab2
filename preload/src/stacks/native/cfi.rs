//! The rule by which the caller's registers are found from a place in the code: read from `.eh_frame`, as the compiler wrote
//! it, in the memory of the job.
//!
//! Cold, but called from hooks: no heap, no lock, no call; bounded work. What is not understood has no rule, and the stack
//! ends there.

use super::modules::LoadedTables;
use crate::recorder::stack_memory::{Base, Rule, Saved};

/// Nothing is known of the caller.
pub(super) const UNKNOWN: Rule = Rule { base: Base::Unknown, offset: 0, rbp: Saved::Same };

const RBP: u64 = 6;
const RSP: u64 = 7;
const RETURN: u64 = 16;
/// Instructions of a call frame program that are followed; no compiler writes so many before a place.
const MOST: usize = 4096;

/// Reads the job's memory: a pointer that moves forward, and an end.
#[derive(Clone, Copy)]
struct Bytes {
    at: usize,
    end: usize,
    /// Nothing below is read.
    start: usize,
}

impl Bytes {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.at < self.start || self.end.checked_sub(self.at)? < N {
            return None;
        }
        // SAFETY: `start..end` is of a library that was loaded when `rule` began, and whose code is on this thread's stack
        // (`LoadedTables`).
        let bytes = unsafe { (self.at as *const [u8; N]).read_unaligned() };
        self.at += N;
        Some(bytes)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[b]| b)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn uleb(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..63).step_by(7) {
            let b = self.u8()?;
            n |= u64::from(b & 127) << shift;
            if b & 128 == 0 {
                return Some(n);
            }
        }
        None
    }
    fn sleb(&mut self) -> Option<i64> {
        let mut n = 0i64;
        for shift in (0..63).step_by(7) {
            let b = self.u8()?;
            n |= i64::from(b & 127) << shift;
            if b & 128 == 0 {
                let unused = 64 - (shift + 7);
                return Some(n << unused >> unused);
            }
        }
        None
    }
    fn skip(&mut self, n: u64) -> Option<()> {
        let to = self.at.checked_add(usize::try_from(n).ok()?)?;
        (to <= self.end).then(|| self.at = to)
    }
    /// A pointer in one of the encodings that compilers for x86-64 use here: absolute or relative to itself.
    fn pointer(&mut self, encoding: u8) -> Option<usize> {
        let place = self.at;
        let value = match encoding & 15 {
            0 | 4 => self.u64()? as usize,
            3 => self.u32()? as usize,
            11 => self.u32()? as i32 as usize,
            12 => self.u64()? as usize,
            _ => return None,
        };
        match encoding & 0x70 {
            0 => Some(value),
            0x10 => Some(place.wrapping_add(value)),
            _ => None,
        }
    }
    /// The length of an entry, and its bytes.
    fn entry(&mut self) -> Option<Bytes> {
        let length = match self.u32()? {
            0 => return None,
            u32::MAX => self.u64()?,
            n => u64::from(n),
        };
        let at = self.at;
        self.skip(length)?;
        Some(Bytes { at, end: self.at, start: at })
    }
}

/// The rule at `pc`, by the `.eh_frame_hdr` at `header`; `None` where nothing is said of this place, or nothing that is
/// understood.
#[cold]
pub(super) fn rule(tables: &LoadedTables, pc: usize) -> Option<Rule> {
    let &LoadedTables { header, start, end } = tables;
    let mut head = Bytes { at: header, end, start };
    let [version, frame, count, table] = head.take::<4>()?;
    // Version 1, a count of four bytes, and a table of pairs relative to the header: what every linker writes.
    if version != 1 || count != 3 || table != 0x3b {
        return None;
    }
    head.pointer(frame)?;
    let count = head.u32()? as usize;
    let first = head.at;
    let pair = |i: usize| {
        let mut b = Bytes { at: first.checked_add(i.checked_mul(8)?)?, end, start };
        let mut next = || Some(header.wrapping_add(b.u32()? as i32 as usize));
        Some((next()?, next()?))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if pair(middle)?.0 <= pc { low = middle + 1 } else { high = middle }
    }
    let (_, description) = pair(low.checked_sub(1)?)?;
    description_of(Bytes { at: description, end, start }, pc)
}

/// What the frame description at `all` says of `pc`.
fn description_of(mut all: Bytes, pc: usize) -> Option<Rule> {
    let mut fde = all.entry()?;
    let place = fde.at;
    let back = fde.u32()? as usize;
    let common = Common::read(Bytes { at: place.checked_sub(back)?, ..all })?;
    let start = fde.pointer(common.encoding)?;
    let length = fde.pointer(common.encoding & 15)?;
    if pc.checked_sub(start)? >= length {
        return None;
    }
    if common.augmented {
        let n = fde.uleb()?;
        fde.skip(n)?;
    }
    let mut state = State { row: Row::default(), at: start, kept: [Row::default(); 8], depth: 0 };
    state.run(common.program, &common, Row::default(), pc)?;
    let initial = state.row;
    state.at = start;
    state.run(fde, &common, initial, pc)?;
    Some(state.row.rule())
}

/// A common information entry.
struct Common {
    code: u64,
    data: i64,
    encoding: u8,
    augmented: bool,
    program: Bytes,
}

impl Common {
    fn read(mut all: Bytes) -> Option<Common> {
        let mut b = all.entry()?;
        let (id, version) = (b.u32()?, b.u8()?);
        if id != 0 || !matches!(version, 1 | 3) {
            return None;
        }
        let text = b.at;
        while b.u8()? != 0 {}
        let mut letters = Bytes { at: text, end: b.at - 1, start: text };
        let (code, data) = (b.uleb()?, b.sleb()?);
        let register = if version == 1 { u64::from(b.u8()?) } else { b.uleb()? };
        if register != RETURN {
            return None;
        }
        let mut c = Common { code, data, encoding: 0, augmented: false, program: b };
        if letters.at == letters.end {
            return Some(c);
        }
        if letters.u8()? != b'z' {
            return None;
        }
        c.augmented = true;
        let n = b.uleb()?;
        let mut extra = b;
        b.skip(n)?;
        while let Some(letter) = letters.u8() {
            match letter {
                b'R' => c.encoding = extra.u8()?,
                b'L' => drop(extra.u8()?),
                b'P' => {
                    let encoding = extra.u8()?;
                    // Where it is indirect the pointer is not followed: only its size matters.
                    extra.pointer(encoding & 15)?;
                }
                // A signal's frame: what it interrupted is not a call.
                _ => return None,
            }
        }
        c.program = b;
        Some(c)
    }
}

/// A row of the table that the program describes, as far as it matters here.
#[derive(Clone, Copy, Default)]
struct Row {
    base: Base,
    offset: i64,
    rbp: Saved,
    /// The return address, or `rbp`, is somewhere that is not understood.
    lost: bool,
    /// The return address is said not to exist.
    outermost: bool,
}

impl Row {
    fn rule(self) -> Rule {
        match (i32::try_from(self.offset), self.base) {
            _ if self.outermost => Rule::default(),
            (_, Base::None) => UNKNOWN,
            (Ok(offset), base) if !self.lost => Rule { base, offset, rbp: self.rbp },
            _ => UNKNOWN,
        }
    }
    fn cfa(&mut self, register: u64, offset: i64) {
        self.base = match register {
            RSP => Base::Rsp,
            RBP => Base::Rbp,
            _ => Base::Unknown,
        };
        self.offset = offset;
    }
    /// The register is saved at the CFA plus `offset`.
    fn saved(&mut self, register: u64, offset: i64) {
        match register {
            RBP => match i16::try_from(offset) {
                Ok(n) => self.rbp = Saved::Cfa(n),
                Err(_) => self.lost = true,
            },
            RETURN => self.lost = offset != -8,
            _ => {}
        }
    }
    fn restore(&mut self, register: u64, initial: Row) {
        match register {
            RBP => self.rbp = initial.rbp,
            RETURN => (self.lost, self.outermost) = (initial.lost, initial.outermost),
            _ => {}
        }
    }
    /// The register is somewhere that is not understood.
    fn unknown(&mut self, register: u64) {
        if register == RBP || register == RETURN {
            self.lost = true;
        }
    }
}

struct State {
    row: Row,
    at: usize,
    kept: [Row; 8],
    depth: usize,
}

impl State {
    /// Follows the program up to `pc`.
    fn run(&mut self, mut p: Bytes, c: &Common, initial: Row, pc: usize) -> Option<()> {
        let scaled = |n: u64| i64::try_from(n).ok()?.checked_mul(c.data);
        for _ in 0..MOST {
            let Some(op) = p.u8() else { return Some(()) };
            let low = u64::from(op & 63);
            let row = &mut self.row;
            let advance = match (op >> 6, op) {
                (1, _) => low,
                (2, _) => {
                    let n = p.uleb()?;
                    row.saved(low, scaled(n)?);
                    0
                }
                (3, _) => {
                    row.restore(low, initial);
                    0
                }
                (_, 0x00) => 0,
                (_, 0x01) => {
                    self.at = p.pointer(c.encoding)?;
                    if self.at > pc {
                        return Some(());
                    }
                    0
                }
                (_, 0x02) => u64::from(p.u8()?),
                (_, 0x03) => u64::from(p.u16()?),
                (_, 0x04) => u64::from(p.u32()?),
                (_, 0x05) => {
                    let (r, n) = (p.uleb()?, p.uleb()?);
                    row.saved(r, scaled(n)?);
                    0
                }
                (_, 0x06) => {
                    row.restore(p.uleb()?, initial);
                    0
                }
                (_, 0x07) => {
                    // Of the return address it means the outermost frame; an undefined rbp is not looked at by the caller.
                    row.outermost |= p.uleb()? == RETURN;
                    0
                }
                (_, 0x08) => {
                    let r = p.uleb()?;
                    if r == RBP {
                        row.rbp = Saved::Same;
                    }
                    0
                }
                (_, 0x09) => {
                    let r = p.uleb()?;
                    p.uleb()?;
                    row.unknown(r);
                    0
                }
                (_, 0x0a) => {
                    *self.kept.get_mut(self.depth)? = *row;
                    self.depth += 1;
                    0
                }
                (_, 0x0b) => {
                    self.depth = self.depth.checked_sub(1)?;
                    *row = *self.kept.get(self.depth)?;
                    0
                }
                (_, 0x0c) => {
                    let (r, n) = (p.uleb()?, p.uleb()?);
                    row.cfa(r, i64::try_from(n).ok()?);
                    0
                }
                (_, 0x0d) => {
                    let offset = row.offset;
                    row.cfa(p.uleb()?, offset);
                    0
                }
                (_, 0x0e) => {
                    row.offset = i64::try_from(p.uleb()?).ok()?;
                    0
                }
                (_, 0x0f) => {
                    let mut e = expression(&mut p)?;
                    (row.base, row.offset) = match (relative_to_rbp(&mut e), e.u8(), e.u8()) {
                        (Some(n), Some(0x06), None) => (Base::AtRbp, n),
                        _ => (Base::Unknown, 0),
                    };
                    0
                }
                (_, 0x10) => {
                    let r = p.uleb()?;
                    let mut e = expression(&mut p)?;
                    let at = relative_to_rbp(&mut e).filter(|_| r == RBP && e.u8().is_none());
                    match at.and_then(|n| i16::try_from(n).ok()) {
                        Some(n) => row.rbp = Saved::Rbp(n),
                        None => row.unknown(r),
                    }
                    0
                }
                (_, 0x11) => {
                    let (r, n) = (p.uleb()?, p.sleb()?);
                    row.saved(r, n.checked_mul(c.data)?);
                    0
                }
                (_, 0x12) => {
                    let (r, n) = (p.uleb()?, p.sleb()?);
                    row.cfa(r, n.checked_mul(c.data)?);
                    0
                }
                (_, 0x13) => {
                    row.offset = p.sleb()?.checked_mul(c.data)?;
                    0
                }
                (_, 0x16) => {
                    let r = p.uleb()?;
                    expression(&mut p)?;
                    row.unknown(r);
                    0
                }
                (_, 0x2e) => {
                    p.uleb()?; // bytes of arguments: only exceptions need them
                    0
                }
                _ => return None,
            };
            if advance > 0 {
                self.at = self.at.checked_add(usize::try_from(advance.checked_mul(c.code)?).ok()?)?;
                if self.at > pc {
                    return Some(());
                }
            }
        }
        None
    }
}

fn expression(p: &mut Bytes) -> Option<Bytes> {
    let n = p.uleb()?;
    let at = p.at;
    p.skip(n)?;
    Some(Bytes { at, end: p.at, start: at })
}

/// `DW_OP_breg6`: rbp plus a constant.
fn relative_to_rbp(e: &mut Bytes) -> Option<i64> {
    (e.u8()? == 0x76).then(|| e.sleb())?
}
