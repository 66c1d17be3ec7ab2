//! An Events page → records. Any bytes are survived; what comes out is at most [`MAX_RECORDS`] records.

use super::model::{Model, is_block, rounded_up};
use super::page::*;
use crate::format::raw::{Kind, Record, SEQUENCE_MODULUS};
use crate::format::wire::{Cursor, Malformed, unzigzag};

/// Decodes pages; keeps its tables' memory from page to page.
#[derive(Default)]
pub struct Decoder {
    tags: Vec<TagKey>,
    sizes: Vec<u64>,
    words: Vec<u64>,
    stacks: Vec<u64>,
    model: Model,
    addr: u64,
}

/// The value with the number that comes next, or a new value.
#[inline]
fn value(
    table: &mut Vec<u64>,
    index: &mut Cursor<'_>,
    literal: &mut Cursor<'_>,
    what: &'static str,
) -> Result<(u32, u64), Malformed> {
    let n = index.number(what)?;
    if n == 0 {
        let v = literal.number(what)?;
        table.push(v);
        return Ok((table.len() as u32 - 1, v));
    }
    let i = n - 1;
    let v = usize::try_from(i).ok().and_then(|i| table.get(i)).ok_or_else(|| index.bad(what))?;
    Ok((i as u32, *v))
}

impl Decoder {
    /// Appends the page's records to `out`. On an error `out` holds those that were whole.
    ///
    /// # Errors
    /// [`Malformed`]: where and in which column (positions count from the column's beginning).
    pub fn decode(&mut self, payload: &[u8], out: &mut Vec<Record>) -> Result<EventsHead, Malformed> {
        let mut c = Cursor::new(payload);
        let head = EventsHead::read(&mut c)?;
        let mut lengths = [0usize; COLUMNS];
        for l in &mut lengths {
            *l = usize::try_from(c.number("column length")?).unwrap_or(usize::MAX);
        }
        let mut columns: [Cursor<'_>; COLUMNS] = std::array::from_fn(|_| Cursor::new(&[]));
        for (column, l) in columns.iter_mut().zip(lengths) {
            *column = Cursor::new(c.take(l, "column")?);
        }
        self.tags.clear();
        self.sizes.clear();
        self.words.clear();
        self.stacks.clear();
        self.stacks.push(0);
        self.model.reset();
        self.addr = 0;
        let start = out.len();
        out.reserve((head.count as usize).min(columns[TAGS].left()));
        let mut time = 0i64;
        for _ in 0..head.count {
            let [kind, device, flags, phase, met] = self.tag(&mut columns)?;
            time = time.wrapping_add(columns[TIME].signed("time")?);
            let ticks = (time as u64) << head.shift;
            let mut r = Record { ticks, kind, device, flags, phase, ..Record::default() };
            if is_block(kind) {
                self.block(&mut r, met, &mut columns, out.get(start..).unwrap_or_default())?;
            } else {
                self.other(&mut r, met, &mut columns)?;
            }
            out.push(r);
        }
        Ok(head)
    }

    /// Whether the last page held a record of this kind (or may have: rare pages have more tags than are kept).
    pub fn saw(&self, kind: Kind) -> bool {
        self.tags.len() >= usize::from(NEW) || self.tags.iter().any(|t| t.first() == Some(&(kind as u8)))
    }

    #[inline]
    fn tag(&mut self, columns: &mut [Cursor<'_>; COLUMNS]) -> Result<TagKey, Malformed> {
        let n = columns[TAGS].byte("tag")?;
        if n != NEW {
            return self.tags.get(usize::from(n)).copied().ok_or_else(|| columns[TAGS].bad("tag"));
        }
        let b = columns[NEW_TAGS].take(5, "new tag")?;
        let key: TagKey = b.try_into().map_err(|_| columns[NEW_TAGS].bad("new tag"))?;
        if self.tags.len() < usize::from(NEW) {
            self.tags.push(key);
        }
        Ok(key)
    }

    #[inline]
    fn block(
        &mut self,
        r: &mut Record,
        met: u8,
        columns: &mut [Cursor<'_>; COLUMNS],
        page: &[Record],
    ) -> Result<(), Malformed> {
        let [_, _, _, backs, addrs, size_column, word_column, stack_column, sequences, totals, literals] =
            columns;
        let before = if met & met::BACK != 0 {
            let back = usize::try_from(backs.number("back reference")?).unwrap_or(usize::MAX);
            let before = page.len().checked_sub(back).and_then(|i| page.get(i));
            Some(before.ok_or_else(|| backs.bad("back reference"))?)
        } else {
            None
        };
        r.a = match before {
            Some(p) => p.a,
            None => match addrs.number("address")? {
                1 => literals.number("address")?,
                n => self.addr.wrapping_add((unzigzag(n >> 1) as u64) << 9),
            },
        };
        self.addr = r.a;
        let alloc = r.kind == Kind::Alloc as u8;
        let stack = if met & met::STACK != 0 {
            let n = if alloc { self.model.next_stack() } else { 0 };
            (n, self.stacks.get(n as usize).copied().unwrap_or(0))
        } else {
            value(&mut self.stacks, stack_column, literals, "stack")?
        };
        r.stack = stack.1 as u32;
        let expected = if alloc {
            let habit = self.model.habit(stack.0);
            (habit.size, habit.stream)
        } else {
            before.map(|p| (p.b, p.c)).unwrap_or_default()
        };
        r.b = match met & met::SIZE {
            0 => value(&mut self.sizes, size_column, literals, "size")?.1,
            _ => expected.0,
        };
        r.c = match met & met::STREAM {
            0 => value(&mut self.words, word_column, literals, "stream")?.1,
            _ => expected.1,
        };
        if alloc {
            self.model.asked(stack.0, r.b, r.c);
        }
        r.set_rounded(match met & met::ROUNDED {
            0 => 0,
            met::ROUNDED_UP => rounded_up(r.b),
            met::ROUNDED_SAME => before.map_or(0, Record::rounded),
            _ => value(&mut self.sizes, size_column, literals, "rounded size")?.1,
        });
        let expected = self.model.sequence(r.device);
        let sequence = match met & met::SEQUENCE {
            0 => i64::from(expected).wrapping_add(sequences.signed("sequence")?) as u32 % SEQUENCE_MODULUS,
            _ => expected,
        };
        let rounded = r.rounded();
        r.set_sequence(sequence);
        r.set_rounded(rounded);
        (r.allocated, r.reserved) = self.model.totals(r);
        if met & met::TOTALS == 0 {
            r.allocated = r.allocated.wrapping_add(totals.signed("totals")? as u64);
            r.reserved = r.reserved.wrapping_add(totals.signed("totals")? as u64);
        }
        self.model.seen(r);
        Ok(())
    }

    #[inline]
    fn other(
        &mut self,
        r: &mut Record,
        there: u8,
        columns: &mut [Cursor<'_>; COLUMNS],
    ) -> Result<(), Malformed> {
        let [_, _, _, _, _, _, word_column, _, _, _, literals] = columns;
        let mut word = |bit: u8| -> Result<u64, Malformed> {
            if there & bit == 0 {
                return Ok(0);
            }
            Ok(value(&mut self.words, word_column, literals, "operand")?.1)
        };
        r.a = word(present::A)?;
        r.b = word(present::B)?;
        r.c = word(present::C)?;
        r.rounded_seq = word(present::ROUNDED_SEQ)?;
        r.allocated = word(present::ALLOCATED)?;
        r.reserved = word(present::RESERVED)?;
        r.stack = word(present::STACK)? as u32;
        Ok(())
    }
}
