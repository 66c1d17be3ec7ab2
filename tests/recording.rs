//! Rings → file → items: the whole way, and every way it can be cut short.

#[path = "recordings/alive.rs"]
mod alive;
#[path = "recordings/figures.rs"]
mod figures;
#[path = "recordings/frozen.rs"]
mod frozen;
#[path = "recordings/gap.rs"]
mod gap;
#[path = "recordings/job.rs"]
mod job;
#[path = "recordings/lines.rs"]
mod lines;
#[path = "bench/pipeline.rs"]
mod pipeline;
#[path = "recordings/size.rs"]
mod size;

use job::{BEGAN, Job, Life, ROUNDING, SMALL, alike, expected, live, noise, plain, read_from, same};
use strandline::event::{Body, Event, Item, Nanos, StackId, ThreadId};
use strandline::format::raw::{Kind, Record};
use strandline::format::region::Geometry;
use strandline::reader::{Reader, TailState};
use strandline::writer::{Memory, Options};

#[test]
fn everything_comes_back_in_order() {
    for seed in 1..6 {
        let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
        job.define(5);
        let records = live(&mut job, &mut Life::new(), 5000, seed);
        let file = job.end();
        let read = read_from(file.clone(), None);
        same(&read.events, &records);
        let s = read.reader.summary();
        assert_eq!(read.reader.damage(), []);
        assert!(s.complete && s.finished && s.sweeps > 1, "{s:?}");
        assert_eq!((s.ended(), s.lost, s.unknown_records), (Some("exit"), 0, 0));
        let threads: Vec<_> = read
            .items
            .iter()
            .filter_map(|i| match i {
                Item::Thread(t) => Some((t.thread, t.tid, t.name.as_str())),
                _ => None,
            })
            .collect();
        let names = ["thread 0", "thread 1", "thread 2"];
        assert_eq!(
            threads,
            [1u16, 2, 3].map(|n| (ThreadId(n), 99 + u32::from(n), names[usize::from(n) - 1]))
        );
        assert!(matches!(read.items.first(), Some(Item::Meta(_))));
        assert!(matches!(read.items.last(), Some(Item::End(_))));
        let frames: Vec<_> =
            read.reader.names().frames(StackId(2)).map(|f| (f.line, f.function.as_str())).collect();
        assert_eq!(frames, [(13, "step"), (11, "step")]);
        assert_eq!(read.reader.names().text(1), Some("warm up"));
        let by_item: Vec<Event> = Reader::from_source(Box::new(file), None)
            .unwrap()
            .filter_map(|i| if let Item::Event(e) = i { Some(e) } else { None })
            .collect();
        assert_eq!(by_item, read.events);
    }
}

#[test]
fn a_killed_process_leaves_everything_it_published() {
    let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
    job.define(5);
    let mut life = Life::new();
    let mut records = live(&mut job, &mut life, 1000, 1);
    job.seal();
    records.extend(live(&mut job, &mut life, 100, 2));
    // Committed, and published, and not yet open to anybody.
    *job.lanes[0].open().unwrap() = Record { kind: Kind::ScalerUpdate as u8, ..Record::default() };
    let (tail, file) = (job.tail(), job.die());
    let read = read_from(file.clone(), Some(tail.clone()));
    same(&read.events, &records);
    assert_eq!(read.reader.damage(), []);
    let s = read.reader.summary();
    assert_eq!((s.complete, &s.tail), (false, &TailState::Read(100)));

    // Without the tail, what was written is there.
    let read = read_from(file.clone(), None);
    same(&read.events, &records[..1000]);

    // Another process's tail is not read.
    let mut other = tail.clone();
    other[32] ^= 1;
    let read = read_from(file, Some(other));
    assert_eq!(read.events.len(), expected(&records[..1000]).len());
    assert!(
        matches!(&read.reader.summary().tail, TailState::Absent(why) if why.contains("another recording"))
    );
}

#[test]
fn a_job_that_dies_before_its_first_sweep_is_read_from_its_tail() {
    let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
    job.define(5);
    let mut life = Life::new();
    let mut random = noise(3);
    let records: Vec<Record> = (0..50).map(|_| life.next(&mut job, &mut random)).collect();
    records.iter().for_each(|r| assert!(job.lanes[1].push(*r)));
    job.sweep().unwrap();
    let (tail, file) = (job.tail(), job.die());
    let read = read_from(file, Some(tail));
    same(&read.events, &records);
    assert_eq!(read.reader.damage(), []);
    assert_eq!(read.reader.names().frames(StackId(1)).count(), 2);
}

/// A ring that was full: nobody has overwritten what it holds.
#[test]
fn a_job_that_dies_with_a_full_ring_is_read_up_to_its_losses() {
    let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
    job.define(5);
    let mut life = Life::new();
    let mut random = noise(4);
    let records: Vec<Record> = (0..1200).map(|_| life.next(&mut job, &mut random)).collect();
    let kept = records.iter().take_while(|r| job.lanes[1].push(**r)).count();
    assert_eq!(kept, 1023, "its first record is the thread's name");
    let (tail, file) = (job.tail(), job.die());
    let read = read_from(file, Some(tail));
    let (last, events) = read.events.split_last().expect("events");
    same(events, &records[..kept]);
    assert!(matches!(last.body, Body::Gap { lost: 1, .. }), "{last:?}");
    assert_eq!(read.reader.damage(), []);
    assert_eq!(read.reader.summary().lost, 1);
}

/// `kill -9` between any two bytes of a sweep's write: what the page does not hold, the rings still do.
#[test]
fn a_write_that_was_cut_anywhere_loses_nothing() {
    let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
    job.define(5);
    let mut life = Life::new();
    let mut records = live(&mut job, &mut life, 300, 1);
    job.seal();
    records.extend(live(&mut job, &mut life, 100, 2));
    let before = job.writer.as_ref().map(|w| w.sink().bytes.len()).unwrap();
    let tail = job.tail();
    job.seal();
    let file = job.die();
    assert!(file.len() > before + 400, "{before} {}", file.len());
    for cut in (before..=file.len()).step_by(7) {
        let read = read_from(file[..cut].to_vec(), Some(tail.clone()));
        same(&read.events, &records);
        assert_eq!(read.reader.damage(), [], "cut at {cut}");
    }
}

#[test]
fn losses_stand_where_they_happened() {
    let mut job = Job::new(Geometry { records: 64, ..SMALL }, 1, Options::default(), Memory::default());
    let mark = |job: &mut Job, n: u64| {
        job.now += 1000;
        job.lanes[0].push(Record { ticks: job.now, a: n, kind: Kind::ManualStep as u8, ..Record::default() })
    };
    let kept = (0..100).filter(|&n| mark(&mut job, n)).count() as u64;
    job.seal();
    assert!(mark(&mut job, 100));
    job.seal();
    let more = (101..200).filter(|&n| mark(&mut job, n)).count() as u64;
    job.region.lose();
    let read = read_from(job.end(), None);
    let seen: Vec<String> = read
        .events
        .iter()
        .filter_map(|e| match e.body {
            Body::ManualStep(n @ (0 | 62 | 100 | 101)) => Some(format!("{n}")),
            Body::Gap { lost } => Some(format!("gap {lost}")),
            _ => None,
        })
        .collect();
    let (first, second) = (100 - kept, 99 - more);
    assert_eq!(kept, 63, "the announcement takes one");
    let want = ["0", "62", &format!("gap {first}"), "100", "101", &format!("gap {second}"), "gap 1"];
    assert_eq!(seen, want);
    assert_eq!(read.reader.summary().lost, first + second + 1);
    assert_eq!(read.reader.damage(), []);
}

#[test]
fn a_full_disk_is_an_error_once_and_the_rings_keep_what_was_not_written() {
    let full_at = Some(9_000);
    let mut job = Job::new(SMALL, 3, Options::default(), Memory { full_at, ..Memory::default() });
    job.define(5);
    let mut life = Life::new();
    let mut random = noise(8);
    let mut records = Vec::new();
    let mut errors = 0;
    for i in 0..1200 {
        let r = life.next(&mut job, &mut random);
        if job.lanes[i % 3].push(r) {
            records.push(r);
        }
        if i % 100 == 99 {
            job.now += 2_000_000_000;
            errors += u32::from(job.sweep().is_err());
        }
    }
    assert_eq!(errors, 1);
    let (tail, file) = (job.tail(), job.die());
    let read = read_from(file, Some(tail));
    alike(&plain(&read.events), &plain(&expected(&records)));
    assert_eq!(read.reader.damage().len(), 1, "the page that was cut: {:?}", read.reader.damage());
}

/// As where the disk fills while records are written: what came afterwards was not seen.
#[test]
fn a_disk_that_is_full_when_a_fact_is_written_stops_the_recording() {
    let full_at = Some(40_000);
    let mut job = Job::new(SMALL, 3, Options::default(), Memory { full_at, ..Memory::default() });
    job.define(5);
    live(&mut job, &mut Life::new(), 300, 5);
    let mut random = noise(9);
    let facts = serde_json::json!({ "holders": (0..20_000).map(|_| random(1 << 40)).collect::<Vec<_>>() });
    let writer = job.writer.as_mut().unwrap();
    assert!(writer.meta(&job.drain, &facts).is_err() && writer.meta(&job.drain, &facts).is_ok(), "said once");
    let (tail, file) = (job.tail(), job.die());
    assert!(read_from(file, Some(tail)).reader.summary().stopped);
}

/// Every cut and many flipped bits: items and damage, never a panic, and what is before the damage is unharmed.
#[test]
fn any_bytes_are_survived() {
    let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
    job.define(5);
    let mut life = Life::new();
    let mut records = live(&mut job, &mut life, 300, 5);
    job.seal();
    records.extend(live(&mut job, &mut life, 300, 6));
    let tail = job.tail();
    let file = job.end();
    let want = plain(&expected(&records));
    for cut in (0..file.len()).step_by(11) {
        match Reader::from_source(Box::new(file[..cut].to_vec()), None) {
            Err(e) => assert!(cut < 4096, "{e}"),
            Ok(_) => {
                let read = read_from(file[..cut].to_vec(), None);
                assert!(!read.reader.summary().complete);
                // Of a sweep that was cut, some rings are there and some are not.
                let mut rest = want.iter();
                assert!(plain(&read.events).iter().all(|b| rest.any(|w| w == b)), "cut at {cut}");
            }
        }
    }
    let mut random = noise(77);
    for _ in 0..3000 {
        let mut bad = file.clone();
        let bit = random(bad.len() as u64 * 8) as usize;
        bad[bit / 8] ^= 1 << (bit % 8);
        let Ok(_) = Reader::from_source(Box::new(bad.clone()), None) else {
            assert!(bit / 8 < 4096);
            continue;
        };
        let read = read_from(bad, None);
        let whole = plain(&read.events) == want;
        assert!(whole || !read.reader.damage().is_empty(), "bit {bit}");
    }
    for _ in 0..500 {
        let mut bad = tail.clone();
        for _ in 0..1 + random(20) {
            let at = random(8192) as usize;
            bad[at] = random(256) as u8;
        }
        read_from(file[..file.len() - 200].to_vec(), Some(bad));
    }
}

#[test]
fn times_are_nanoseconds_since_the_beginning() {
    let mut job = Job::new(SMALL, 1, Options::default(), Memory::default());
    job.now = BEGAN + 5_000_000_000;
    job.sweep().unwrap();
    let mark = Record { kind: Kind::ScalerUpdate as u8, ..Record::default() };
    let mark = job.stamp(mark, 1_000_000_000);
    assert!(job.lanes[0].push(mark));
    job.now += 1;
    let read = read_from(job.end(), None);
    let [e] = read.events[..] else { panic!("{:?}", read.events) };
    assert!(e.time.0.abs_diff(6_000_000_000) <= ROUNDING);
    assert_eq!(e.thread, ThreadId(1));
    assert!(matches!(read.items.last(), Some(Item::End(Nanos(6_000_000_001)))));
}
