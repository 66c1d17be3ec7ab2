//! What is to be called as the interpreter ends (`atexit.register`), with its arguments. The collector does not know of it: the interpreter's state
//! points to an array of such calls, which is recognised by what is in it.

use super::named::{Place, Rank};
use super::names::Scope;
use super::objects::TYPE;
use super::world::World;
use crate::platform::memory::{at, is_address, range};

/// Words of the interpreter's state that are searched.
const SEARCHED: usize = 8_192;
/// Calls that are told at most, and that must look like some.
const MOST: u32 = 65_536;
const PROVED: usize = 8;
/// Words of a call: the function, its arguments, and those that are given by name.
const CALL: usize = 3;

/// The tuples of arguments of all calls.
///
/// # Safety
/// With the GIL held: what is registered is alive.
pub(super) unsafe fn arguments(w: &World) -> Vec<u64> {
    let (tuple, dict) = (w.python.tuple, w.python.dict);
    let is = |object: u64, kind: u64| kind != 0 && at::<1>(object + TYPE) == Some([kind]);
    let call = |place: u64| {
        let [function, arguments, by_name] = at::<CALL>(place)?;
        let is_one = is_address(function) && is(arguments, tuple) && (by_name == 0 || is(by_name, dict));
        is_one.then_some(arguments)
    };
    let calls = |array: u64, count: usize| -> Option<Vec<u64>> {
        // What is unregistered leaves its place empty.
        let all = range(array, count).into_iter().filter(|place| *place != 0).map(call);
        all.collect::<Option<Vec<u64>>>().filter(|all| !all.is_empty())
    };
    let is_some = |pair: &&[u64]| matches!(**pair, [array, counts] if is_address(array) && counts as u32 > 0);
    let state = range(w.interpreter, SEARCHED);
    let places = state.windows(2).filter(is_some).filter_map(|pair| {
        let (array, counts) = (*pair.first()?, *pair.last()?);
        let (count, room) = (counts as u32, (counts >> 32) as u32);
        let is_one = count <= room && room <= MOST;
        is_one.then(|| calls(array, PROVED.min(count as usize))).flatten()?;
        calls(array, count as usize)
    });
    places.flatten().collect()
}

/// What such arguments are called: by the function that they were handed to.
pub(super) fn place() -> Place {
    let (class, module) = (Some("atexit".into()), Some("atexit".into()));
    let scope = Scope { variable: "register".into(), class, module, ..Scope::default() };
    Place { rank: Rank::OfClass, text: "atexit.register".into(), scope, owner: 0 }
}
