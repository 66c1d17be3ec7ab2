//! Recordings of what is still going on: real threads, and a reader that follows.

use crate::job::{BEGAN, Job, Life, SMALL, expected, live, read_from, same};
use strandline::event::Body;
use strandline::format::raw::Record;
use strandline::format::region::Geometry;
use strandline::reader::{Batch, Follower, Reader};
use strandline::writer::{Memory, Options};

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

/// Real threads under one device lock, a real drain that sweeps all the time, and a reader that looks meanwhile.
#[test]
fn threads_that_take_turns_come_out_in_their_turns() {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    const EACH: u32 = 20_000;
    let started = std::time::Instant::now();
    let clock = move || BEGAN + started.elapsed().as_nanos() as u64;
    let options = Options { seal_after_ns: 300_000, ..Options::default() };
    let geometry = Geometry { lanes: 4, records: 1 << 16, ..SMALL };
    let mut job = Job::new(geometry, 4, options, Memory::default());
    let lanes = std::mem::take(&mut job.lanes);
    let device = Mutex::new(0u32);
    let done = AtomicBool::new(false);
    // The threads wait for the sweeper now and then, so that it sweeps among them however the machine is loaded.
    let sealed = AtomicU32::new(0);
    const STAGE: u32 = EACH / 8;
    std::thread::scope(|s| {
        let threads: Vec<_> = lanes
            .into_iter()
            .map(|mut lane| {
                let (device, sealed) = (&device, &sealed);
                s.spawn(move || {
                    for i in 0..EACH {
                        while i % STAGE == 0 && sealed.load(Ordering::Acquire) < (i / STAGE).min(4) {
                            std::thread::yield_now();
                        }
                        let mut n = device.lock().unwrap();
                        let mut r = Record { ticks: clock(), a: u64::from(*n), ..Record::default() };
                        r.set_sequence(*n);
                        *n += 1;
                        *lane.open().unwrap() = r;
                        lane.opened().unwrap().set_rounded(512);
                        lane.publish();
                        drop(n);
                        if i % 512 == 0 {
                            std::thread::sleep(std::time::Duration::from_micros(200));
                        }
                    }
                    lane.release();
                })
            })
            .collect();
        s.spawn(|| {
            for t in threads {
                t.join().unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            job.now = clock();
            sealed.fetch_add(u32::from(job.sweep().unwrap().sealed), Ordering::Release);
        }
    });
    job.now = clock();
    let read = read_from(job.end(), None);
    assert_eq!(read.reader.damage(), []);
    assert!(read.reader.summary().sweeps > 3);
    let order = read.events.iter().map(|e| match e.body {
        Body::Alloc(b) => b.addr.0,
        _ => u64::MAX,
    });
    assert!(order.eq(0..4 * u64::from(EACH)));
}
