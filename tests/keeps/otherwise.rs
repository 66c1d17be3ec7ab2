//! What is kept in no usual way: under keys, by a comprehension, as a mask, as a part; beside something small; where the report says what to do.

use super::{Folder, all_kept, largest, marked, reports};

#[test]
fn keys_masks_comprehensions_and_what_is_large_beside_what_is_small() {
    all_kept(&[
        ("tensors_as_keys", "Reporter.names"),
        ("masks_of_a_function", "Quantized.masks"),
        ("made_by_a_comprehension", "__main__.folds"),
        ("large_beside_small", "Results.kept"),
    ]);
}

/// Leaks that grow in the same steps are one finding, of which no holder has most.
#[test]
fn each_of_several_that_keep_as_much_is_told_with_what_helps() {
    let folder = Folder::new("several");
    for report in reports(&folder, &["three_of_each_step"]) {
        let finding = largest(&report);
        let source = finding["kept_at"]["source"].as_str().unwrap_or_default();
        assert!(source.starts_with("self."), "{finding:#}");
        for helps in ["self.inputs.clear()", "self.outputs.clear()", "self.noise.clear()"] {
            assert!(finding["remedy"].as_str().is_some_and(|r| r.contains(helps)), "{helps}: {finding:#}");
        }
    }
}

/// The advice is for what a name was given, and not for the name alone.
#[test]
fn what_a_name_was_given_decides_what_helps() {
    let folder = Folder::new("given");
    let cases = [
        ("reduced_by_a_mean", "keep kl.item(), a number"),
        ("first_row_of_many", ".clone() the part that is needed"),
        ("stream_without_no_grad", "make it under torch.no_grad()"),
    ];
    for ((case, helps), report) in cases.into_iter().zip(reports(&folder, &cases.map(|(case, _)| case))) {
        let finding = largest(&report);
        assert_eq!(finding["kept_at"]["line"], marked(case), "{finding:#}");
        assert!(finding["remedy"].as_str().is_some_and(|r| r.contains(helps)), "{finding:#}");
    }
}
