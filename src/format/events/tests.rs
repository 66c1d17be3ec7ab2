use super::*;
use crate::format::raw::{Kind, Record, flag};

/// A small deterministic generator (xorshift), so that tests need no crate.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut x = seed | 1;
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    }
}

fn round_trip(records: &[Record], split: usize, shift: u8) -> Vec<u8> {
    let head = EventsHead { ring: 2, thread: 9, first: 1 << 40, count: records.len() as u32, shift };
    let mut payload = Vec::new();
    let (a, b) = records.split_at(split);
    Encoder::default().encode(head, (a, b), &mut payload);
    let mut back = vec![Record::default(); 3];
    assert_eq!(Decoder::default().decode(&payload, &mut back), Ok(head));
    assert_eq!(back.len(), records.len() + 3);
    for (x, y) in records.iter().zip(&back[3..]) {
        assert_eq!(Record { ticks: x.ticks >> shift << shift, ..*x }, *y);
    }
    payload
}

#[test]
fn any_record_comes_back() {
    let mut next = noise(7);
    let records: Vec<Record> = (0..3000)
        .map(|_| {
            let small = |n: u64, by: u64| if by & 1 == 0 { n % 7 * 512 } else { n };
            Record {
                ticks: next(),
                a: small(next(), next()),
                b: small(next(), next()),
                c: next() % 5,
                rounded_seq: small(next(), next()),
                allocated: small(next(), next()),
                reserved: next(),
                stack: next() as u32 % 50,
                kind: next() as u8 % 96,
                device: next() as u8,
                flags: next() as u8,
                phase: next() as u8 & 31,
            }
        })
        .collect();
    round_trip(&records, 1234, 0);
    round_trip(&records[..1], 1, 5);
    round_trip(&[], 0, 5);
}

#[test]
fn a_steady_job_costs_little() {
    let mut records = Vec::new();
    let (mut total, mut sequence) = (1u64 << 30, 5u32);
    for step in 0..20u64 {
        for i in 0..100u64 {
            for kind in [Kind::Alloc, Kind::FreeRequested] {
                let alloc = kind == Kind::Alloc;
                let rounded = (i % 9 + 1) * 4096;
                total = if alloc { total + rounded } else { total - rounded };
                let mut r = Record {
                    ticks: (step * 1000 + i) * 20_000,
                    a: 0x7f00_0000_0000 + i * (1 << 20),
                    b: rounded - 96,
                    c: 0x5555_1234,
                    allocated: total,
                    reserved: 1 << 31,
                    stack: if alloc { 3 + i as u32 % 40 } else { 0 },
                    kind: kind as u8,
                    flags: flag::REPORTED | if alloc { 0 } else { flag::COMPLETED },
                    ..Record::default()
                };
                r.set_sequence(sequence);
                r.set_rounded(rounded);
                sequence += 1;
                records.push(r);
            }
        }
    }
    let bytes = round_trip(&records, 0, 5).len();
    assert!(bytes < records.len() * 6, "{bytes} bytes for {} records before compression", records.len());
}

#[test]
fn a_page_cut_short_or_bent_is_an_error_or_records_but_never_a_panic() {
    let records: Vec<Record> = (0..40)
        .map(|i| Record {
            ticks: i * 100,
            a: i % 4 * 512,
            b: i,
            kind: (i % 20) as u8,
            stack: i as u32 % 3,
            ..Record::default()
        })
        .collect();
    let payload = round_trip(&records, 20, 0);
    let mut d = Decoder::default();
    for n in 0..payload.len() {
        assert!(d.decode(&payload[..n], &mut Vec::new()).is_err(), "cut at {n}");
    }
    for bit in 0..payload.len() * 8 {
        let mut bad = payload.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut out = Vec::new();
        let _ = d.decode(&bad, &mut out);
        assert!(out.len() <= MAX_RECORDS);
    }
}
