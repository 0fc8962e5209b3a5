//! Adopts the batches of earlier runs that were killed, or whose server was away at their end. They are
//! sent before new batches, in order, in the name of their run. A killed run gets a last batch, so that
//! the server learns its end and its losses.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use super::directory::{SpillDirectory, SpillFile};
use super::file_format::{SpillFileKind, SpilledBatchHead, SpilledRunHead, opened};
use super::file_name::{FileName, RunName};
use super::queue::SpillState;
use super::waiting_batch::{BatchLocation, SpilledRun, WaitingBatch, written};
use crate::inventory::batch::{BatchEncoder, FORMAT};
use crate::inventory::database::OutgoingBatch;
use crate::inventory::inventory_time::InventoryTime;

/// Files of a run.
#[derive(Debug, Default)]
struct LeftoverRun {
    batches: Vec<(u64, SpillFile)>,
    end: Option<(u64, SpillFile)>,
}

/// Adopts the files of earlier runs; the caller holds the lock. `changed` is the time of the last change
/// by such a run.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn adopt(shared: &SpillState, changed: Option<SystemTime>) -> io::Result<()> {
    let folder = &shared.folder;
    let mut all: BTreeMap<RunName, LeftoverRun> = BTreeMap::new();
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
        let in_file = |number, file: &SpillFile, is_end| {
            WaitingBatch::in_file(name.clone(), number, is_end, file.octets, file.written)
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
fn known(folder: &SpillDirectory, name: &RunName, left: &LeftoverRun) -> SpilledRun {
    let file = folder.read(&name.file()).ok();
    let noted = file.as_deref().and_then(|octets| opened::<SpilledRunHead>(SpillFileKind::Run, octets));
    let (mut state, text) = match noted {
        Some((SpilledRunHead { up_to, lost }, text)) => (SpilledRun { author: None, up_to, lost }, text),
        None => (SpilledRun { author: None, up_to: 0, lost: 0 }, ""),
    };
    state.author = BatchEncoder::of(text);
    if let Some((number, _)) = left.batches.last() {
        state.up_to = state.up_to.max(*number);
    }
    // The last readable batch holds all losses before it.
    for (_, file) in left.batches.iter().rev() {
        let Ok(octets) = folder.read(&file.file) else { continue };
        let Some((head, text)) = opened::<SpilledBatchHead>(SpillFileKind::Batch, &octets) else { continue };
        state.lost = state.lost.max(head.lost);
        state.author = state.author.or_else(|| BatchEncoder::of(text));
        break;
    }
    state
}

/// Writes the last batch of a run that was killed; nothing if its state is unknown.
fn end(
    folder: &SpillDirectory,
    name: &RunName,
    state: &SpilledRun,
    changed: Option<SystemTime>,
) -> io::Result<Option<WaitingBatch>> {
    let Some(author) = &state.author else {
        folder.remove(&name.file())?;
        return Ok(None);
    };
    let ended = changed.map_or_else(InventoryTime::now, InventoryTime::from).millis().max(author.started());
    let parcel = OutgoingBatch {
        stream: name.stream.clone(),
        number: state.up_to + 1,
        format: FORMAT,
        sightings: 0,
        text: author.end(ended),
    };
    let (file, octets) = (name.batch(parcel.number, true), written(&parcel, state.lost));
    let entry =
        WaitingBatch::in_file(name.clone(), parcel.number, true, octets.len() as u64, SystemTime::now());
    Ok(Some(match folder.put(&file, &octets, true) {
        Ok(()) => entry,
        // If this run does not send it, the next one writes it.
        Err(_full) => WaitingBatch {
            held: BatchLocation::Memory(Arc::new(parcel)),
            octets: octets.len() as u64,
            ..entry
        },
    }))
}
