//! Rule `layer`: dependencies between crates point down only.
//!
//! A crate may depend on crates of lower layers, never on its own layer or above. Nothing depends
//! on what stands beside the layers, which may depend on everything. Dependencies of tests are
//! free.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Fault;
use crate::{process, workspace};

/// The layers of the product from the bottom up, by directory.
pub(crate) const PRODUCT: &[&str] = &[
    "sys",
    "structures",
    "driver",
    "engine",
    "test/client",
    "test",
    "pairing",
    "protocols",
    "protocols/layers",
    "protocols/websocket",
    "clients",
    "services",
    "cli/protocols",
    "cli",
];
/// The layers of tools above them.
const TOOLS: &[&str] = &["testkit", "bench/common", "bench"];
/// What stands beside the layers.
const BESIDE: &[&str] = &["e2e", "examples", "fuzz", "xtask"];
/// What compares an example with the same program of others: above that.
const PEERS: &str = "bench/peers";

/// What `cargo metadata` prints.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    /// `dev`, `build`, or none for an ordinary one.
    kind: Option<String>,
    /// The directory of a crate of this workspace.
    path: Option<String>,
}

pub(super) fn check(faults: &mut Vec<Fault>) -> Result<()> {
    let mut command = process::cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let text = process::output(&mut command).context("cargo metadata fails")?;
    check_packages(&serde_json::from_str(&text)?, &workspace::root(), faults);
    Ok(())
}

fn check_packages(metadata: &Metadata, root: &Path, faults: &mut Vec<Fault>) {
    let below_root = |path: &str| -> String {
        let path = Path::new(path);
        path.strip_prefix(root)
            .unwrap_or(path)
            .to_string_lossy()
            .into()
    };
    for package in &metadata.packages {
        let manifest = below_root(&package.manifest_path);
        let mut report = |message: &str| faults.push(Fault::new(&manifest, 1, "layer", message));
        let Some(layer) = height(&manifest) else {
            report("the crate has no layer: name it in xtask's layering.rs");
            continue;
        };
        for dependency in &package.dependencies {
            let is_dev = dependency.kind.as_deref() == Some("dev");
            let Some(path) = dependency.path.as_ref().filter(|_| !is_dev) else {
                continue;
            };
            let home = below_root(path);
            if height(&home).is_some_and(|below| below >= layer) {
                report(&format!("must not depend on {home}"));
            }
        }
    }
}

/// The height of a directory's layer; what stands beside the layers is above them all.
fn height(directory: &str) -> Option<usize> {
    let is_in = |layer: &&str| Path::new(directory).starts_with(layer);
    if is_in(&PEERS) {
        return Some(PRODUCT.len() + TOOLS.len() + 1);
    }
    if BESIDE.iter().any(is_in) {
        return Some(PRODUCT.len() + TOOLS.len());
    }
    let layers = PRODUCT.iter().chain(TOOLS).enumerate();
    // A layer may be a directory within another's.
    let named = layers.filter(|(_, layer)| is_in(layer));
    named
        .max_by_key(|(_, layer)| layer.len())
        .map(|(height, _)| height)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a crate in one directory that depends on one in another.
    fn faults(directory: &str, dependency: &str, kind: Option<&str>) -> Vec<String> {
        let dependency = Dependency {
            kind: kind.map(Into::into),
            path: Some(format!("/root/{dependency}")),
        };
        let package = Package {
            manifest_path: format!("/root/{directory}/Cargo.toml"),
            dependencies: vec![dependency],
        };
        let mut faults = Vec::new();
        let packages = vec![package];
        check_packages(&Metadata { packages }, Path::new("/root"), &mut faults);
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dependency_may_point_down_over_several_layers() {
        for (directory, dependency) in [("driver", "structures"), ("cli", "structures")] {
            assert_eq!(faults(directory, dependency, None), Vec::<String>::new());
        }
        assert_eq!(faults("e2e", "cli", None), Vec::<String>::new());
        let example = "examples/hello";
        assert_eq!(faults("bench/peers", example, None), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_up_or_sideways_is_a_fault() {
        let found = faults("structures", "driver", None);
        assert_eq!(
            found,
            ["structures/Cargo.toml:1: [layer] must not depend on driver"]
        );
        assert_eq!(faults("services/a", "services/b", None).len(), 1);
        assert_eq!(faults("engine", "cli", Some("build")).len(), 1);
        assert_eq!(faults("examples/hello", "bench/peers", None).len(), 1);
    }

    #[test]
    fn dependencies_of_tests_are_free() {
        assert_eq!(faults("engine", "cli", Some("dev")), Vec::<String>::new());
    }

    #[test]
    fn nothing_depends_on_what_stands_beside_and_the_server_does_not_link_the_bench() {
        for dependency in ["xtask", "bench"] {
            assert_eq!(faults("cli", dependency, None).len(), 1);
        }
    }

    #[test]
    fn a_crate_without_a_layer_is_a_fault() {
        assert_eq!(faults("utils", "structures", None).len(), 1);
    }
}
