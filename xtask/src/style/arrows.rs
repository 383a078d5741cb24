//! Rule `arrow`: dependencies between crates point down only.
//!
//! The layers, from the bottom: structures, driver, engine, protocols, clients, services, cli,
//! bench/common, bench. A crate may depend on crates of lower layers, never on its own layer
//! or above. Beside them stand e2e, the peers' bench, fuzz and xtask: they may depend on everything
//! and nothing depends on them. Dependencies of tests are free.

use std::collections::HashMap;
use std::path::Path;

use toml::{Table, Value};

use super::Fault;
use crate::{Error, workspace};

/// The layers from the bottom up, by directory.
const LAYERS: &[&str] = &[
    "structures",
    "driver",
    "engine",
    "protocols",
    "clients",
    "services",
    "cli",
    "bench/common",
    "bench",
];
/// What stands beside the layers.
const BESIDE: &[&str] = &["bench/peers", "e2e", "fuzz", "xtask"];
/// The tables of a manifest that make an arrow.
const TABLES: &[&str] = &["dependencies", "build-dependencies"];

/// Reports arrows that do not point down.
///
/// # Errors
/// A manifest that cannot be read or parsed.
pub fn check(root: &Path, faults: &mut Vec<Fault>) -> Result<(), Error> {
    let mut manifests = Vec::new();
    for member in members(&workspace::text(&root.join("Cargo.toml"))?)? {
        let text = workspace::text(&root.join(&member).join("Cargo.toml"))?;
        manifests.push(Manifest::new(&member, text)?);
    }
    check_manifests(&manifests, faults);
    Ok(())
}

/// A member's manifest.
pub struct Manifest {
    directory: String,
    name: String,
    table: Table,
    text: String,
}

impl Manifest {
    /// Parses `text`, the manifest of the crate in `directory`.
    ///
    /// # Errors
    /// Not a manifest.
    pub fn new(directory: &str, text: String) -> Result<Self, Error> {
        let broken = |why: String| Error::Failed(format!("{directory}/Cargo.toml: {why}"));
        let table: Table = text.parse().map_err(|error| broken(format!("{error}")))?;
        let package = table.get("package").and_then(|package| package.get("name"));
        let name = package
            .and_then(Value::as_str)
            .ok_or_else(|| broken("no name".into()))?;
        Ok(Self {
            directory: directory.into(),
            name: name.into(),
            table,
            text,
        })
    }

    /// The names of the packages that an ordinary build of this crate depends on.
    fn dependencies(&self) -> Vec<String> {
        let targets = self.table.get("target").and_then(Value::as_table);
        let targets = targets.into_iter().flat_map(|targets| targets.values());
        let homes = targets.filter_map(Value::as_table).chain([&self.table]);
        let tables = homes.flat_map(|home| TABLES.iter().filter_map(|name| home.get(*name)));
        let entries = tables.filter_map(Value::as_table).flatten();
        // A dependency may be renamed: then its own name is in `package`.
        let name = |(name, entry): (&String, &Value)| {
            let package = entry.get("package").and_then(Value::as_str);
            package.map_or_else(|| name.clone(), String::from)
        };
        entries.map(name).collect()
    }

    /// The line that names `dependency`, from 1: `name = …`, `name.workspace = …` or
    /// `[dependencies.name]`.
    fn line_of(&self, dependency: &str) -> usize {
        let names = |line: &str| {
            let key = line.split('=').next().unwrap_or_default();
            let mut parts = key.split(['.', '[', ']', '"']).map(str::trim);
            parts.any(|part| part == dependency)
        };
        let numbered = self.text.lines().enumerate();
        let mut tables = numbered.skip_while(|(_, line)| !line.contains("dependencies"));
        tables
            .find(|(_, line)| names(line))
            .map_or(1, |(at, _)| at + 1)
    }
}

/// The rule itself, over parsed manifests.
pub fn check_manifests(manifests: &[Manifest], faults: &mut Vec<Fault>) {
    let homes: HashMap<&str, &str> = manifests
        .iter()
        .map(|m| (m.name.as_str(), m.directory.as_str()))
        .collect();
    for manifest in manifests {
        let mut report = |line: usize, message: String| {
            let file = format!("{}/Cargo.toml", manifest.directory);
            faults.push(Fault {
                file,
                line,
                rule: "arrow",
                message,
            });
        };
        let Some(layer) = height(&manifest.directory) else {
            report(
                1,
                format!(
                    "`{}` has no layer: name it in xtask's arrows.rs",
                    manifest.name
                ),
            );
            continue;
        };
        for dependency in manifest.dependencies() {
            let Some(home) = homes.get(dependency.as_str()) else {
                continue;
            };
            if height(home).is_some_and(|below| below >= layer) {
                let message = format!("{} must not depend on {home}", manifest.directory);
                report(manifest.line_of(&dependency), message);
            }
        }
    }
}

/// The height of a directory's layer; what stands beside the layers is above them all.
fn height(directory: &str) -> Option<usize> {
    let is_in = |layer: &str| Path::new(directory).starts_with(layer);
    if BESIDE.iter().any(|beside| is_in(beside)) {
        return Some(LAYERS.len());
    }
    LAYERS.iter().position(|layer| is_in(layer))
}

/// The workspace's members by directory.
fn members(text: &str) -> Result<Vec<String>, Error> {
    let broken = || Error::Failed("Cargo.toml: no list of members".into());
    let table: Table = text
        .parse()
        .map_err(|error| Error::Failed(format!("{error}")))?;
    let members = table
        .get("workspace")
        .and_then(|workspace| workspace.get("members"));
    let members = members.and_then(Value::as_array).ok_or_else(broken)?;
    members
        .iter()
        .map(|member| member.as_str().map(String::from).ok_or_else(broken))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(crates: &[(&str, &str, &str)]) -> Vec<String> {
        let manifests: Vec<_> = crates
            .iter()
            .map(|(directory, name, rest)| {
                let text = format!("[package]\nname = \"{name}\"\n{rest}\n");
                Manifest::new(directory, text).unwrap()
            })
            .collect();
        let mut faults = Vec::new();
        check_manifests(&manifests, &mut faults);
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_may_point_down_over_several_layers() {
        let found = faults(&[
            ("structures", "s", ""),
            ("driver", "d", "[dependencies]\ns.workspace = true"),
            (
                "cli",
                "c",
                "[dependencies]\ns = { path = \"../structures\" }\nd.workspace = true",
            ),
            ("e2e", "e", "[dependencies]\nc.workspace = true"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn an_arrow_up_is_a_fault_with_its_line() {
        let found = faults(&[
            ("structures", "s", "[dependencies]\nd.workspace = true"),
            ("driver", "d", ""),
        ]);
        assert_eq!(
            found,
            ["structures/Cargo.toml:4: [arrow] structures must not depend on driver"]
        );
    }

    #[test]
    fn an_arrow_sideways_is_a_fault() {
        let found = faults(&[
            ("services/a", "a", "[dependencies.b]\nworkspace = true"),
            ("services/b", "b", ""),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn targets_build_scripts_and_new_names_hide_nothing() {
        let cli = ("cli", "c", "");
        for rest in [
            "[target.'cfg(loom)'.dependencies]\nc = \"1\"",
            "[build-dependencies]\nc = \"1\"",
            "[dependencies]\nother = { package = \"c\", path = \"../cli\" }",
        ] {
            assert_eq!(faults(&[("engine", "e", rest), cli]).len(), 1, "{rest}");
        }
    }

    #[test]
    fn dependencies_of_tests_are_free() {
        let rest = "[dev-dependencies]\nc.workspace = true";
        assert_eq!(
            faults(&[("engine", "e", rest), ("cli", "c", "")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn nothing_depends_on_what_stands_beside() {
        let rest = "[dependencies]\nx.workspace = true";
        assert_eq!(faults(&[("cli", "c", rest), ("xtask", "x", "")]).len(), 1);
    }

    #[test]
    fn the_server_does_not_link_the_bench() {
        let rest = "[dependencies]\nb.workspace = true";
        assert_eq!(faults(&[("cli", "c", rest), ("bench", "b", "")]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_is_a_fault() {
        assert_eq!(faults(&[("utils", "u", "")]).len(), 1);
    }
}
