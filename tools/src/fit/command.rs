//! `strandline fit`: from the options to the exit status.

use super::answer::{Answer, Varied};
use super::runs::{Runs, Stop};
use super::search::{Border, Point, listed, search};
use crate::error::{Error, status};
use crate::job::{Job, Variable, script_is_there};
use crate::nvml::{self, Nvml};
use crate::trial::{Card, Place, RunsFolder, Vary, find_place};
use crate::{cli, environment, say, terminal};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Runs the command; the result is the exit status: 86 where no value fits one of the cards, the job's own where it fails with a value.
///
/// # Errors
/// A value has no place in the command, no card is known, or the job could not be started.
pub(crate) fn main(options: &cli::Fit) -> Result<u8, Error> {
    let cards = if options.gpu.is_empty() { vec![own_card()?] } else { options.gpu.clone() };
    let alone = options.vary.len() == 1;
    let places: Vec<Place> = options
        .vary
        .iter()
        .map(|v| find_place(&options.command, &v.name, alone))
        .collect::<Result<_, Error>>()?;
    let mut given = options.vary.iter().zip(&places).enumerate();
    if let Some((_, (again, _))) = given.find(|(at, (_, place))| places[..*at].contains(place)) {
        let hint = "give all values of a name in one --vary, such as batch_size=1,2,4";
        let what = format!("--vary names {} twice", again.name);
        return Err(Error::usage(what, hint));
    }
    script_is_there(&options.command)?;
    let simulated = environment::prepare()?;
    let name = Job::new(&options.command, Some(&simulated)).name();
    let folder = RunsFolder::make(options.output.as_deref(), &name)?;
    let mut all = Vec::new();
    for at in 0..places.len() {
        let varied = vary(options, &simulated, &folder.path, &places, at, &cards)?;
        let failed = varied.failure.is_some();
        all.push(varied);
        if failed {
            break;
        }
    }
    if options.json {
        let told: Vec<_> = all.iter().map(|v| v.json(&cards)).collect();
        say::out(&format!("{:#}\n", json!({ "schema": 1, "varied": told })));
    } else {
        let style = terminal::style_of_stdout();
        all.iter().for_each(|v| _ = say::text(&v.text(style, &cards)));
    }
    let failed = all.iter().find_map(|v| v.failure.as_ref());
    let none = || all.iter().flat_map(|v| &v.answers).any(|a| a.border == Border::None);
    Ok(failed.map_or_else(|| if none() { status::DOES_NOT_FIT } else { 0 }, |f| f.status))
}

/// This machine's first GPU.
fn own_card() -> Result<Card, Error> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let found = Nvml::load().and_then(|nvml| {
        let device = *nvml::visible(&nvml, visible.as_deref()).first()?;
        let name = nvml.name(device).unwrap_or_else(|| "this machine's GPU".to_owned());
        Some(Card { name, bytes: nvml.usage(device)?.total })
    });
    found.ok_or_else(|| {
        let what = "this machine has no NVIDIA GPU, so it is not known which card the job has to fit";
        Error::usage(what, "name one, or its memory: --gpu h100, --gpu 24GiB")
    })
}

/// Varies one name, while the others stay as the command has them, or at their first value.
fn vary<'a>(
    options: &'a cli::Fit,
    simulated: &Path,
    folder: &Path,
    places: &'a [Place],
    at: usize,
    cards: &[Card],
) -> Result<Varied<'a>, Error> {
    let (asked, place): (&Vary, &Place) = (&options.vary[at], &places[at]);
    let (mut command, mut variables, mut others): (_, Vec<Variable>, _) =
        (options.command.clone(), Vec::new(), Vec::new());
    for (i, (other, place)) in options.vary.iter().zip(places).enumerate() {
        if i != at && !place.may_stay() {
            place.put(&other.values[0].to_string(), &mut command, &mut variables);
            others.push((other.name.as_str(), other.values[0]));
        }
    }
    let mut runs = Runs {
        simulated,
        options,
        cards,
        folder,
        name: &asked.name,
        place,
        command: &command,
        variables: &variables,
        needs: BTreeMap::new(),
        went_through: BTreeMap::new(),
    };
    let (mut answers, mut failure) = (Vec::new(), None);
    let mut answered = || -> Result<(), Stop> {
        if asked.each {
            asked.values.iter().try_for_each(|v| runs.run(*v))?;
        }
        for card in cards {
            let mut points: BTreeMap<u64, Point> = BTreeMap::new();
            let mut look = |i: usize| {
                let value = asked.values[i];
                let point = runs.look(value, card)?;
                points.insert(value, point);
                Ok::<Point, Stop>(point)
            };
            let count = asked.values.len();
            let border = if asked.each {
                let fits: Result<Vec<bool>, Stop> = (0..count).map(|i| Ok(look(i)?.fits)).collect();
                listed(&fits?)
            } else {
                search(count, card.bytes, look)?
            };
            answers.push(Answer { border, points });
        }
        Ok(())
    };
    match answered() {
        Ok(()) => {}
        Err(Stop::Error(error)) => return Err(error),
        Err(Stop::Failed(failed)) => failure = Some(failed),
    }
    Ok(Varied { asked, place, others, needs: runs.needs, answers, failure })
}
