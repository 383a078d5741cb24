//! What cargo is asked to build: the workspace, or packages with the features that they have in it.
//!
//! A package has the features that all ask for which are built with it. So one that is built alone
//! may be another one than in `cargo test --workspace`: without a driver, or without TLS. Here it
//! is given the features by name, its own and those of the workspace's packages that it uses
//! itself, as cargo resolves them for the workspace.
//!
//! Not the same: features of crates that are not of the workspace. Cargo builds such a crate once
//! more where fewer packages ask for less of it, at the first time.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process;

/// What the kernels run: programs for other processors are not resolved.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Arguments with which cargo takes these packages; the whole workspace, if none is named.
pub(super) fn of(packages: &[&str]) -> Result<Vec<String>> {
    if packages.is_empty() {
        return Ok(vec!["--workspace".into()]);
    }
    let mut command = process::cargo(&["metadata", "--format-version=1"]);
    let resolved = process::output(command.args(["--filter-platform", TARGET]));
    let resolved = resolved.context("cargo does not resolve the workspace")?;
    let resolved = serde_json::from_str(&resolved)?;
    let mut arguments = Vec::new();
    for package in packages {
        arguments.extend(["--package".to_owned(), (*package).to_owned()]);
    }
    let features = features(&resolved, packages)?;
    arguments.push(format!("--features={}", features.join(",")));
    Ok(arguments)
}

/// The features of these packages and of those of the workspace that they depend on, as
/// `PACKAGE/FEATURE`.
fn features(resolved: &Value, packages: &[&str]) -> Result<Vec<String>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let members = list(&resolved["workspace_members"]);
    let nodes = list(&resolved["resolve"]["nodes"]);
    let name = |node: &Value| name_in(node["id"].as_str().unwrap_or_default()).to_owned();
    let (mut wanted, mut found) = (BTreeSet::new(), BTreeSet::new());
    for node in &nodes {
        if members.contains(&node["id"]) && packages.contains(&name(node).as_str()) {
            found.insert(name(node));
            wanted.insert(node["id"].to_string());
            let uses = list(&node["deps"]);
            wanted.extend(uses.iter().map(|it| it["pkg"].to_string()));
        }
    }
    for package in packages {
        ensure!(found.contains(*package), "the workspace has no {package}");
    }
    let mut features = Vec::new();
    for node in &nodes {
        if members.contains(&node["id"]) && wanted.contains(&node["id"].to_string()) {
            let package = name(node);
            let of_it = list(&node["features"]);
            let of_it = of_it.iter().filter_map(Value::as_str);
            features.extend(of_it.map(|feature| format!("{package}/{feature}")));
        }
    }
    features.sort();
    Ok(features)
}

/// The package in what cargo calls it: `path+file:///DIRECTORY#NAME@VERSION`, or
/// `...NAME#VERSION`, where the directory is named as the package.
pub(super) fn name_in(identity: &str) -> &str {
    let (place, rest) = identity.rsplit_once('#').unwrap_or(("", identity));
    match rest.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_package_is_read_from_both_forms() {
        assert_eq!(
            name_in("path+file:///a/driver#flatpath-driver@0.1.0"),
            "flatpath-driver"
        );
        assert_eq!(name_in("path+file:///a/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn cargo_is_asked_for_the_named_packages_of_this_workspace_alone() {
        assert_eq!(of(&[]).unwrap(), ["--workspace"]);
        let arguments = of(&["flatpath-driver", "flatpath-echo"]).unwrap();
        let (packages, features) = arguments.split_at(4);
        assert_eq!(
            packages,
            ["--package", "flatpath-driver", "--package", "flatpath-echo"]
        );
        // What the driver's tests ask for, and what echo's do not: the engine's.
        for feature in ["flatpath-driver/simulation", "flatpath/tls"] {
            assert!(features.concat().contains(feature), "{features:?}");
        }
    }

    #[test]
    fn a_package_has_its_features_and_those_of_what_it_uses_in_the_workspace() {
        let node = |id: &str, features: &[&str], uses: &[&str]| {
            let deps: Vec<Value> = uses.iter().map(|it| json!({ "pkg": it })).collect();
            json!({ "id": id, "features": features, "deps": deps })
        };
        let (echo, engine) = (
            "path+file:///a/echo#0.1.0",
            "path+file:///a/engine#flatpath@0.1.0",
        );
        let (driver, other) = ("path+file:///a/driver#0.1.0", "registry+x#serde@1.0.0");
        let resolved = json!({
            "workspace_members": [echo, engine, driver],
            "resolve": { "nodes": [
                node(echo, &[], &[engine, other]),
                node(engine, &["tls", "uring"], &[driver]),
                node(driver, &["epoll"], &[]),
                node(other, &["derive"], &[]),
            ]},
        });
        let of = |packages: &[&str]| features(&resolved, packages);
        assert_eq!(of(&["echo"]).unwrap(), ["flatpath/tls", "flatpath/uring"]);
        let both = ["driver/epoll", "flatpath/tls", "flatpath/uring"];
        assert_eq!(of(&["flatpath", "echo"]).unwrap(), both);
        let error = of(&["echo", "serde"]).unwrap_err().to_string();
        assert_eq!(error, "the workspace has no serde");
    }
}
