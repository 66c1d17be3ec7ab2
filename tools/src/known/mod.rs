//! Leaks that are known, with their remedy: is this finding one of them, and is the fix installed?
//!
//! The list is of ours and of the user's (`list.rs`). The installed version is read from the `dist-info` beside the package that the
//! recording names, where the report is made on the machine that ran the job.

mod list;

use list::Leak;
pub(crate) use list::keep;

use crate::share::Share;
use crate::{holder, kept};
use std::borrow::Cow;
use std::fs;
use std::path::Path;
use strandline::detect::{Finding, Keeper, Owner, Testimony};
use strandline::event::{Frame, Names, SiteId};
use strandline::replay::Replay;
use strandline::report::{Fix, HeldBy, Holder, Known};

/// What is known of a finding. `began`: when its recording did, in nanoseconds of the Unix epoch. `share`: what has folded the replay's
/// lines, if they are; the user's source is not looked into then (see `Share::kept`).
pub(crate) fn about(
    finding: &Finding,
    replay: &Replay,
    names: &Names,
    began: u64,
    share: Option<&Share>,
) -> Known {
    let held_by = holder::held_by(finding, replay);
    let mut known = Known { fix: fix_of(finding, replay, &held_by, share), ..Known::default() };
    if share.is_none() {
        match kept::kept_at(finding, replay, &held_by, names, began) {
            Ok((one, other)) => (known.kept_at, known.kept_too) = (Some(one), other),
            Err(modified) => known.modified = modified,
        }
    }
    Known { held_by, ..known }
}

/// The remedy, where the finding is a known leak that the installed version has.
fn fix_of(finding: &Finding, replay: &Replay, held_by: &HeldBy, share: Option<&Share>) -> Option<Fix> {
    let mut lines: Vec<Cow<'_, Frame>> = replay.sites().iter().map(|s| Cow::Borrowed(&s.frame)).collect();
    if let Some(share) = share {
        lines.iter_mut().for_each(|line| *line = Cow::Owned(share.real(line)));
    }
    let of = |id: SiteId| lines.get(id.0 as usize).map(AsRef::as_ref);
    let frames: Vec<&Frame> = finding.sites.iter().filter_map(|s| of(s.site)).collect();
    let all: Vec<&Frame> = lines.iter().map(AsRef::as_ref).collect();
    let holders = match held_by {
        HeldBy::Found(all) => all.as_slice(),
        _ => &[],
    };
    let (kind, grain) = (finding.kind.name(), finding.grain.name());
    let what = What { kind, grain, frames: &frames, all: &all, holders };
    list::all().find_map(|leak| fix(leak, &what))
}

/// Part of the blocks that were asked about which a holder must have to be the cause.
const EXPLAINS: f64 = 0.4;

/// What is known of a finding beyond the events of its recording, for the judgement of it.
///
/// `began`: when its recording did, in nanoseconds of the Unix epoch.
pub(crate) fn testimony(finding: &Finding, replay: &Replay, began: u64, share: Option<&Share>) -> Testimony {
    if !finding.is_active_leak() && !finding.may_be_sparse_leak() {
        return Testimony::default();
    }
    let held_by = holder::held_by(finding, replay);
    let known = fix_of(finding, replay, &held_by, share).map(|fix| fix.known);
    let is_anew = |h: &Holder| h.rebound && kept::begins_anew(finding, replay, h, began);
    Testimony { known, keepers: keepers(&held_by, finding.last_step, &is_anew) }
}

/// Those who speak for a finding. Where all that were found explain little of it they do not: what they hold may only be allocated by the same
/// line. `step`: the one that is reported; `is_anew`: whether a name begins anew now and then.
fn keepers(held_by: &HeldBy, step: u32, is_anew: &dyn Fn(&Holder) -> bool) -> Vec<Keeper> {
    let HeldBy::Found(holders) = held_by else { return Vec::new() };
    // What does not grow explains nothing of what does.
    let (staying, growing): (Vec<&Holder>, Vec<&Holder>) = holders.iter().partition(|h| h.stays);
    let share = |all: &[&Holder]| all.iter().map(|h| h.share).sum::<f64>();
    let is_explained = share(&growing) >= EXPLAINS * (1.0 - share(&staying));
    let kept = growing.into_iter().filter(|h| !h.may_be_garbage());
    if is_explained { kept.map(|h| keeper(h, step, is_anew)).collect() } else { Vec::new() }
}

/// What the judgement asks of a holder.
fn keeper(h: &Holder, step: u32, is_anew: &dyn Fn(&Holder) -> bool) -> Keeper {
    let first = h.counts.first().map(|c| c.entries).or(h.entries);
    let looks = h.counts.iter().map(|c| (Some(c.entries), c.step)).chain([(h.entries, h.step)]);
    let looks = looks.filter_map(|(entries, at)| Some((entries?, at.unwrap_or(u32::MAX))));
    let last = h.counts.last().map(|c| c.entries).or(h.entries);
    Keeper {
        path: h.name.clone(),
        kind: h.kind.clone(),
        deepens: h.graph && h.rebound && !is_anew(h) || h.has_growing_gradients(),
        awaited: h.awaited,
        // What leaves a container is kept by the graph of its own gradient.
        bound: h.bound.as_ref().filter(|_| !(h.graph && h.gradient)).map(|b| b.entries),
        length_then: first,
        length_now: last,
        looked: looks.min_by_key(|(_, at)| at.abs_diff(step)),
        still: h.still(),
        shrank: h.shrank(),
        owner: match h.part.as_deref() {
            Some("optimizer") => Owner::Optimizer,
            Some("module") => Owner::Module,
            _ => Owner::Other,
        },
        blocks: h.blocks,
    }
}

/// What is asked about.
struct What<'a> {
    kind: &'a str,
    grain: &'a str,
    /// Lines that allocated what stays, most bytes first.
    frames: &'a [&'a Frame],
    /// All lines of the job that allocated anything.
    all: &'a [&'a Frame],
    /// Who holds it, where that was found.
    holders: &'a [Holder],
}

/// The remedy, if this is where the known leak allocates and the installed version does not have the fix.
fn fix(leak: &Leak, what: &What<'_>) -> Option<Fix> {
    if !leak.kinds.iter().any(|k| k == what.kind) || leak.grain.as_ref().is_some_and(|g| g != what.grain) {
        return None;
    }
    // A class of the same name may be anybody's: the package must have a part in the job.
    let is_there = |package: &String| what.all.iter().any(|f| is_in(&f.file, &format!("{package}/")));
    // One that explains little of it is not the cause.
    let held = || {
        what.holders.iter().filter(|h| h.share >= EXPLAINS).flat_map(|h| h.through.iter().chain([&h.name]))
    };
    let is_held = |name: &String| held().any(|of| of.contains(name.as_str()));
    if leak.held_by.as_ref().is_some_and(|name| !is_held(name) || !leak.package.iter().all(is_there)) {
        return None;
    }
    let here = |f: &Frame| {
        (leak.files.is_empty() || leak.files.iter().any(|file| is_in(&f.file, file)))
            && (leak.functions.is_empty() || leak.functions.iter().any(|name| f.function.contains(name)))
    };
    let is_in_other = |f: &&Frame| leak.without.iter().any(|name| f.function.contains(name));
    if what.frames.iter().any(is_in_other) {
        return None;
    }
    let frame = match &leak.with {
        Some(file) => what.all.iter().find(|f| is_in(&f.file, file)),
        None => what.frames.iter().find(|f| here(f)),
    }?;
    let package = leak.package.as_deref().unwrap_or_default();
    let name = leak.distribution.as_deref().unwrap_or(package);
    // What is held by a package's object may have been allocated by lines of others.
    let mut files = std::iter::once(frame).chain(what.all).map(|f| f.file.as_str());
    let installed = files.find_map(|file| version(file, package, name));
    let have = installed.as_ref().map(|v| format!(" (you have {v})")).unwrap_or_default();
    let is_before = |bound: &String| installed.as_deref().is_some_and(|v| order(v) < order(bound));
    if leak.since.as_ref().is_some_and(is_before) {
        return None;
    }
    let fixed = match &leak.fixed {
        // On this machine another version may be installed than the job had: what is not known is not denied.
        Some(fixed) if installed.is_some() && !is_before(fixed) => return None,
        Some(fixed) => format!("fixed in {name} {fixed}{have}: "),
        None => String::new(),
    };
    Some(Fix { known: leak.known.clone(), text: format!("{fixed}{}", leak.remedy) })
}

/// Whether a file is this one of a package, or below this folder of one (`fast_llm/`).
fn is_in(file: &str, part: &str) -> bool {
    match part.ends_with('/') {
        true => file.starts_with(part) || file.contains(&format!("/{part}")),
        false => file.ends_with(part),
    }
}

/// Version of the package that a file belongs to, which is installed as `name`: from the name of the `dist-info` beside the package, or of
/// the wheel it is in.
fn version(file: &str, package: &str, name: &str) -> Option<String> {
    let home = Path::new(file).ancestors().find(|a| a.file_name().is_some_and(|n| n == package))?.parent()?;
    let plain = |name: &str| name.to_lowercase().replace(['-', '.'], "_");
    let versioned = |entry: &str, end: &str| {
        let (of, version) = entry.strip_suffix(end)?.split_once('-')?;
        (plain(of) == plain(name)).then(|| version.to_string())
    };
    if let Some(wheel) = home.file_name().and_then(|n| versioned(n.to_str()?, ".whl")) {
        return wheel.split('-').next().map(str::to_string);
    }
    fs::read_dir(home).ok()?.flatten().find_map(|entry| versioned(entry.file_name().to_str()?, ".dist-info"))
}

/// A version's numbers, without zeros at their end, and whether it is more than a pre-release of them: in the order of PEP 440.
fn order(version: &str) -> (Vec<u64>, bool) {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    let (release, rest) = version.split_at(end);
    let mut numbers: Vec<u64> = release.split('.').map_while(|part| part.parse().ok()).collect();
    numbers.truncate(numbers.iter().rposition(|n| *n != 0).map_or(0, |last| last + 1));
    (numbers, !rest.starts_with(['a', 'b', 'r', 'd']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// What is said of a finding whose block `file` allocates below a folder where `installed` lies beside it.
    fn said(installed: Option<&str>, kind: &str, grain: &str, file: &str, function: &str) -> Option<Fix> {
        // One for each call: tests run side by side, and each takes its own away.
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let (pid, call) = (std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
        let home = std::env::temp_dir().join(format!("strandline-known-{pid}-{call}"));
        fs::create_dir_all(&home).unwrap();
        if let Some(name) = installed {
            fs::create_dir_all(home.join(format!("{name}.dist-info"))).unwrap();
        }
        let place = |file: &str| home.join(file).to_string_lossy().into_owned();
        let frame = Frame { file: place(file), line: 430, function: function.into() };
        let offload = Frame { file: place("trl/models/activation_offloading.py"), ..Frame::default() };
        let all = if installed.is_some_and(|i| i.starts_with("trl")) {
            vec![&frame, &offload]
        } else {
            vec![&frame]
        };
        let what = What { kind, grain, frames: &[&frame], all: &all, holders: &[] };
        let found = list::all().find_map(|leak| fix(leak, &what));
        fs::remove_dir_all(&home).unwrap();
        found
    }

    const OFFLOAD: &str = "trl/models/activation_offloading.py";
    const UNPACK: &str = "OffloadActivations.__init__.<locals>.unpack_tensor_with_streams";

    #[test]
    fn holders_of_little_of_it_do_not_speak_for_it() {
        let of = |share: f64| Holder { share, ..Holder::default() };
        let count = |shares: &[f64]| {
            keepers(&HeldBy::Found(shares.iter().map(|s| of(*s)).collect()), 0, &|_| false).len()
        };
        assert_eq!(
            [count(&[0.06]), count(&[0.1, 0.1]), count(&[0.33, 0.33, 0.33]), count(&[0.5])],
            [0, 0, 3, 1]
        );
        let told = |all: Vec<Holder>| {
            keepers(&HeldBy::Found(all), 0, &|_| false).iter().map(|k| k.blocks).collect::<Vec<_>>()
        };
        let ring = Holder { stays: true, blocks: 8, ..of(0.8) };
        let list = Holder { blocks: 2, ..of(0.2) };
        assert_eq!(
            (told(vec![list, ring.clone()]), told(vec![ring])),
            (vec![2], vec![]),
            "a ring holds none of what grows"
        );
    }

    #[test]
    fn a_known_leak_is_named_with_the_installed_version_and_the_remedy() {
        let side = |version| said(version, "live-after-stream-exit", "step", OFFLOAD, UNPACK);
        let fix = side(Some("trl-1.3.0")).unwrap();
        assert_eq!(fix.known, "huggingface/trl#5700");
        assert_eq!(
            fix.text,
            "fixed in trl 1.4.0 (you have 1.3.0): pip install -U \"trl>=1.5\" (1.4 fixes this leak, but not #5730)"
        );
        assert_eq!(side(Some("trl-1.16.0")), None, "1.16 is newer than 1.4: what is fixed is not proposed");
        assert!(side(None).is_some_and(|f| !f.text.contains("you have")), "on another machine");
        assert_eq!(
            said(Some("trl-1.3.0"), "deferred-free", "step", OFFLOAD, UNPACK),
            None,
            "another disease"
        );
    }

    #[test]
    fn every_known_leak_is_told_from_its_neighbours() {
        let told = |i, kind, grain, file, f| said(i, kind, grain, file, f).map(|f| f.known);
        let is = |known: &str| Some(known.to_string());
        for version in ["trl-1.3.0", "trl-1.4.1"] {
            let tracker = told(Some(version), "step-growth", "step", "site/model.py", "forward");
            assert_eq!(tracker, is("huggingface/trl#5730"), "{version}");
        }
        for version in [Some("trl-1.16.0"), Some("trl-1.5.0"), None] {
            assert_eq!(told(version, "step-growth", "step", "site/model.py", "forward"), None, "{version:?}");
        }
        let head = "fast_llm/layers/language_model/head.py";
        assert_eq!(told(None, "step-growth", "microbatch", head, "forward"), is("ServiceNow/Fast-LLM#486"));
        assert_eq!(told(None, "step-growth", "step", head, "forward"), None);
        let packed = "vllm/distributed/weight_transfer/packed_tensor.py";
        assert_eq!(
            told(Some("vllm-0.24.0"), "stranded-cache", "step", packed, "f"),
            is("vllm-project/vllm#52950")
        );
        assert_eq!(told(None, "step-growth", "step", packed, "f"), None);
        let megatron = "megatron/core/optimizer/distrib_optimizer.py";
        assert_eq!(told(None, "stranded-cache", "step", megatron, "f"), is("NVIDIA/Megatron-LM#6885"));
        let concat = "transformers/trainer_pt_utils.py";
        let nested = told(Some("transformers-5.0.0"), "step-growth", "microbatch", concat, "nested_concat");
        assert_eq!(nested, is("huggingface/transformers#7232"));
        assert_eq!(told(None, "step-growth", "step", "my/transformers/model.py", "nested_concat"), None);
        let masked = "torch/masked/maskedtensor/core.py";
        let data =
            |version| told(Some(version), "step-growth", "step", masked, "MaskedTensor._preprocess_data");
        assert_eq!(data("torch-2.4.1+cu124"), is("pytorch/pytorch#137890"));
        assert_eq!(data("torch-2.6.0+cu124"), None);
    }

    #[test]
    fn what_is_held_is_known_by_its_holder_where_the_package_has_a_part_in_the_job() {
        let frame = |file: &str| Frame { file: file.into(), line: 1, function: "rearrange".into() };
        let (line, own) = (frame("site/einops/einops.py"), frame("site/rotary_embedding_torch/rotary.py"));
        let holder = |name: &str, share| Holder { name: name.into(), share, ..Holder::default() };
        let known = |all: &[&Frame], holder: Holder| {
            let holders = [holder];
            let what = What { kind: "step-growth", grain: "step", frames: &[&line], all, holders: &holders };
            list::all().find_map(|leak| fix(leak, &what)).map(|f| f.known)
        };
        let told = |all: &[&Frame], name: &str| known(all, holder(name, 0.9));
        let rotary = Some("lucidrains/rotary-embedding-torch#15".to_string());
        assert_eq!(told(&[&line, &own], "RotaryEmbedding.cache"), rotary);
        assert_eq!(told(&[&line, &own], "MyModel.cache"), None, "another holder");
        let little = holder("RotaryEmbedding.cache", 0.1);
        assert_eq!(known(&[&line, &own], little), None, "most of it is held by others");
        let through =
            Holder { through: Some("RotaryEmbedding.cache".into()), ..holder("__main__.model", 0.9) };
        assert_eq!(known(&[&line, &own], through), rotary);
        assert_eq!(told(&[&line], "RotaryEmbedding.cache"), None, "a class of the user's own");
        let frame = |function: &str| Frame { function: function.into(), ..frame("peft/utils/other.py") };
        let (saved, moved) = (frame("ModulesToSaveWrapper.update"), frame("_move_adapter_to_device"));
        let adapters = |frames: &[&Frame]| {
            let holders = [holder("ModulesToSaveWrapper.modules_to_save", 0.5)];
            let what = What { kind: "step-growth", grain: "step", frames, all: frames, holders: &holders };
            list::all().find_map(|leak| fix(leak, &what)).map(|f| f.known)
        };
        assert_eq!(adapters(&[&saved]), Some("huggingface/peft#2466".to_string()));
        assert_eq!(adapters(&[&saved, &moved]), None, "adapters that were not deleted");
    }

    #[test]
    fn a_version_before_the_leak_and_one_after_it_are_not_accused() {
        let keops = |installed| said(installed, "step-growth", "step", "pykeops/torch/utils.py", "empty");
        assert_eq!(keops(Some("pykeops-2.2")).map(|f| f.known), Some("getkeops/keops#353".to_string()));
        assert_eq!(keops(Some("pykeops-2.1.2")), None);
        assert_eq!(keops(Some("pykeops-2.2.1")), None);
    }

    #[test]
    fn a_package_may_be_installed_under_another_name() {
        let step =
            |installed| said(installed, "step-growth", "step", "torch_sim/optimizers/lbfgs.py", "lbfgs_step");
        let fix = step(Some("torch_sim_atomistic-0.6.0")).unwrap();
        assert!(
            fix.text.starts_with("fixed in torch-sim-atomistic 0.6.1 (you have 0.6.0): "),
            "{}",
            fix.text
        );
        assert_eq!(step(Some("torch_sim_atomistic-0.6.1")), None);
    }

    #[test]
    fn versions_are_in_the_order_of_their_releases() {
        let rising = ["1", "1.0.3", "1.4.0rc1", "1.4.0", "1.4.1.dev0", "1.4.1", "1.16.0"];
        assert!(rising.is_sorted_by(|a, b| order(a) < order(b)));
        for same in ["1.4", "1.4.0", "1.4.0+cu121", "1.4.post1"] {
            assert_eq!(order(same), order("1.4.0"), "{same}");
        }
    }

    #[test]
    fn a_wheel_on_the_path_tells_its_version() {
        let file = |v: &str| format!("/w/trl-{v}-py3-none-any.whl/trl/models/activation_offloading.py");
        assert_eq!(version(&file("1.3.0"), "trl", "trl").as_deref(), Some("1.3.0"));
        assert_eq!(version("/w/trl/x.py", "vllm", "vllm"), None);
    }
}
