//! What the writing thread looks after. Each room says what has to be done now and then; nobody but this knows all of them.

use crate::probe::Probe;
use crate::python::packages;
use crate::recorder::devices;
use crate::recorder::{self, Housekeeping};
use crate::torch::attach::{self, Callbacks};
use crate::{control, hooks, late, pluggable, stacks, steps, torch};
use serde_json::{Value, json};

/// All of it, in the order of a round.
pub(super) fn all(probe: Probe) -> Vec<Box<dyn Housekeeping>> {
    let step_ns = recorder::step_time().map(|time| time.as_nanos() as u64);
    let fraction = |_: u64| {
        torch::fraction::poll();
        None
    };
    let step_hooks = |_: u64| {
        steps::retry();
        None
    };
    let mut all: Vec<Box<dyn Housekeeping>> = vec![
        Box::new(packages::look()),
        Box::new(fraction),
        Box::new(Devices { told: 0 }),
        Box::new(step_hooks),
        Box::new(triggers()),
        Box::new(Stacks { due: 1 }),
        Box::new(probe),
    ];
    all.extend(step_ns.map(|time| Box::new(clock(time)) as Box<dyn Housekeeping>));
    all
}

/// What hooks begin and others go on with, when we attach to PyTorch's allocator.
pub(super) fn callbacks() -> Callbacks {
    Callbacks {
        prepare: || {
            // What of PyTorch was not loaded when the process armed itself: found now, outside of the allocator's lock.
            hooks::resolve_all();
            hooks::autograd::prepare();
        },
        // SAFETY: the caller's promise: the object is a pluggable allocator of PyTorch's.
        own_allocator: |object| unsafe { pluggable::is_our_object(object) }.then(pluggable::facts),
        attached: || {
            super::exit::end_at_exit();
            steps::install();
        },
        not_recorded: || late::unpatch_triggers(hooks::attach_trigger()),
    }
}

/// Takes away the hooks that are called thousands of times a step, once they have nothing to do any more.
fn triggers() -> impl FnMut(u64) -> Option<Value> + Send {
    let (mut attaches, mut asks_python) = (true, true);
    move |_| {
        if attaches && attach::is_settled() {
            attaches = false;
            late::unpatch_triggers(hooks::attach_trigger());
        }
        if asks_python && attach::is_settled() && !steps::waits_for_python() {
            asks_python = false;
            late::unpatch_triggers(hooks::python_trigger());
        }
        None
    }
}

/// Tells of devices when something about them has changed.
struct Devices {
    told: u32,
}

impl Housekeeping for Devices {
    fn poll(&mut self, _: u64) -> Option<Value> {
        let changes = devices::changes();
        if changes == self.told {
            return None;
        }
        self.told = changes;
        self.last_facts()
    }

    fn last_facts(&mut self) -> Option<Value> {
        Some(json!({ "devices": devices::facts() }))
    }
}

/// Defines stacks that were seen, reads the tables of libraries that came, and tells how many stacks could not be defined.
struct Stacks {
    due: u64,
}

impl Housekeeping for Stacks {
    fn poll(&mut self, _: u64) -> Option<Value> {
        stacks::retry();
        hooks::refresh_runtimes();
        stacks::intern::poll();
        let undefined = stacks::intern::undefined();
        (undefined >= self.due).then(|| {
            self.due = undefined.saturating_mul(2);
            json!({ "stacks_undefined": undefined })
        })
    }

    fn resident(&self) -> u64 {
        stacks::tables::resident()
    }

    fn last_facts(&mut self) -> Option<Value> {
        stacks::intern::poll();
        Some(json!({ "stacks_undefined": stacks::intern::undefined() }))
    }
}

/// Ends steps that are so many nanoseconds long, where steps are that.
fn clock(time: u64) -> impl FnMut(u64) -> Option<Value> + Send {
    let mut steps = 0;
    move |elapsed_ns: u64| {
        // A round that came late ends one step, however many it slept through.
        let ended = elapsed_ns.checked_div(time).unwrap_or(0);
        if ended > steps {
            steps = ended;
            control::strandline_step(ended);
        }
        None
    }
}
