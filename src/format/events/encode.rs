//! Records → an Events page. Runs in the job's drain thread: no panic, memory bounded by the page.

use super::model::{Model, is_block, rounded_up};
use super::page::*;
use crate::format::fields::Field;
use crate::format::raw::{Kind, Record};
use crate::format::wire::{put, put_signed, zigzag};
use rustc_hash::FxHashMap;

/// Encodes pages; keeps its tables' memory from page to page.
#[derive(Default)]
pub struct Encoder {
    columns: [Vec<u8>; COLUMNS],
    tags: FxHashMap<TagKey, u8>,
    sizes: Numbering,
    words: Numbering,
    stacks: Numbering,
    /// Last record with an address: open addressing, by address. Index + 1; 0 = empty.
    last: Vec<(u64, u32)>,
    model: Model,
    time: i64,
    addr: u64,
}

/// Values numbered in order of appearance.
#[derive(Default)]
struct Numbering(FxHashMap<u64, u32>);

impl Numbering {
    /// Writes the value's number + 1 if it is known, else 0 and the value.
    fn put(&mut self, index: &mut Vec<u8>, literal: &mut Vec<u8>, value: u64) -> u32 {
        let next = self.0.len() as u32;
        match self.0.get(&value) {
            Some(&n) => {
                put(index, u64::from(n) + 1);
                n
            }
            None => {
                index.push(0);
                put(literal, value);
                self.0.insert(value, next);
                next
            }
        }
    }
}

impl Encoder {
    /// Appends the page's payload to `out`. The records are those of both slices, at most [`MAX_RECORDS`]; `head.count` is
    /// set from them.
    pub fn encode(&mut self, head: EventsHead, records: (&[Record], &[Record]), out: &mut Vec<u8>) {
        let (a, b) = records;
        self.reset(a.len() + b.len());
        let at = |i: usize| a.get(i).or_else(|| b.get(i - a.len()));
        let mut count = 0u32;
        for (i, r) in a.iter().chain(b).take(MAX_RECORDS).enumerate() {
            self.record(i, r, head.shift, &at);
            count += 1;
        }
        EventsHead { count, ..head }.put(out);
        for c in &self.columns {
            put(out, c.len() as u64);
        }
        for c in &self.columns {
            out.extend_from_slice(c);
        }
    }

    fn reset(&mut self, count: usize) {
        self.columns.iter_mut().for_each(Vec::clear);
        self.tags.clear();
        self.sizes.0.clear();
        self.words.0.clear();
        self.stacks.0.clear();
        // Stack 0 is page number 0, so that the successor of "nothing yet" is a number like any other.
        self.stacks.0.insert(0, 0);
        let size = (count * 2).next_power_of_two().max(64);
        self.last.clear();
        self.last.resize(size, (0, 0));
        self.model.reset();
        self.time = 0;
        self.addr = 0;
    }

    fn record<'a>(&mut self, i: usize, r: &Record, shift: u8, at: &impl Fn(usize) -> Option<&'a Record>) {
        let time = (r.ticks >> shift) as i64;
        let [_, _, times, ..] = &mut self.columns;
        put_signed(times, time.wrapping_sub(self.time));
        self.time = time;
        let met = if is_block(r.kind) {
            let before = self.look_up(r.a, i).and_then(|j| Some((i - j, at(j)?)));
            self.block(r, before)
        } else {
            self.other(r)
        };
        self.tag([r.kind, r.device, r.flags, r.phase, met]);
    }

    fn tag(&mut self, key: TagKey) {
        let [tags, new, ..] = &mut self.columns;
        let next = self.tags.len();
        match self.tags.get(&key) {
            Some(&n) => tags.push(n),
            None => {
                tags.push(NEW);
                new.extend_from_slice(&key);
                if next < usize::from(NEW) {
                    self.tags.insert(key, next as u8);
                }
            }
        }
    }

    /// The index of the last record with this address, which this one replaces.
    fn look_up(&mut self, addr: u64, i: usize) -> Option<usize> {
        let mask = self.last.len().wrapping_sub(1);
        let mut slot = (addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        // Twice as many slots as records: an empty one is near.
        for _ in 0..=mask {
            let entry = self.last.get_mut(slot)?;
            if entry.1 == 0 {
                *entry = (addr, i as u32 + 1);
                return None;
            }
            if entry.0 == addr {
                let before = entry.1 as usize - 1;
                entry.1 = i as u32 + 1;
                return Some(before);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    fn block(&mut self, r: &Record, before: Option<(usize, &Record)>) -> u8 {
        let Encoder { columns, sizes, words, stacks, model, addr, .. } = self;
        let [_, _, _, backs, addrs, size_column, word_column, stack_column, sequences, totals, literals] =
            columns;
        let mut met = 0;
        match before {
            Some((distance, _)) => {
                met |= met::BACK;
                put(backs, distance as u64);
            }
            None => {
                let delta = r.a.wrapping_sub(*addr) as i64;
                // Addresses are multiples of 512, but for what is recorded from elsewhere.
                match delta & 511 {
                    0 => put(addrs, zigzag(delta >> 9) << 1),
                    _ => {
                        put(addrs, 1);
                        put(literals, r.a);
                    }
                }
            }
        }
        *addr = r.a;
        let alloc = r.kind == Kind::Alloc as u8;
        let mut expected = before.map(|(_, p)| (p.b, p.c)).unwrap_or_default();
        let expected_stack = if alloc { model.next_stack() } else { 0 };
        let stack = stacks.0.get(&u64::from(r.stack)).copied();
        let stack = if stack == Some(expected_stack) {
            met |= met::STACK;
            expected_stack
        } else {
            stacks.put(stack_column, literals, u64::from(r.stack))
        };
        if alloc {
            let habit = model.habit(stack);
            expected = (habit.size, habit.stream);
        }
        if r.b == expected.0 {
            met |= met::SIZE;
        } else {
            sizes.put(size_column, literals, r.b);
        }
        if r.c == expected.1 {
            met |= met::STREAM;
        } else {
            words.put(word_column, literals, r.c);
        }
        if alloc {
            model.asked(stack, r.b, r.c);
        }
        match r.rounded() {
            0 => {}
            n if n == rounded_up(r.b) => met |= met::ROUNDED_UP,
            n if before.is_some_and(|(_, p)| p.rounded() == n) => met |= met::ROUNDED_SAME,
            n => {
                met |= met::ROUNDED_WRITTEN;
                sizes.put(size_column, literals, n);
            }
        }
        let expected = model.sequence(r.device);
        if r.sequence() == expected {
            met |= met::SEQUENCE;
        } else {
            put_signed(sequences, i64::from(r.sequence()) - i64::from(expected));
        }
        let (allocated, reserved) = model.totals(r);
        if (r.allocated, r.reserved) == (allocated, reserved) {
            met |= met::TOTALS;
        } else {
            put_signed(totals, r.allocated.wrapping_sub(allocated) as i64);
            put_signed(totals, r.reserved.wrapping_sub(reserved) as i64);
        }
        model.seen(r);
        met
    }

    fn other(&mut self, r: &Record) -> u8 {
        let Encoder { columns, words, .. } = self;
        let [_, _, _, _, _, _, word_column, _, _, _, literals] = columns;
        let all = [
            (present::A, r.a),
            (present::B, r.b),
            (present::C, r.c),
            (present::ROUNDED_SEQ, r.rounded_seq),
            (present::ALLOCATED, r.allocated),
            (present::RESERVED, r.reserved),
            (present::STACK, u64::from(r.stack)),
        ];
        let mut there = 0;
        for (bit, word) in all {
            if word != 0 {
                there |= bit;
                words.put(word_column, literals, word);
            }
        }
        there
    }
}
