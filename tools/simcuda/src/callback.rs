//! Functions that a program gives to a stream: they run on a thread of the device's own, one after the other, once the clock has reached
//! the end of the work before them; whoever waits for later work of any stream waits for them, too.

use crate::clock::Clock;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// How long the thread sleeps before it looks at the clock again: a test may have moved it.
const LOOK: Duration = Duration::from_micros(200);

/// What is to be called. May be sent to the thread that calls it.
pub type Call = Box<dyn FnOnce() + Send>;

struct Queue {
    /// Instants, and what is called then; the first one's call is gone while it runs.
    calls: VecDeque<(u64, Option<Call>)>,
    thread: Option<ThreadId>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { calls: VecDeque::new(), thread: None });
static CHANGED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls it once the clock, the process's only one, has reached `instant`. Where no thread can be had it is called here.
pub fn call_at(clock: &'static Clock, instant: u64, call: Call) {
    let mut queue = queue();
    // By their time: a stream's call does not wait for one of another stream that comes later. One that runs stays in front.
    let place = queue.calls.partition_point(|(at, call)| call.is_none() || *at <= instant);
    queue.calls.insert(place, (instant, Some(call)));
    if queue.thread.is_none() {
        let name = std::thread::Builder::new().name("cuda-callbacks".into());
        match without_signals(|| name.spawn(|| run(clock))) {
            Ok(thread) => queue.thread = Some(thread.thread().id()),
            Err(_) => {
                let alone = queue.calls.remove(place);
                drop(queue);
                clock.wait_until(instant);
                alone.and_then(|(_, call)| call).into_iter().for_each(|call| call());
                return;
            }
        }
    }
    CHANGED.notify_all();
}

/// Whether all that is to be called up to `instant` has been. What is called itself does not wait for itself.
pub fn are_done(instant: u64) -> bool {
    let queue = queue();
    is_own(&queue) || queue.calls.iter().all(|(at, _)| *at > instant)
}

/// Returns once that is so.
pub fn wait_until(instant: u64) {
    let mut queue = queue();
    while !is_own(&queue) && queue.calls.iter().any(|(at, _)| *at <= instant) {
        queue = CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

fn is_own(queue: &Queue) -> bool {
    !queue.calls.is_empty() && queue.thread == Some(std::thread::current().id())
}

fn run(clock: &Clock) {
    let mut queue = queue();
    loop {
        let due = queue.calls.front().is_some_and(|(at, _)| *at <= clock.now());
        let call = queue.calls.front_mut().filter(|_| due).and_then(|(_, call)| call.take());
        if let Some(call) = call {
            drop(queue);
            call();
            queue = self::queue();
            queue.calls.pop_front();
            CHANGED.notify_all();
        } else if queue.calls.is_empty() {
            queue = CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner);
        } else {
            queue = CHANGED.wait_timeout(queue, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Runs something with all signals blocked: a thread made there takes none of the program's.
fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are on this stack and are filled before they are read; the thread's own mask is put back.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let made = make();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_call_does_not_wait_for_one_that_comes_later() {
        let clock: &'static Clock = Box::leak(Box::new(Clock::new(true)));
        let (called, began) = (Arc::new(Mutex::new(Vec::new())), clock.now());
        for (name, instant) in [("late", 1000), ("early", 500), ("early too", 500)] {
            let called = called.clone();
            call_at(
                clock,
                began + instant,
                Box::new(move || called.lock().expect("not poisoned").push(name)),
            );
        }
        clock.wait_until(began + 500);
        wait_until(began + 500);
        assert_eq!(*called.lock().expect("not poisoned"), ["early", "early too"]);
        clock.wait_until(began + 1000);
        wait_until(began + 1000);
        assert_eq!(called.lock().expect("not poisoned").len(), 3);
    }
}
