//! How a table of exports is made: directories are opened that are not open yet, names of hosts are
//! looked up, and each new export gets its number (X1).
//!
//! All of it may wait. Nothing that is served changes, and what was opened is closed again where a
//! later export is refused.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatpath::blocking::BlockingLimit;
use flatpath::prompt::{PromptRight, look_into};

use super::{Common, Entry, Naming, Table, list_of};
use crate::export::Export;
use crate::limits::EXPORTS_MAX;
use crate::mounts::{is_inside, mount_of};
use crate::rights::{ExportOptions, Rules, wrong};
use crate::state::State;
use crate::sweep;

impl Table {
    /// Opens what is not open yet among `before`.
    pub(super) fn load(
        common: &Common,
        exports: Vec<ExportOptions>,
        naming: Naming,
        before: &[Entry],
    ) -> io::Result<Table> {
        let mut loading = Vec::new();
        for (directory, same) in merged(exports)? {
            let place = same[0].place.clone();
            let names = names_of(&directory, &same);
            let rules: Vec<_> = same.into_iter().flat_map(|export| export.rules).collect();
            let source = Source::find(common, &directory, before)
                .map_err(|cause| cannot_export(&place, &directory, &cause))?;
            loading.push(Loading {
                rules: Rules::load(&rules)?,
                directory,
                place,
                names,
                source,
            });
        }
        if loading.is_empty() {
            return Err(wrong("", "there is no export"));
        }
        number(&mut loading, before)?;
        let opened = loading.into_iter().map(|it| it.open(common));
        let entries = opened.collect::<io::Result<Vec<Entry>>>()?;
        let list = list_of(&entries);
        let table = Table {
            entries,
            naming,
            list,
        };
        if before.is_empty() {
            table.share_nodes();
        }
        Ok(table)
    }
}

/// An export of a table that is being loaded.
struct Loading {
    directory: PathBuf,
    place: String,
    names: Vec<PathBuf>,
    rules: Rules,
    source: Source,
}

/// What an export of a new table is made of.
enum Source {
    /// It is served already.
    Open(Arc<State>),
    New(Box<Export>),
}

impl Source {
    fn find(common: &Common, directory: &Path, before: &[Entry]) -> io::Result<Source> {
        let is_at = |entry: &&Entry| entry.state.export.is_at(directory);
        let mut same = before.iter().filter(is_at);
        let known = same.find(|entry| {
            let state = &entry.state;
            // Under another path if it was renamed, and not if it has two.
            state.directory == directory || !state.export.is_at(&state.directory)
        });
        if let Some(known) = known {
            return Ok(Source::Open(Arc::clone(&known.state)));
        }
        if let Some(kept) = &common.kept
            && is_inside(&kept.directory, directory)?
        {
            let text = format!("{} lies inside the export", kept.directory.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Export::open(directory, common.secret).map(|export| Source::New(Box::new(export)))
    }

    fn export(&self) -> &Export {
        match self {
            Source::Open(state) => &state.export,
            Source::New(export) => export,
        }
    }
}

impl Loading {
    fn open(self, common: &Common) -> io::Result<Entry> {
        let state = match self.source {
            Source::Open(state) => state,
            Source::New(export) => {
                let opened = State::open(common, &self.directory, *export);
                let cannot = |cause| cannot_export(&self.place, &self.directory, &cause);
                Arc::new(opened.map_err(cannot)?)
            }
        };
        Ok(Entry {
            state,
            rules: self.rules,
            names: self.names,
        })
    }
}

fn cannot_export(place: &str, directory: &Path, cause: &io::Error) -> io::Error {
    let shown = directory.display();
    wrong(place, format_args!("{shown} cannot be exported: {cause}"))
}

/// Gives new exports their numbers (X1).
fn number(loading: &mut [Loading], before: &[Entry]) -> io::Result<()> {
    let plain = loading.iter().map(|it| it.source.export().plain_number());
    let plain: Vec<u32> = plain.collect();
    let count = |number: u32| plain.iter().filter(|other| **other == number).count();
    // Handles of another directory are still out there.
    let is_gone = |number, directory: &Path| {
        let mut before = before.iter().map(|entry| &entry.state);
        before.any(|it| it.export.plain_number() == number && it.directory != directory)
    };
    let mut taken: Vec<u32> = Vec::new();
    for it in loading.iter() {
        if let Source::Open(state) = &it.source {
            taken.push(state.export.number);
        }
    }
    for (it, plain) in loading.iter_mut().zip(&plain) {
        let Source::New(export) = &mut it.source else {
            continue;
        };
        if count(*plain) > 1 || is_gone(*plain, &it.directory) {
            export.number = export.number_by_path(&it.directory);
        }
        if taken.contains(&export.number) {
            let shown = it.directory.display();
            let why = format_args!("{shown} cannot be told from another export by its handles");
            return Err(wrong(&it.place, why));
        }
        taken.push(export.number);
    }
    Ok(())
}

impl State {
    fn open(common: &Common, directory: &Path, export: Export) -> io::Result<State> {
        if !export.finds_by_handle() {
            let shown = directory.display();
            log::info!("files of {shown} are found by name: the kernel does not open handles here");
        }
        let place = format!("the NFS export {}", directory.display());
        let limit = match export.files.is_local() {
            true => None,
            false => Some(BlockingLimit::of_mount(mount_of(directory)?, &*place)),
        };
        let right = match export.files.is_local() {
            true => PromptRight::unproven(place, look_into(directory)),
            false => PromptRight::refused(place),
        };
        let export = Arc::new(export);
        sweep::start(&export, common.pipes.clone())?;
        Ok(State {
            export,
            directory: directory.to_owned(),
            right: Arc::new(right),
            limit,
            server: Arc::clone(&common.server),
            pipes: common.pipes.clone(),
        })
    }
}

/// The paths by which clients name an export: without links, and as it is written.
fn names_of(directory: &Path, same: &[ExportOptions]) -> Vec<PathBuf> {
    let mut names = vec![directory.to_owned()];
    for export in same {
        let written = &export.directory;
        if written.is_absolute() && !names.contains(written) {
            names.push(written.clone());
        }
    }
    names
}

/// Exports by the path of their directory without links, in their order; those of one directory
/// together.
fn merged(exports: Vec<ExportOptions>) -> io::Result<Vec<(PathBuf, Vec<ExportOptions>)>> {
    let mut merged: Vec<(PathBuf, Vec<ExportOptions>)> = Vec::new();
    let mut places = HashMap::new();
    for export in exports {
        let directory = export.directory.canonicalize().map_err(|cause| {
            let shown = export.directory.display();
            wrong(
                &export.place,
                format_args!("{shown} cannot be exported: {cause}"),
            )
        })?;
        let next = merged.len();
        let place = *places.entry(directory.clone()).or_insert(next);
        match merged.get_mut(place) {
            Some((_, same)) => same.push(export),
            None if next == EXPORTS_MAX => {
                let why = format_args!("a server has at most {EXPORTS_MAX} exports");
                return Err(wrong(&export.place, why));
            }
            None => merged.push((directory, vec![export])),
        }
    }
    Ok(merged)
}
