//! What `dist/kubernetes` hands to a cluster: strictly right by the published types of its API, and
//! arguments that this server understands.
//!
//! `FLATPATH_KUBERNETES_VALIDATE` is the directory of a Python that has `kubernetes-validate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use flatpath_testkit::{Launch, Site, binary, tools};

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/kubernetes")
}

fn validate(programs: &Path, file: &Path) -> Output {
    let mut command = Command::new(programs.join("kubernetes-validate"));
    tools::run(command.arg("--strict").arg(file), Duration::from_secs(60))
}

#[test]
fn every_manifest_is_what_the_api_takes() {
    let Some(programs) = tools::installed("FLATPATH_KUBERNETES_VALIDATE") else {
        return;
    };
    let mut checked = 0;
    for entry in fs::read_dir(manifests()).expect("the manifests") {
        let file = entry.expect("an entry").path();
        if file.ends_with("kustomization.yaml") {
            continue;
        }
        let output = validate(&programs, &file);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {told}", file.display());
        checked += 1;
    }
    assert_eq!(checked, 5);
    let site = Site::new();
    let deployment = fs::read_to_string(manifests().join("deployment.yaml")).expect("it is there");
    let spoiled = deployment.replace("readOnlyRootFilesystem", "readonlyRootFilesystem");
    fs::write(site.at("spoiled.yaml"), spoiled).expect("written");
    assert!(
        !validate(&programs, &site.at("spoiled.yaml"))
            .status
            .success()
    );
}

/// The list `args` of the Deployment.
fn arguments() -> Vec<String> {
    let deployment = fs::read_to_string(manifests().join("deployment.yaml")).expect("it is there");
    let lines = deployment.lines().skip_while(|line| line.trim() != "args:");
    let list = lines
        .skip(1)
        .map(str::trim)
        .take_while(|line| *line != "ports:");
    let arguments = list.filter_map(|line| line.strip_prefix("- "));
    arguments.map(String::from).collect()
}

#[test]
fn the_deployment_starts_this_server() {
    let site = Site::new().with("file", "contents");
    let arguments: Vec<String> = arguments()
        .into_iter()
        .map(|argument| match argument.split_once("=0.0.0.0:") {
            Some((option, _)) => format!("{option}=127.0.0.1:0"),
            None => argument.replace("/srv", &site.path().to_string_lossy()),
        })
        .collect();
    assert!(arguments.len() > 5, "{arguments:?}");
    let launch = Launch::new(binary::flatpath().to_path_buf()).with(arguments);
    assert_eq!(launch.start().client().get("/file").text(), "contents");
}
