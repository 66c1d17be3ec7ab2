//! Rings → file → items: the whole way, and every way it can be cut short.

#[path = "recordings/frozen.rs"]
mod frozen;
#[path = "recordings/job.rs"]
mod job;
#[path = "recordings/lines.rs"]
mod lines;

use job::{BEGAN, Job, Life, expected, leakbench, noise, plain, read_from};
use std::path::Path;
use strandline::event::{Body, Bytes, Event, Item, Nanos, StackId, ThreadId};
use strandline::format::raw::{Kind, Record};
use strandline::format::region::Geometry;
use strandline::reader::{Batch, Follower, Reader, TailState};
use strandline::writer::{Memory, Options};

const SMALL: Geometry = Geometry { lanes: 3, records: 1024, overflow: 1024, definitions: 1 << 16 };

/// Rounding of times in pages, in ticks.
const ROUNDING: u64 = 8;

/// A job of `n` events on three lanes and the overflow ring, swept now and then. Returns its records in order.
fn live(job: &mut Job, life: &mut Life, n: usize, seed: u64) -> Vec<Record> {
    let mut random = noise(seed);
    let mut all = Vec::new();
    for i in 0..n {
        let r = life.next(job, &mut random);
        let lane = random(4) as usize;
        match job.lanes.get_mut(lane) {
            Some(lane) => assert!(lane.push(r)),
            None => assert!(job.region.overflow().push(r)),
        }
        all.push(r);
        if i % 150 == 149 {
            job.sweep().unwrap();
        }
    }
    all
}

fn same(events: &[Event], records: &[Record]) {
    let want = expected(records);
    assert_eq!(events.len(), want.len());
    for (i, (got, want)) in events.iter().zip(&want).enumerate() {
        assert_eq!(got.body, want.body, "event {i}");
        assert!(want.time.0.abs_diff(got.time.0) <= ROUNDING, "event {i}: {got:?} {want:?}");
    }
}

/// Equality that does not print thousands of events where it fails.
fn alike(got: &[Body], want: &[Body]) {
    let same = got.iter().zip(want).take_while(|(g, w)| g == w).count();
    assert!(same == want.len() && got.len() == want.len(), "{same} alike, {} of {}", got.len(), want.len());
}

fn tail_of<T>(all: &[T], n: usize) -> &[T] {
    &all[all.len() - n..]
}

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
        assert_eq!(threads, [1u16, 2, 3].map(|n| (ThreadId(n), 99 + u32::from(n), names[usize::from(n) - 1])));
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
    assert!(matches!(&read.reader.summary().tail, TailState::Absent(why) if why.contains("another recording")));
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
        assert!(read.reader.damage().len() <= 1, "{:?}", read.reader.damage());
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
fn a_live_recording_is_followed_without_a_difference() {
    for seed in 1..4 {
        let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
        job.define(5);
        let shared = job.share();
        let mut follower = Follower::from_reader(
            Reader::from_source(Box::new(shared.file()), Some(Box::new(shared.region()))).unwrap(),
        );
        let (mut life, mut records, mut got) = (Life::new(), Vec::new(), Vec::new());
        let mut take = |f: &mut Follower| {
            let mut n = 0;
            while let Some(b) = f.next_batch() {
                if let Batch::Events(e) = b {
                    got.extend_from_slice(e);
                    n += e.len();
                }
            }
            n
        };
        for round in 0..40 {
            records.extend(live(&mut job, &mut life, 130, seed * 100 + round));
            shared.update(&job);
            follower.poll();
            take(&mut follower);
            if round % 7 == 3 {
                job.seal();
            }
        }
        shared.update(&job);
        follower.poll();
        take(&mut follower);
        follower.poll();
        take(&mut follower);
        follower.poll();
        assert_eq!(take(&mut follower), 0, "an idle job's events do not wait");
        let before_end = follower.reader().summary().events as usize;
        assert_eq!(before_end, expected(&records).len());
        let file = job.end();
        shared.set_file(file);
        follower.poll();
        take(&mut follower);
        assert!(follower.reader().summary().complete);
        assert_eq!(follower.reader().damage(), []);
        same(&got, &records);
    }
}

#[test]
fn the_oldest_events_go_when_the_file_is_full_and_the_state_does_not() {
    let options = Options { max_size: Some(600 << 10), ..Options::default() };
    let mut job = Job::new(SMALL, 3, options, Memory::default());
    job.define(5);
    let mut life = Life::new();
    let mut records = Vec::new();
    for i in 0..400 {
        records.extend(live(&mut job, &mut life, 600, i));
        let (mut mark, after) = (Record { kind: Kind::ManualStep as u8, ..Record::default() }, 10);
        mark.a = i;
        let mark = job.stamp(mark, after);
        assert!(job.lanes[0].push(mark));
        records.push(mark);
    }
    job.seal();
    let sink = job.writer.as_ref().map(|w| w.sink()).unwrap();
    let on_disk = sink.bytes.len() as u64 - sink.punched;
    assert!(on_disk < 800 << 10, "{on_disk} of {} bytes kept", sink.bytes.len());
    let read = read_from(job.end(), None);
    assert_eq!(read.reader.damage(), []);
    let s = read.reader.summary();
    assert_eq!((s.dropped.len(), s.restored, s.complete), (1, 1, true));
    let d = s.dropped[0];
    assert!(d.first_step == 1 && d.last_step > 10 && d.last_step < 400, "{d:?}");
    assert!(!s.keeps_step(d.last_step) && s.keeps_step(d.last_step + 1));
    // What is kept is the end of what happened, without a hole.
    let want = plain(&expected(&records));
    let got = plain(&read.events);
    alike(&got, tail_of(&want, got.len()));
    assert!(got.len() > 2000);
    // The state at the beginning of what is kept, plus what is kept, is the state at the end.
    let state = read
        .items
        .iter()
        .find_map(|i| if let Item::Checkpoint(c) = i { Some(c.clone()) } else { None })
        .unwrap();
    assert_eq!(state.devices[0].drift, Bytes(0));
    assert_eq!(state.events as usize + got.len(), want.len());
    assert_eq!(state.steps, state.rows.last().map_or(0, |r| r.1.step));
    let change: i64 = got
        .iter()
        .map(|b| match b {
            Body::Alloc(b) => b.rounded.0 as i64,
            Body::FreeRequested(b) => -(b.rounded.0 as i64),
            _ => 0,
        })
        .sum();
    assert_eq!(state.devices[0].allocated.0 as i64 + change, life.allocated() as i64);
    assert!(read.items.iter().any(|i| matches!(i, Item::Dropped(_))));
    // Facts and definitions of the dropped part are still known.
    assert_eq!(read.reader.names().frames(StackId(5)).count(), 2);
}

#[test]
fn where_nothing_can_be_given_back_events_stop_and_the_end_is_still_told() {
    let options = Options { max_size: Some(600 << 10), ..Options::default() };
    let mut job = Job::new(SMALL, 3, options, Memory { cannot_punch: true, ..Memory::default() });
    job.define(5);
    let mut life = Life::new();
    let mut records = Vec::new();
    for i in 0..400 {
        records.extend(live(&mut job, &mut life, 600, i));
    }
    let file = job.end();
    assert!(file.len() < 900 << 10, "{}", file.len());
    let read = read_from(file, None);
    assert_eq!(read.reader.damage(), []);
    let s = read.reader.summary();
    assert_eq!((s.dropped.len(), s.restored, s.complete), (1, 1, true));
    assert!(s.facts.contains_key("events_stopped_by_max_size"));
    let want = plain(&expected(&records));
    alike(&plain(&read.events), &want[..read.events.len()]);
    let state = read
        .items
        .iter()
        .find_map(|i| if let Item::Checkpoint(c) = i { Some(c.clone()) } else { None })
        .unwrap();
    assert_eq!((state.events as usize, state.blocks.len()), (want.len(), life.live()));
    assert_eq!(state.devices[0].allocated, Bytes(life.allocated()));
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
fn a_damaged_page_costs_its_records_and_the_next_chunk_restores_the_state() {
    let options = Options { max_size: Some(3 << 20), ..Options::default() };
    let mut job = Job::new(SMALL, 3, options, Memory::default());
    job.define(5);
    let mut life = Life::new();
    let mut records = Vec::new();
    for i in 0..150 {
        records.extend(live(&mut job, &mut life, 600, i));
    }
    let mut file = job.end();
    let whole = read_from(file.clone(), None);
    same(&whole.events, &records);
    for b in &mut file[20_000..20_040] {
        *b ^= 0x55;
    }
    let read = read_from(file, None);
    assert!(!read.reader.damage().is_empty());
    assert!(read.reader.damage().iter().any(|d| d.records.is_some_and(|n| n > 10)));
    assert_eq!(read.reader.summary().restored, 1);
    let at = read.items.iter().find_map(|i| match i {
        Item::Checkpoint(c) => Some(c.events),
        _ => None,
    });
    // After the checkpoint, everything is there once.
    let after = plain(&whole.events)[at.unwrap() as usize..].to_vec();
    alike(tail_of(&plain(&read.events), after.len()), &after);
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

/// Figures, not a test: `cargo test --release --test recording -- --ignored --nocapture figures`.
#[test]
#[ignore = "prints figures; run it in release"]
fn figures() {
    use std::time::Instant;
    let geometry = Geometry { lanes: 15, records: 32_768, overflow: 4096, definitions: 1 << 20 };
    for name in ["a_offload_vl", "a_offload_text", "b_tracker", "c_fastllm"] {
        let path = Path::new("tests/leakbench/events").join(format!("{name}.events.gz"));
        let mut job = Job::new(geometry, 1, Options { max_size: None, ..Options::default() }, Memory::default());
        let records = leakbench(&path, &mut job);
        let end = job.now;
        let entries: usize = expected(&records).iter().filter(|e| !matches!(e.body, Body::ManualStep(_))).count();
        let (mut at, rounds) = (BEGAN, 10);
        let mut written = std::time::Duration::ZERO;
        for round in 0..rounds {
            for r in &records {
                let mut r = *r;
                r.ticks += round * (end - BEGAN);
                while !job.lanes[0].push(r) {
                    unreachable!("swept in time");
                }
                // The drain looks every 10 ms.
                if r.ticks - at > 10_000_000 {
                    (at, job.now) = (r.ticks, r.ticks);
                    let t = Instant::now();
                    job.sweep().unwrap();
                    written += t.elapsed();
                }
            }
        }
        let t = Instant::now();
        let file = job.end();
        written += t.elapsed();
        let n = records.len() * rounds as usize;
        let t = Instant::now();
        let mut reader = Reader::from_source(Box::new(file.clone()), None).unwrap();
        let mut events = 0;
        while let Some(b) = reader.next_batch() {
            if let Batch::Events(e) = b {
                events += e.len();
            }
        }
        let took = t.elapsed();
        println!(
            "{name}: {n} records, {} entries, {:.2} bytes an entry, {:.0} ns a record written, {:.1} M events/s read, {} damage",
            entries * rounds as usize,
            file.len() as f64 / (entries * rounds as usize) as f64,
            written.as_nanos() as f64 / n as f64,
            events as f64 / took.as_secs_f64() / 1e6,
            reader.damage().len(),
        );
    }
}
