//! The descriptions of cuDNN's graph API, by which PyTorch asks for convolutions: attributes are kept as they were given. Two engines are offered
//! for each graph: one that takes what follows from the convolution in it, and a slower one that takes nothing, for where there is no memory left.
//! Numbers are those of `cudnn_graph_v9.h`.

use super::workspace::{Convolution, Direction};
use super::{run, status};
use crate::abi::{In, Out};
use crate::code::{Code, Outcome};
use crate::handle::Handles;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// `cudnnBackendAttributeType_t`: an attribute that is other descriptions.
const DESCRIPTIONS: i32 = 15;

/// `cudnnBackendAttributeName_t`, those that are read here.
mod name {
    pub(super) const STRIDES_OF_FILTER: i32 = 103;
    pub(super) const PADDINGS: [i32; 2] = [104, 105];
    pub(super) const HEURISTIC_GRAPH: i32 = 201;
    pub(super) const HEURISTIC_RESULTS: i32 = 202;
    pub(super) const ENGINE: i32 = 300;
    pub(super) const WORKSPACE_OF_CONFIGURATION: i32 = 303;
    pub(super) const SHARED_MEMORY: i32 = 304;
    pub(super) const CONFIGURATION: i32 = 401;
    pub(super) const WORKSPACE: i32 = 402;
    pub(super) const OPERATIONS: i32 = 801;
    pub(super) const TYPE: i32 = 901;
    pub(super) const DIMENSIONS: i32 = 902;
    pub(super) const STRIDES: i32 = 903;
    pub(super) const GRAPH: i32 = 1300;
    pub(super) const GLOBAL_INDEX: i32 = 1301;
}

/// A convolution's attributes: its description, weight, input and result.
const CONVOLUTIONS: [(Direction, [i32; 4]); 3] = [
    (Direction::Forward, [702, 703, 704, 705]),
    (Direction::Input, [708, 709, 710, 711]),
    (Direction::Weight, [714, 715, 716, 717]),
];

/// Engines by their numbers: the first takes a workspace.
const ENGINES: [u64; 2] = [0, 1];
/// What the second one takes longer: nanoseconds. PyTorch measures both where it is to find the fastest.
const SLOWER: u64 = 1_000;

/// What was given for an attribute.
#[derive(Clone, Debug)]
enum Value {
    /// Elements, as bytes of 1, 4 or 8 each.
    Plain(Vec<u8>),
    Descriptions(Vec<Arc<Description>>),
}

/// An attribute of one number of 64 bits.
fn number(value: u64) -> Value {
    Value::Plain(value.to_le_bytes().to_vec())
}

/// Attributes by name.
#[derive(Clone, Debug, Default)]
struct Description(BTreeMap<i32, Value>);

impl Description {
    fn children(&self, name: i32) -> &[Arc<Description>] {
        match self.0.get(&name) {
            Some(Value::Descriptions(children)) => children,
            _ => &[],
        }
    }

    fn child(&self, name: i32) -> Option<&Description> {
        self.children(name).first().map(Arc::as_ref)
    }

    /// An attribute of 64-bit numbers.
    fn numbers(&self, name: i32) -> Vec<u64> {
        match self.0.get(&name) {
            Some(Value::Plain(bytes)) => {
                bytes.chunks_exact(8).filter_map(|n| n.try_into().ok().map(u64::from_le_bytes)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Bytes of a tensor's element (`cudnnDataType_t`).
    fn width(&self) -> u64 {
        match self.0.get(&name::TYPE) {
            Some(Value::Plain(kind)) => match kind.first() {
                Some(0 | 4) => 4,
                Some(2 | 9) => 2,
                Some(1) => 8,
                _ => 1,
            },
            _ => 1,
        }
    }

    /// The convolution of an operation.
    fn convolution(&self) -> Option<Convolution> {
        let (direction, [of, w, x, y]) =
            CONVOLUTIONS.iter().find(|(_, names)| self.child(names[0]).is_some())?;
        let (of, w, x, y) = (self.child(*of)?, self.child(*w)?, self.child(*x)?, self.child(*y)?);
        let padded = name::PADDINGS.iter().any(|&side| of.numbers(side).iter().any(|&n| n != 0));
        Some(Convolution {
            direction: *direction,
            width: x.width(),
            channels_last: x.numbers(name::STRIDES).get(1) == Some(&1)
                && x.numbers(name::DIMENSIONS).get(1) != Some(&1),
            x: x.numbers(name::DIMENSIONS),
            w: w.numbers(name::DIMENSIONS),
            y: y.numbers(name::DIMENSIONS),
            plain: !padded && of.numbers(name::STRIDES_OF_FILTER).iter().all(|&n| n == 1),
        })
    }

    /// The engine of a plan or of a configuration.
    fn engine(&self) -> Option<&Description> {
        self.child(name::CONFIGURATION).unwrap_or(self).child(name::ENGINE)
    }

    /// Whether a plan is of the engine that takes a workspace.
    fn is_fast(&self) -> bool {
        self.engine().is_some_and(|engine| engine.numbers(name::GLOBAL_INDEX) == [ENGINES[0]])
    }

    /// What a plan or a configuration takes: bytes.
    fn workspace(&self) -> u64 {
        let graph = self.engine().filter(|_| self.is_fast()).and_then(|engine| engine.child(name::GRAPH));
        let operations = graph.map_or(&[][..], |graph| graph.children(name::OPERATIONS));
        operations
            .iter()
            .filter_map(|operation| operation.convolution())
            .map(|c| c.workspace())
            .max()
            .unwrap_or(0)
    }

    /// An attribute as it is read: as it was given, or as this library makes it.
    fn read(&self, name: i32) -> Option<Value> {
        match name {
            name::HEURISTIC_RESULTS => {
                let graph = self.0.get(&name::HEURISTIC_GRAPH)?;
                let configuration = |index: u64| {
                    let engine = Description(
                        [(name::GRAPH, graph.clone()), (name::GLOBAL_INDEX, number(index))].into(),
                    );
                    Arc::new(Description(
                        [(name::ENGINE, Value::Descriptions(vec![Arc::new(engine)]))].into(),
                    ))
                };
                Some(Value::Descriptions(ENGINES.map(configuration).into()))
            }
            name::WORKSPACE | name::WORKSPACE_OF_CONFIGURATION => Some(number(self.workspace())),
            name::SHARED_MEMORY => Some(Value::Plain(0_i32.to_le_bytes().into())),
            _ => self.0.get(&name).cloned(),
        }
    }
}

fn descriptions() -> MutexGuard<'static, Handles<Arc<Description>>> {
    static DESCRIPTIONS: LazyLock<Mutex<Handles<Arc<Description>>>> =
        LazyLock::new(|| Mutex::new(Handles::new(6)));
    DESCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of an element of an attribute of this type.
fn size(kind: i32) -> usize {
    match kind {
        2 | 24 => 1,
        0 | 3 | 5 | 6 | 26 => 8,
        _ => 4,
    }
}

/// How many elements of this type the value has.
fn count(value: &Value, kind: i32) -> usize {
    match value {
        Value::Plain(bytes) => bytes.len() / size(kind),
        Value::Descriptions(children) => children.len(),
    }
}

/// Makes an empty description.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBackendCreateDescriptor(_kind: i32, made: Out<usize>) -> i32 {
    status(made.set(descriptions().insert(Arc::default())))
}

/// It goes away; where it was made part of others, they keep it.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBackendDestroyDescriptor(description: usize) -> i32 {
    status(descriptions().remove(description))
}

/// It is complete.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBackendFinalize(description: usize) -> i32 {
    status(descriptions().get(description))
}

/// Gives it an attribute: `count` elements of a type.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBackendSetAttribute(
    description: usize,
    name: i32,
    kind: i32,
    count: i64,
    elements: In<u8>,
) -> i32 {
    status(set(description, name, kind, count, elements))
}

fn set(description: usize, name: i32, kind: i32, count: i64, elements: In<u8>) -> Outcome {
    let count = usize::try_from(count).map_err(|_| Code::INVALID_VALUE)?;
    let mut all = descriptions();
    let value = if kind == DESCRIPTIONS {
        let children = (0..count).map(|at| all.get(elements.cast::<usize>().at(at)?).cloned());
        Value::Descriptions(children.collect::<Result<_, _>>()?)
    } else {
        Value::Plain((0..count * size(kind)).map(|at| elements.at(at)).collect::<Result<_, _>>()?)
    };
    Arc::make_mut(all.get_mut(description)?).0.insert(name, value);
    Ok(())
}

/// Reads an attribute: at most `wanted` elements, and how many these are; without an array, how many there are. Descriptions are copied into those whose handles the array has.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBackendGetAttribute(
    description: usize,
    name: i32,
    kind: i32,
    wanted: i64,
    found: Out<i64>,
    elements: Out<u8>,
) -> i32 {
    status(get(description, name, kind, wanted, found, elements))
}

fn get(description: usize, name: i32, kind: i32, wanted: i64, found: Out<i64>, elements: Out<u8>) -> Outcome {
    let mut all = descriptions();
    let Some(value) = all.get(description)?.read(name) else {
        found.offer(0);
        return Ok(());
    };
    let room = usize::try_from(wanted).unwrap_or(0);
    let there = count(&value, kind);
    let told = if elements.wanted() { there.min(room) } else { there };
    found.offer(i64::try_from(told).map_err(|_| Code::INVALID_VALUE)?);
    match value {
        Value::Plain(bytes) => elements.fill(room * size(kind), bytes.into_iter()),
        Value::Descriptions(children) if elements.wanted() => {
            for (at, child) in children.into_iter().enumerate().take(room) {
                *all.get_mut(elements.cast::<usize>().at(at)?)? = child;
            }
        }
        Value::Descriptions(_) => {}
    }
    Ok(())
}

/// Runs a plan: it occupies the handle's stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnBackendExecute(handle: usize, plan: usize, _arguments: usize) -> i32 {
    let Ok(fast) = descriptions().get(plan).map(|plan| plan.is_fast()) else {
        return super::status::BAD_PARAM;
    };
    run(handle, (!fast).then_some(SLOWER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_plans_are_said_to_be_found_than_were_asked_for() {
        let made = || descriptions().insert(Arc::default());
        let (heuristic, mut room) = (made(), [made()]);
        let given = Value::Descriptions(vec![Arc::default()]);
        let _ = descriptions()
            .get_mut(heuristic)
            .map(|kept| Arc::make_mut(kept).0.insert(name::HEURISTIC_GRAPH, given));
        let mut ask = |wanted: i64, into: bool| {
            let mut found = -1_i64;
            // SAFETY: `found` and `room` live through the call, and `room` has one element, as `wanted` says where it is given.
            let (told, elements) = unsafe {
                (Out::new(&raw mut found), if into { Out::new(room.as_mut_ptr()) } else { Out::absent() })
            };
            let _ = get(heuristic, name::HEURISTIC_RESULTS, DESCRIPTIONS, wanted, told, elements.cast());
            found
        };
        assert_eq!(ask(0, false), 2);
        assert_eq!(ask(1, true), 1);
        let kept = descriptions()
            .get(room[0])
            .map(|configuration| configuration.read(name::SHARED_MEMORY).is_some());
        assert_eq!(kept, Ok(true));
        for made in [heuristic, room[0]] {
            assert!(descriptions().remove(made).is_ok());
        }
    }
}
