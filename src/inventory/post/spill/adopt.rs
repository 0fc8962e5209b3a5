//! Adopts the batches of earlier runs that were killed, or whose server was away at their end. They are
//! sent before new batches, in order, in the name of their run. A killed run gets a last batch, so that
//! the server learns its end and its losses.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use super::entry::{Entry, Held, RunState, written};
use super::file::{BatchHead, Kind, RunHead, opened};
use super::folder::{Folder, Listed};
use super::name::{FileName, RunName};
use super::queue::Shared;
use crate::inventory::batch::{Author, FORMAT};
use crate::inventory::database::{Parcel, Time};

/// Files of a run.
#[derive(Debug, Default)]
struct Left {
    batches: Vec<(u64, Listed)>,
    end: Option<(u64, Listed)>,
}

/// Adopts the files of earlier runs; the caller holds the lock. `changed` is the time of the last change
/// by such a run.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn adopt(shared: &Shared, changed: Option<SystemTime>) -> io::Result<()> {
    let folder = &shared.folder;
    let mut all: BTreeMap<RunName, Left> = BTreeMap::new();
    for file in folder.files()? {
        match file.name.clone() {
            FileName::New(run) if run != shared.own => folder.remove(&file.file)?,
            FileName::Run(run) if run != shared.own => drop(all.entry(run).or_default()),
            FileName::Batch(run, number) if run != shared.own => {
                all.entry(run).or_default().batches.push((number, file));
            }
            FileName::End(run, number) if run != shared.own => {
                all.entry(run).or_default().end = Some((number, file));
            }
            _ => {}
        }
    }
    let (mut runs, mut entries) = (Vec::new(), Vec::new());
    for (name, left) in all {
        let state = known(folder, &name, &left);
        let in_file = |number, file: &Listed, is_end| {
            Entry::in_file(name.clone(), number, is_end, file.octets, file.written)
        };
        entries.extend(left.batches.iter().map(|(number, file)| in_file(*number, file, false)));
        match &left.end {
            Some((number, file)) => entries.push(in_file(*number, file, true)),
            None => entries.extend(end(folder, &name, &state, changed)?),
        }
        runs.push((name, state));
    }
    shared.adopt(runs, entries);
    Ok(())
}

/// Returns the state of a run from its file, or else from those of its batches.
fn known(folder: &Folder, name: &RunName, left: &Left) -> RunState {
    let file = folder.read(&name.file()).ok();
    let noted = file.as_deref().and_then(|octets| opened::<RunHead>(Kind::Run, octets));
    let (mut state, text) = match noted {
        Some((RunHead { up_to, lost }, text)) => (RunState { author: None, up_to, lost }, text),
        None => (RunState { author: None, up_to: 0, lost: 0 }, ""),
    };
    state.author = Author::of(text);
    if let Some((number, _)) = left.batches.last() {
        state.up_to = state.up_to.max(*number);
    }
    // The last readable batch holds all losses before it.
    for (_, file) in left.batches.iter().rev() {
        let Ok(octets) = folder.read(&file.file) else { continue };
        let Some((head, text)) = opened::<BatchHead>(Kind::Batch, &octets) else { continue };
        state.lost = state.lost.max(head.lost);
        state.author = state.author.or_else(|| Author::of(text));
        break;
    }
    state
}

/// Writes the last batch of a run that was killed; nothing if its state is unknown.
fn end(
    folder: &Folder,
    name: &RunName,
    state: &RunState,
    changed: Option<SystemTime>,
) -> io::Result<Option<Entry>> {
    let Some(author) = &state.author else {
        folder.remove(&name.file())?;
        return Ok(None);
    };
    let ended = changed.map_or_else(Time::now, Time::from).millis().max(author.started());
    let parcel = Parcel {
        stream: name.stream.clone(),
        number: state.up_to + 1,
        format: FORMAT,
        sightings: 0,
        text: author.end(ended),
    };
    let (file, octets) = (name.batch(parcel.number, true), written(&parcel, state.lost));
    let entry = Entry::in_file(name.clone(), parcel.number, true, octets.len() as u64, SystemTime::now());
    Ok(Some(match folder.put(&file, &octets, true) {
        Ok(()) => entry,
        // If this run does not send it, the next one writes it.
        Err(_full) => Entry { held: Held::Memory(Arc::new(parcel)), octets: octets.len() as u64, ..entry },
    }))
}
