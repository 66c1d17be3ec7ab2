//! What happens to a recording that may not grow, or lost a part: the state goes on from a checkpoint.

use crate::job::{Job, Life, SMALL, alike, expected, live, plain, read_from, same, tail_of};
use strandline::event::{Body, Bytes, Item, StackId};
use strandline::format::raw::{Kind, Record};
use strandline::writer::{Memory, Options};

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
    assert!(sink.bytes.len() <= 600 << 10, "{} bytes", sink.bytes.len());
    let read = read_from(job.end(), None);
    assert_eq!(read.reader.damage(), []);
    let s = read.reader.summary();
    assert_eq!((s.dropped.len(), s.restored, s.complete), (1, 1, true));
    let d = s.dropped[0];
    assert!(d.first_step == 1 && d.last_step > 10 && d.last_step < 400, "{d:?}");
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
fn a_kill_at_any_moment_leaves_what_was_told_before() {
    let options = Options { max_size: Some(120 << 10), ..Options::default() };
    let mut job = Job::new(SMALL, 3, options, Memory::default());
    job.define(5);
    let (mut life, mut longest, mut least) = (Life::new(), 0, usize::MAX);
    for i in 0..120 {
        live(&mut job, &mut life, 300, i);
        job.seal();
        let file = job.writer.as_ref().map(|w| w.sink().bytes.clone()).unwrap();
        longest = longest.max(file.len());
        let read = read_from(file, None);
        assert_eq!(read.reader.damage(), [], "after {i}");
        let dropped: u64 = read.reader.summary().dropped.iter().map(|d| d.records).sum();
        assert!(dropped == 0 || read.reader.summary().restored == 1, "after {i}");
        if dropped > 0 {
            least = least.min(read.events.len());
        }
    }
    assert!(longest <= 120 << 10, "{longest} bytes");
    assert!((500..1_000_000).contains(&least), "{least} events were kept");
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
