//! After a gap the state is written down anew: who cannot read what lies before goes on from there, and knows which
//! blocks nobody vouches for.

use crate::job::{BEGAN, Job, Life, SMALL, noise, read_from};
use strandline::event::{Addr, Item};
use strandline::format::header::Header;
use strandline::format::page::{FRAME, Frame, Tag};
use strandline::format::raw::{Kind, Record, flag};
use strandline::writer::{Memory, Options};

/// Where the pages of a kind begin.
fn pages(file: &[u8], tag: Tag) -> Vec<usize> {
    let mut at = Header::length(file).expect("a header");
    let mut found = Vec::new();
    while let Some(head) = file.get(at..at + FRAME) {
        let frame = Frame::decode(head).expect("a frame");
        if frame.tag == tag as u16 {
            found.push(at);
        }
        at += FRAME + usize::try_from(frame.length).unwrap();
    }
    found
}

fn alloc(job: &mut Job, addr: u64) {
    let mut r = Record {
        a: addr,
        b: 512,
        c: 0x5500,
        kind: Kind::Alloc as u8,
        flags: flag::REPORTED,
        ..Record::default()
    };
    r.set_rounded(512);
    let r = job.stamp(r, 1000);
    assert!(job.lanes[0].push(r));
}

#[test]
fn a_checkpoint_follows_every_gap() {
    let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
    job.define(5);
    alloc(&mut job, 0x1000);
    job.seal();
    let calm = pages(&job.writer.as_ref().unwrap().sink().bytes, Tag::Chunk).len();
    assert_eq!(calm, 1, "the recording's own beginning");

    let (mut life, mut random) = (Life::new(), noise(9));
    let mut at = Vec::new();
    for gap in 0..3 {
        // More than the ring holds, and nobody sweeps.
        let pushed = (0..1500)
            .filter(|_| {
                let r = life.next(&mut job, &mut random);
                job.lanes[1].push(r)
            })
            .count();
        assert!(pushed < 1500);
        job.seal();
        // What waits for its order to be known keeps the checkpoint waiting.
        for i in 0..4 {
            alloc(&mut job, 0x2000 + gap * 0x10000 + i * 0x1000);
            job.seal();
        }
        at.push(pages(&job.writer.as_ref().unwrap().sink().bytes, Tag::Chunk).len());
    }
    assert_eq!(at, [calm + 1, calm + 2, calm + 3]);
    let file = job.end();
    let intact = read_from(file.clone(), None);
    assert_eq!((intact.reader.damage(), intact.reader.summary().restored), (&[][..], 0), "nobody needs it");

    // The page before the first such chunk is lost: reading goes on from its checkpoint.
    let chunk = pages(&file, Tag::Chunk)[1];
    let before = *pages(&file, Tag::Events).iter().rfind(|&&p| p < chunk).unwrap();
    let mut torn = file;
    torn[before + FRAME + 3] ^= 0x55;
    let read = read_from(torn, None);
    assert_eq!(
        (read.reader.damage().len(), read.reader.summary().restored),
        (1, 1),
        "{:?}",
        read.reader.damage()
    );
    let state = read
        .items
        .iter()
        .find_map(|i| if let Item::Checkpoint(c) = i { Some(c) } else { None })
        .expect("the state after the gap");
    let lost_until = state.time.0;
    assert!(lost_until > 0 && lost_until < job.now - BEGAN);
    let unverified = |addr| state.blocks.iter().find(|l| l.block.addr == Addr(addr)).map(|l| l.unverified);
    assert_eq!(unverified(0x1000), Some(true), "live across the gap");
    assert_eq!(unverified(0x2000), Some(false), "allocated after it");
}
