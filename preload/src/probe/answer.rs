//! What is told of a finding: the fact `holders` of the recording.

use super::named::{Named, Rank};
use super::names::Scope;
use super::remembered::Remembered;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What a sample is named by, and the nearest name on the way.
type Way<'a> = (&'a Named, Option<&'a Named>);

/// Most holders that are told of a finding, and most names on the way of one.
const MOST: usize = 3;
const NAMES: usize = 8;
/// Level of a name whose entries are the tensors themselves.
const ENTRY: u32 = 2;
/// Attributes of one object, each with samples of its own, of which one says nothing.
const ATTRIBUTES: u32 = 4;
/// Containers of modules and of parameters.
const MODULES: [&str; 4] = ["ModuleList", "ModuleDict", "ParameterList", "ParameterDict"];

/// A finding's answer. `group`: its samples; `found`: samples that are tensors of Python's, or (`gradients`) gradients of such, or kept by graphs
/// of gradients alone (`by_gradients`); what was named on the way up from those, and from the tops of graphs; `weights`: for how much of the memory each sample stands, by its bit.
pub(super) fn answer_for(
    about: &Value,
    group: u64,
    [found, gradients, by_gradients]: [u64; 3],
    climbed: &[Named],
    risen: &[Named],
    weights: &[u64],
) -> Value {
    let parts = parts(climbed, group);
    let dictionaries = dictionaries(climbed, &parts);
    let mut places: HashMap<(&str, bool), Vec<Way<'_>>> = HashMap::new();
    let mut masks: HashMap<(&str, bool), u64> = HashMap::new();
    for bit in (0..64).map(|i| 1u64 << i).filter(|b| group & b != 0) {
        let (direct, above) = (best(climbed, bit, &parts, group), best(risen, bit, &[], group));
        let chosen = match (direct, above) {
            (Some(d), Some(a)) if !d.is_final && !d.has_modules => Some((a, true)),
            (Some(d), _) => Some((d, false)),
            (None, a) => a.map(|a| (a, true)),
        };
        let Some((named, graph)) = chosen else { continue };
        // A list that has the object says nothing of its attributes, and one global of many nothing of the others.
        let has_all = |d: &&Named| climbed.iter().any(|n| n.mask & bit != 0 && n.owner == d.owner);
        let is_some = !graph && (named.entries.is_some() || parts.contains(&named.owner));
        let named = dictionaries.iter().find(has_all).filter(|_| is_some).unwrap_or(named);
        // The nearest name on the way, where it is another one.
        let near = climbed.iter().filter(|n| n.mask & bit != 0).min_by_key(|n| (n.level, n.rank));
        let near = near.filter(|n| n.place != named.place && (graph || n.level < named.level));
        let near = near.filter(|n| !parts.contains(&n.owner));
        // That a container of modules keeps parameters by way of its modules says nothing.
        let near = near.filter(|n| !named.has_modules || n.part.is_none());
        places.entry((&named.place, graph)).or_default().push((named, near));
        *masks.entry((&named.place, graph)).or_default() |= bit;
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by_key(|(place, all)| (std::cmp::Reverse(all.len()), *place));
    let samples = group.count_ones();
    let holders: Vec<Value> = places
        .iter()
        .take(MOST)
        .filter_map(|((place, graph), all)| {
            // Of several objects with the name the one that most is in.
            let (named, _) = all.iter().max_by_key(|(n, _)| n.entries)?;
            let mask = masks.get(&(*place, *graph)).copied().unwrap_or(0);
            let on_the_way = climbed.iter().filter(|n| n.mask & mask != 0);
            let mut holder = holder(named);
            let ways = if *graph { [risen, climbed] } else { [climbed, risen] };
            let more = json!({
                "graph": graph,
                "gradient": mask & !(if *graph { by_gradients } else { gradients }) == 0,
                "direct": !graph && named.entries.is_some() && all.iter().all(|(n, _)| n.level == ENTRY && n.object == named.object),
                "through": through(all),
                "blocks": all.len(),
                "weight": weight(weights, mask),
                "root": named.is_rebound || ways.iter().flat_map(|w| w.iter()).any(|n| n.mask & mask != 0 && n.rank.is_root()),
                "part": named.part.or_else(|| on_the_way.filter(|_| !graph).find_map(|n| n.part)),
                "names": names(mask, named, &ways),
            });
            if let (Value::Object(holder), Value::Object(more)) = (&mut holder, more) {
                holder.extend(more);
            }
            Some(holder)
        })
        .collect();
    let reason = match (holders.is_empty(), found & group) {
        (false, _) => Value::Null,
        (true, 0) => "no Python tensor or its autograd graph uses these blocks, so PyTorch's C++ code or an extension holds them".into(),
        (true, _) => "no named Python object holds their tensors; C code may hold them, in an extension or a capsule".into(),
    };
    let status = if holders.is_empty() { "not_found" } else { "found" };
    json!({ "about": about, "status": status, "holders": holders, "reason": reason, "blocks": samples, "weight": weight(weights, group) })
}

/// The sum of the weights of these samples.
fn weight(weights: &[u64], mask: u64) -> u64 {
    let mine = weights.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
    mine.fold(0, |sum, (_, weight)| sum.saturating_add(*weight))
}

/// The nearest name on the way to at least half of these samples: a loop's variable has the newest alone.
fn through<'a>(all: &[(&Named, Option<&'a Named>)]) -> Option<&'a str> {
    let near = || all.iter().filter_map(|(_, near)| near.map(|n| n.place.as_str()));
    let many = |place: &&str| near().filter(|p| p == place).count();
    near()
        .max_by_key(|place| (many(place), std::cmp::Reverse(*place)))
        .filter(|place| many(place) * 2 >= all.len())
}

/// What is told of a holder, whatever it holds.
fn holder(named: &Named) -> Value {
    let bound = named.bound.map(|b| json!({ "kind": b.what, "entries": b.most }));
    json!({
        "name": named.place,
        "type": named.kind,
        "entries": named.entries,
        "bound": bound,
        "rebound": named.is_rebound,
        "awaited": named.is_awaited,
        "scope": named.scope.to_json(named.rank.name()),
    })
}

/// Every other name that these samples are below, the nearest first.
fn names(mask: u64, chosen: &Named, all: &[&[Named]]) -> Vec<Value> {
    let mut told: Vec<&Named> = Vec::new();
    for some in all {
        let mut mine: Vec<&Named> = some.iter().filter(|n| n.mask & mask != 0).collect();
        mine.sort_by_key(|n| (n.level, n.rank));
        for n in mine {
            if n.place != chosen.place && told.len() < NAMES && told.iter().all(|t| t.place != n.place) {
                told.push(n);
            }
        }
    }
    // Each of many closures has an object of its own under the same name.
    let below = |n: &Named| {
        let same = all.iter().flat_map(|some| some.iter()).filter(|m| m.place == n.place);
        same.fold(0, |sum, m| sum | m.mask) & mask
    };
    let one = |n: &&Named| {
        let mut scope = n.scope.to_json(n.rank.name());
        scope["type"] = n.kind.clone().into();
        scope["entries"] = n.entries.into();
        scope["rebound"] = n.is_rebound.into();
        scope["name"] = n.place.clone().into();
        scope["direct"] = (n.entries.is_some() && n.level == ENTRY).into();
        scope["blocks"] = below(n).count_ones().into();
        scope
    };
    told.iter().map(one).collect()
}

/// Objects that have most of the samples, each in an attribute of its own: `setattr(store, f"batch{i}", x)`. Who has such an object has all
/// of them. So it is with modules that have most of them, each in a global of its own.
fn parts(climbed: &[Named], group: u64) -> Vec<Remembered> {
    let mut found: HashMap<Remembered, (u32, u64)> = HashMap::new();
    let is_own = |n: &Named| n.rank == Rank::Attribute || n.rank == Rank::Global && n.kind == "Tensor";
    let is_one = |n: &&Named| is_own(n) && n.entries.is_none() && n.mask & group != 0;
    for n in climbed.iter().filter(is_one) {
        let (names, masks) = found.entry(n.owner).or_default();
        // One that has some of the others' samples as well holds more than its own.
        *names += u32::from(n.mask & group & *masks == 0);
        *masks |= n.mask & group;
    }
    let is_it = |names: u32| names >= ATTRIBUTES && names * 2 > group.count_ones();
    found.into_iter().filter(|(_, (names, _))| is_it(*names)).map(|(owner, _)| owner).collect()
}

/// The dictionaries that such objects and modules have their attributes in.
fn dictionaries(climbed: &[Named], parts: &[Remembered]) -> Vec<Named> {
    let one = |owner: &Remembered| climbed.iter().find(|n| n.owner == *owner && n.entries.is_none());
    let dictionary = |n: &Named| {
        let owner = n.place.strip_suffix(n.scope.variable.as_str()).unwrap_or_default();
        let scope = Scope { variable: "__dict__".to_string(), ..n.scope.clone() };
        Named { place: format!("{owner}__dict__"), kind: "dict".to_string(), scope, ..n.clone() }
    };
    parts.iter().filter_map(one).map(dictionary).collect()
}

/// The name that says most of a sample. `parts`: as of [`parts`].
fn best<'a>(all: &'a [Named], bit: u64, parts: &[Remembered], group: u64) -> Option<&'a Named> {
    let mine = || all.iter().filter(|n| n.mask & bit != 0);
    // Parameters lie below modules, and these in a list of modules: that is what grows.
    let is_in_module = mine().any(|n| n.part == Some("module"));
    let is_list = |n: &Named| is_in_module && MODULES.contains(&n.kind.as_str());
    // Where nothing of Python's own piles up, each layer of a model may have a container of modules of its own, all of which grow.
    let is_of_modules = |n: &Named| n.scope.variable == "_modules";
    let is_piled = mine().any(|n| n.piles && !n.is_wrapper && !n.has_modules && !is_of_modules(n));
    let is_of_layers = |n: &Named| {
        let same = all.iter().filter(|m| m.has_modules && m.place == n.place);
        let mask = same.fold(0, |mask, m| mask | m.mask) & group;
        n.has_modules && n.entries.is_some() && !is_piled && mask.count_ones() * 2 >= group.count_ones()
    };
    // What only has the container that grows.
    let has_one = |n: &Named| is_of_modules(n) && mine().any(|m| is_of_layers(m) && m.owner == n.owner);
    mine().min_by_key(|n| {
        let is_of_layers = is_of_layers(n);
        let is_own = n.is_final || n.scope.is_of_user();
        let is_part = n.rank == Rank::Attribute && parts.contains(&n.owner);
        (
            n.is_wrapper || n.part.is_some() || is_part || has_one(n),
            !(n.is_final || is_of_layers),
            !(n.piles || is_of_layers),
            !is_list(n),
            !is_own,
            n.rank,
            n.level,
        )
    })
}

/// The answer to findings that could not be asked about.
pub(super) fn not_run(about: &Value, reason: &str) -> Value {
    json!({ "about": about, "status": "not_run", "holders": [], "reason": reason, "blocks": 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::named::tests::named;

    #[test]
    fn the_place_that_most_is_in_comes_first_and_the_way_is_told() {
        let climbed = [
            named("Rec.loss", 1, false, 1),
            named("Rec.loss", 2, false, 1),
            named("Trainer.history", 3, true, 3),
            named("__main__.trainer", 3, true, 5),
            named("Other.cache", 4, true, 2),
            named("FunctionBackward.context", 8, false, 2),
        ];
        let risen = [named("__main__.losses", 8 | 16, true, 2)];
        let answer = answer_for(&json!({"n": 1}), 31, [15, 0, 0], &climbed, &risen, &[8, 0, 8, 4, 4]);
        let told = |i: usize, key: &str| answer["holders"][i][key].clone();
        assert_eq!((&answer["status"], &answer["blocks"]), (&json!("found"), &json!(5)));
        assert_eq!((told(0, "name"), told(0, "blocks")), (json!("Trainer.history"), json!(2)));
        assert_eq!((told(0, "through"), told(0, "graph")), (json!("Rec.loss"), json!(false)));
        assert_eq!((told(0, "weight"), &answer["weight"]), (json!(8), &json!(24)));
        assert_eq!((told(1, "name"), told(1, "graph")), (json!("__main__.losses"), json!(true)));
        assert_eq!(told(1, "through"), json!("FunctionBackward.context"));
        assert_eq!((told(2, "name"), told(2, "through")), (json!("Other.cache"), Value::Null));
    }

    #[test]
    fn a_name_on_the_way_that_many_objects_have_stands_for_all_of_them() {
        let mut climbed = vec![named("__main__.net", 7, true, 4)];
        climbed.extend([1, 2, 4].map(|bit| named("a closure of hook", bit, false, 1)));
        let answer = answer_for(&json!(1), 7, [7, 0, 0], &climbed, &[], &[]);
        let names = answer["holders"][0]["names"].as_array().expect("names");
        assert_eq!(names.iter().map(|n| &n["blocks"]).collect::<Vec<_>>(), [&json!(3)]);
    }

    #[test]
    fn who_has_an_object_with_a_new_attribute_for_each_has_them_all() {
        let store = Named {
            rank: Rank::Local,
            owner: Remembered::of(9),
            entries: None,
            ..named("store, a local of run", 31, false, 3)
        };
        let of = |i: u32| Named { entries: None, ..named(&format!("Store.batch{i}"), 1 << i, false, 1) };
        let with = |n: u32| (0..n).map(of).chain([store.clone()]).collect::<Vec<_>>();
        let first = |all: &[Named], group| {
            answer_for(&json!(1), group, [group, 0, 0], all, &[], &[])["holders"][0].clone()
        };
        let many = first(&with(5), 31);
        assert_eq!((&many["name"], &many["through"]), (&json!("store, a local of run"), &Value::Null));
        // A few fields are no such thing, nor are containers, nor is one that has all of it.
        let lists = (0..5).map(|i| Named { entries: Some(3), ..of(i) }).collect::<Vec<_>>();
        for (few, group) in [(with(3), 7), (lists, 31)] {
            assert_eq!(first(&few, group)["name"], json!("Store.batch0"));
        }
        let all = [named("Store.all", 31, false, 1), store.clone()];
        assert_eq!(first(&all, 31)["name"], json!("Store.all"));
    }

    #[test]
    fn attributes_of_an_entry_of_a_list_and_globals_are_entries_of_one_dictionary() {
        let one = |rank: Rank, of: &str, i: u32| {
            let variable = format!("batch{i}");
            let place = format!("{of}.{variable}");
            let scope = Scope { variable, ..Scope::default() };
            Named { rank, scope, kind: "Tensor".into(), entries: None, ..named(&place, 1 << i, false, 1) }
        };
        let list = Named { owner: Remembered::of(7), ..named("Trainer.callbacks", 31, true, 3) };
        let dump = (0..5).map(|i| one(Rank::Attribute, "Dump", i)).chain([list]).collect::<Vec<_>>();
        let globals = (0..5).map(|i| one(Rank::Global, "__main__", i)).collect::<Vec<_>>();
        for (all, name) in [(dump, "Dump.__dict__"), (globals, "__main__.__dict__")] {
            let answer = answer_for(&json!(1), 31, [31, 0, 0], &all, &[], &[]);
            let holder = &answer["holders"][0];
            assert_eq!((&holder["name"], &holder["blocks"]), (&json!(name), &json!(5)), "{answer}");
            assert_eq!(
                (&holder["scope"]["variable"], &holder["through"]),
                (&json!("__dict__"), &Value::Null)
            );
        }
    }

    #[test]
    fn a_container_of_modules_has_the_parameters_and_not_the_module_that_has_it() {
        let module = |place: &str, level| named(place, 3, true, level);
        let climbed = [
            Named { part: Some("module"), is_wrapper: true, ..module("Linear._parameters", 2) },
            Named { is_wrapper: true, ..module("ModuleDict._modules", 4) },
            module("Model._modules", 6),
            Named { has_modules: true, kind: "Adapters".into(), ..module("Model.adapters", 5) },
        ];
        let holder = &answer_for(&json!(1), 3, [3, 0, 0], &climbed, &[], &[])["holders"][0];
        assert_eq!((&holder["name"], &holder["part"]), (&json!("Model.adapters"), &json!("module")));
        assert_eq!(holder["through"], Value::Null);
    }

    #[test]
    fn a_container_of_modules_in_each_layer_is_one_place_unless_copies_pile_up() {
        let scope = Scope { variable: "_modules".into(), ..Scope::default() };
        let layer = |i: u64| {
            let dict = Named {
                scope: scope.clone(),
                owner: Remembered::of(i),
                ..named("Layer._modules", 1 << i, true, 6)
            };
            let lora = Named {
                has_modules: true,
                is_final: false,
                piles: false,
                ..named("Layer.lora", 1 << i, false, 5)
            };
            [dict, Named { owner: Remembered::of(i), ..lora }]
        };
        let mut climbed: Vec<Named> = (0..6).flat_map(layer).collect();
        climbed.push(Named { entries: None, piles: false, ..named("__main__.opt", 63, true, 4) });
        let first =
            |all: &[Named]| answer_for(&json!(1), 63, [63, 0, 0], all, &[], &[])["holders"][0].clone();
        let holder = first(&climbed);
        assert_eq!((&holder["name"], &holder["blocks"]), (&json!("Layer.lora"), &json!(6)));
        climbed.push(named("snapshots, a local of main", 63, true, 9));
        assert_ne!(first(&climbed)["name"], json!("Layer.lora"));
    }

    #[test]
    fn nothing_found_says_why() {
        let none = answer_for(&json!(1), 3, [0, 0, 0], &[], &[], &[]);
        assert_eq!(none["status"], json!("not_found"));
        assert!(none["reason"].as_str().is_some_and(|r| r.contains("an extension holds them")));
        let unnamed = answer_for(&json!(1), 3, [1, 0, 0], &[], &[], &[]);
        assert!(unnamed["reason"].as_str().is_some_and(|r| r.contains("no named Python object")));
        assert_eq!(not_run(&json!(1), "off")["status"], json!("not_run"));
    }
}
