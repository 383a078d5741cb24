//! The exports of NFS listeners: `--nfs-exports FILE` and tables `[[export]]`, at the start and
//! when they are loaded again.
//!
//! Where any are named, listeners of NFS export them and not DIR, and what DIR alone has is
//! refused.

use std::io;
use std::path::{Path, PathBuf};

use flatpath_nfs::{ExportOptions, Exports, ExportsFile, PreparedExports};

use crate::bounded_file;
use crate::config::Configuration;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::settings::{ListenerProtocol, Settings, is_on};
use crate::settled_file;
use crate::sites;

/// Exports that a listener serves, and the files that they are read from.
pub(crate) struct Served {
    pub(crate) exports: Exports,
    pub(crate) source: Source,
}

/// What exports are named by.
pub(crate) enum Source {
    /// These files, and the tables of the configuration.
    Named(Vec<PathBuf>),
    /// DIR alone.
    Directory,
}

impl Served {
    /// Whether they are named, and not DIR.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self.source, Source::Named(_))
    }
}

/// Whether a listener with these settings exports what is named, and not DIR.
pub(crate) fn are_named(settings: &Settings, file: &Configuration) -> bool {
    !settings.nfs_exports.is_empty() || !file.exports.is_empty()
}

/// The directories that a listener of NFS with these settings shows, as far as they can be read.
pub(crate) fn directories(settings: &Settings, file: &Configuration) -> Vec<PathBuf> {
    if !are_named(settings, file) {
        return vec![sites::directory(settings).to_owned()];
    }
    let exports = read_all(&settings.nfs_exports, file, bounded_file::read);
    let exports = exports.map(|(exports, _)| exports).unwrap_or_default();
    exports.into_iter().map(|export| export.directory).collect()
}

/// Reads all exports, and logs what has no effect.
pub(crate) fn load(files: &[PathBuf], file: &Configuration) -> Result<Vec<ExportOptions>, Failure> {
    load_by(files, file, bounded_file::read)
}

fn load_by(
    files: &[PathBuf],
    file: &Configuration,
    read: fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Vec<ExportOptions>, Failure> {
    let (exports, notices) = read_all(files, file, read)?;
    for notice in notices {
        log::warn!("{notice}");
    }
    Ok(exports)
}

/// Logs what has no effect, as [`load`] does, without serving it.
pub(crate) fn warn(listeners: &[Listener], file: &Configuration) -> Result<(), Failure> {
    let is_nfs = |it: &&Listener| it.protocol == ListenerProtocol::Nfs;
    let named = |it: &&Listener| are_named(&it.settings, file);
    let mut named = listeners.iter().filter(is_nfs).filter(named);
    named.try_for_each(|it| load(&it.settings.nfs_exports, file).map(drop))
}

/// All exports, and what has no effect.
fn read_all(
    files: &[PathBuf],
    file: &Configuration,
    bytes_of: fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<(Vec<ExportOptions>, Vec<String>), Failure> {
    let (mut exports, mut notices) = (Vec::new(), Vec::new());
    for path in files {
        let read = read(path, bytes_of)?;
        exports.extend(read.exports);
        notices.extend(read.notices);
    }
    for table in &file.exports {
        exports.push(table.export(&file.name));
        notices.extend(table.notices(&file.name));
    }
    if exports.is_empty() {
        let names: Vec<_> = files
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let why = format!("{}: there is no export in it", names.join(", "));
        return Err(Failure::WrongUse(why));
    }
    Ok((exports, notices))
}

fn read(path: &Path, bytes_of: fn(&Path) -> io::Result<Vec<u8>>) -> Result<ExportsFile, Failure> {
    let shown = path.display().to_string();
    let wrong = |cause: &io::Error| Failure::WrongUse(format!("--nfs-exports {shown}: {cause}"));
    let text = bytes_of(path).map_err(|cause| wrong(&cause))?;
    let read = ExportsFile::parse(&text, &shown);
    read.map_err(|why| Failure::WrongUse(format!("{shown}:{why}")))
}

/// Whether exports can be read and what is set beside them has a meaning. Names of hosts are not
/// looked up.
pub(crate) fn check(listeners: &[Listener], file: &Configuration) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::WrongUse(why));
    let is_nfs = |it: &&Listener| it.protocol == ListenerProtocol::Nfs;
    if !file.exports.is_empty() && !listeners.iter().any(|it| is_nfs(&it)) {
        return wrong("[[export]] is for listeners of NFS: name one with nfs = ADDR".into());
    }
    for listener in listeners.iter().filter(is_nfs) {
        let settings = &listener.settings;
        if !are_named(settings, file) {
            continue;
        }
        if is_on(settings.no_root_squash) {
            return wrong(
                "no-root-squash is for the export of DIR alone: write no_root_squash behind the \
                 clients of an export"
                    .into(),
            );
        }
        if let Some(dir) = &settings.dir
            && !listeners.iter().any(Listener::serves_over_http)
        {
            let dir = dir.display();
            return wrong(format!(
                "{dir} would not be exported, because exports are named: leave it out, or name it \
                 as an export"
            ));
        }
        for export in read_all(&settings.nfs_exports, file, bounded_file::read)?.0 {
            let (place, shown) = (&export.place, export.directory.display());
            match bounded_file::metadata(&export.directory) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return wrong(format!("{place}: {shown} is no directory")),
                Err(cause) => return wrong(format!("{place}: {shown}: {cause}")),
            }
        }
    }
    Ok(())
}

/// Loads the exports of all listeners again.
pub(crate) fn prepare(
    served: &[Served],
    file: &Configuration,
) -> Result<Vec<PreparedExports>, Failure> {
    let prepared = served.iter().map(|served| {
        let prepared = match &served.source {
            Source::Named(files) => {
                // What may be half written is refused.
                served
                    .exports
                    .prepare(load_by(files, file, settled_file::read)?)
            }
            Source::Directory => served.exports.prepare_again(),
        };
        prepared.map_err(|cause| Failure::WrongUse(cause.to_string()))
    });
    prepared.collect()
}

/// Serves them.
pub(crate) fn apply(prepared: Vec<PreparedExports>) {
    for prepared in prepared {
        let change = prepared.apply();
        log::info!(
            "NFS exports: {} kept, {} new, {} gone",
            change.kept,
            change.opened,
            change.closed
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners;

    /// What a configuration with these lines comes to.
    fn checked(lines: &str) -> Result<(), String> {
        let file = Configuration::from_text(lines)?;
        let listeners = listeners::of(&file.settings, &file);
        let listeners = listeners.map_err(|failure| failure.to_string())?;
        check(&listeners, &file).map_err(|failure| failure.to_string())
    }

    #[test]
    fn exports_are_found_good_or_refused_with_their_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        let write = |text: &str| std::fs::write(at("exports"), text).expect("written");
        let nfs = format!("nfs = 2049\nnfs-exports = \"{}\"\n", at("exports"));
        let refused = |lines: &str| checked(&format!("{nfs}{lines}")).expect_err("a mistake");
        assert!(
            refused("").contains("--nfs-exports"),
            "there is no such file"
        );
        write("# none\n");
        assert!(refused("").contains("there is no export"));
        write("/ *(ro)\n/ host(rw,x)\n");
        assert!(refused("").starts_with(&format!("{}:2:11: ", at("exports"))));
        write(&format!("\n{} *(ro)\n", at("none")));
        assert!(refused("").starts_with(&format!("{}:2:1: ", at("exports"))));
        write(&format!("{} *(ro)\n", at("exports")));
        assert!(refused("").ends_with("is no directory"));
        write("/ *(ro)\n");
        assert_eq!(checked(&nfs), Ok(()));
        assert!(refused("no-root-squash = true").contains("behind the clients"));
        assert!(refused("dir = \"/srv\"").contains("would not be exported"));
        assert_eq!(
            checked(&format!("{nfs}dir = \"/srv\"\nhttp = 80\n")),
            Ok(())
        );
        let long = format!("#{}\n", "x".repeat(1 << 20));
        write(&long);
        assert!(refused("").contains("larger than"));
    }

    #[test]
    fn tables_need_a_listener_and_their_errors_have_the_files_name() {
        let table = "[[export]]\npath = \"/\"\nclients = \"*\"\n";
        let why = checked(table).expect_err("no listener");
        assert!(why.contains("name one with nfs"), "{why}");
        assert_eq!(checked(&format!("nfs = 2049\n{table}")), Ok(()));
        let none = "nfs = 2049\n[[export]]\npath = \"/no/such\"\nclients = \"*\"\n";
        let mut file = Configuration::from_text(none).expect("a good file");
        file.name = "x.toml".into();
        let listeners = listeners::of(&file.settings, &file).expect("they fit");
        let why = check(&listeners, &file).expect_err("none").to_string();
        assert!(why.starts_with("x.toml:2:1: /no/such"), "{why}");
    }
}
