//! What autograd graphs keep.

use super::{Folder, all_kept, holder, largest, marked, reports};

/// The graphs of views, and of nodes without their tensors, are walked as those of others: what they keep has its holder.
#[test]
fn what_a_graph_keeps_is_held_by_whoever_has_the_view_or_the_node() {
    let folder = Folder::new("views");
    let cases = ["views_with_a_graph", "nodes_of_graphs"];
    for ((case, holder), report) in
        cases.iter().zip(["firsts, a local", "nodes, a local"]).zip(reports(&folder, &cases))
    {
        let details = largest(&report)["held_by"]["details"].as_array().expect("details");
        let names: Vec<&str> = details.iter().filter_map(|d| d["name"].as_str()).collect();
        assert!(!names.is_empty() && names.iter().all(|n| n.starts_with(holder)), "{details:#?}");
        assert!(details.iter().any(|d| d["graph"] == true), "{details:#?}");
        assert_eq!(largest(&report)["kept_at"]["line"], marked(case));
        // It is never emptied: what had gone as the job ended was not counted again.
        assert!(details.iter().all(|d| d["shrank"] == false), "{details:#?}");
    }
}

/// A graph through which autograd refuses a backward is a leak; another one is not known to be.
#[test]
fn a_graph_that_a_backward_can_go_through_is_not_called_a_leak() {
    let folder = Folder::new("awaited");
    let cases = ["of_a_sum", "of_an_actor_that_waits", "of_a_part_that_waits", "of_an_unsaved_weight"];
    for (report, case) in reports(&folder, &cases).iter().zip(cases) {
        let (all, (name, details)) = (largest(report), holder(largest(report)));
        let waits = all["remedy"]
            .as_str()
            .is_some_and(|r| r.contains("unless a later backward pass has to go back through it"));
        let said = (all["certainty"] == "growing", details["awaited"] == true, waits);
        assert_eq!(said, [case != "of_a_sum"; 3].into(), "{all:#?}");
        assert!(case == "of_a_sum" || name == format!("policy, a local of {case}"), "{name}");
        assert_eq!(all["kept_at"]["line"], marked(case));
    }
}

/// What a graph keeps by way of objects of Python's has the holder that the graph has: what was put on contexts, what hooks have packed, hooks of
/// nodes and their closures, notes.
#[test]
fn objects_that_graphs_keep_are_held_by_whoever_has_the_graph() {
    let of = |case: &'static str| (case, format!("losses, a local of {case}"));
    let cases = [
        "contexts_of_many_losses",
        "objects_on_contexts",
        "tuples_that_hooks_packed",
        "objects_that_hooks_packed",
        "hooks_of_nodes",
        "hooks_of_tensors_inside",
        "notes_on_nodes",
        "arguments_of_checkpoints",
    ]
    .map(of);
    all_kept(&cases.each_ref().map(|(case, name)| (*case, name.as_str())));
}
