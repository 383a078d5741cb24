//! Whether the packages are what their users need: each is made and tried.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flatpath_testkit::{Launch, tools};

use super::{IMAGE, Profile, build_image, deb, static_command};
use crate::{process, workspace};

/// Tests that show whether a build serves files over HTTP and over NFS.
const TESTS_OF_A_BUILD: [&str; 2] = ["files::", "nfs::"];
/// The highest exposure that `systemd-analyze security` may see, in tenths; its "OK" ends at 50.
const EXPOSURE_MAX: &str = "20";
/// What Debian's policy demands of a package is an error or a warning of lintian's.
const LINTIAN: [&str; 3] = ["--allow-root", "--fail-on", "error,warning"];

/// Makes all packages from debug builds and tries them.
pub(crate) fn check() -> Result<()> {
    units()?;
    if let (Some(made), Some(lintian)) = (deb(Profile::Debug)?, tools::find("lintian")) {
        process::run(Command::new(lintian).args(LINTIAN).arg(&made))?;
        installed(&made)?;
        maintained(&made)?;
    }
    let file = static_command(Profile::Debug)?;
    // With the features of the whole workspace, as `cargo test` has built the tests.
    let mut command = process::cargo(&[
        "test",
        "--workspace",
        "--test",
        "files",
        "--test",
        "nfs",
        "--",
    ]);
    command.args(TESTS_OF_A_BUILD);
    process::run(command.env("FLATPATH", &file))?;
    container(&file)
}

/// The units hold no mistake, and leave the service little that it does not need.
fn units() -> Result<()> {
    let Some(systemd) = tools::find("systemd-analyze") else {
        return Ok(());
    };
    // A unit names the command where the package puts it; here it is elsewhere.
    let copies = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    let dist = workspace::root().join("dist/systemd");
    let mut paths = Vec::new();
    for name in ["flatpath.service", "optional/flatpath-http.socket"] {
        let text = workspace::text(&dist.join(name))?;
        let copy = copies
            .path()
            .join(Path::new(name).file_name().context("a name")?);
        fs::write(
            &copy,
            text.replace("/usr/bin/flatpath", &own.to_string_lossy()),
        )?;
        paths.push(copy);
    }
    process::run(
        Command::new(&systemd)
            .args(["verify", "--man=no"])
            .args(&paths),
    )?;
    let mut security = Command::new(&systemd);
    security.args(["security", "--offline=true", "--no-pager"]);
    process::run(
        security
            .arg(format!("--threshold={EXPOSURE_MAX}"))
            .arg(&paths[0]),
    )
}

/// What the package puts on the disk works from there: the command takes the settings that come
/// with it, and manual and completions are those of this command.
fn installed(package: &Path) -> Result<()> {
    let root = tempfile::tempdir()?;
    process::run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package)
            .arg(root.path()),
    )?;
    let command = root.path().join("usr/bin/flatpath");
    // The directory that the service makes for itself is not here.
    let settings = root.path().join("etc/flatpath/flatpath.toml");
    let here = root.path().to_string_lossy();
    let text = workspace::text(&settings)?.replace("/var/lib/flatpath/public", &here);
    fs::write(&settings, text)?;
    process::run(Command::new(&command).arg("check").arg(settings))?;
    for path in [
        "usr/share/man/man1/flatpath-serve.1.gz",
        "usr/share/bash-completion/completions/flatpath",
        "usr/lib/systemd/system/flatpath.service",
        "usr/lib/systemd/system/flatpath-http.socket",
        "usr/share/flatpath/grafana/flatpath.json",
        "usr/share/flatpath/prometheus/flatpath.rules.yml",
        "usr/share/flatpath/container/seccomp-io-uring.json",
        "usr/share/doc/flatpath/examples/haproxy/haproxy.cfg",
        "usr/share/doc/flatpath/examples/keepalived/keepalived.conf",
        "usr/share/doc/flatpath/examples/kubernetes/deployment.yaml",
        "usr/share/doc/flatpath/examples/prometheus/prometheus.yml",
        "usr/share/doc/flatpath/book/SUMMARY.md",
    ] {
        ensure!(root.path().join(path).exists(), "the package has no {path}");
    }
    described(root.path(), &command)
}

/// The manual pages are those of the commands that the help shows, and of the file's tables. What
/// the package does not have is not mentioned.
fn described(root: &Path, command: &Path) -> Result<()> {
    let pages = root.join("usr/share/man/man1");
    let mut names: Vec<String> = fs::read_dir(&pages)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    let help = process::output(Command::new(command).arg("--help")).context("the help")?;
    let (_, commands) = help.split_once("Commands:\n").context("the commands")?;
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = commands.filter(|name| !["help", ""].contains(name));
    let mut expected: Vec<String> = commands
        .map(|name| format!("flatpath-{name}.1.gz"))
        .chain(["flatpath.1.gz".to_owned()])
        .collect();
    expected.sort();
    ensure!(names == expected, "pages {names:?}, commands {expected:?}");
    let page = |name: &str| {
        let text = process::output(Command::new("gzip").arg("-dc").arg(pages.join(name)));
        text.with_context(|| format!("{name} cannot be read"))
    };
    let serve = page("flatpath-serve.1.gz")?;
    let keys = workspace::text(&workspace::root().join("cli/src/config/keys.rs"))?;
    let keys = keys.lines().zip(keys.lines().skip(1));
    let keys = keys.filter_map(|(line, next)| {
        let begins = line.trim() == "key(";
        begins.then(|| next.trim().trim_matches(['"', ',']).replace('-', "\\-"))
    });
    for key in keys.chain(["[[listener]]", "[[site]]", "[[export]]"].map(Into::into)) {
        ensure!(serve.contains(&key), "flatpath-serve(1) has no {key}");
    }
    for name in &names {
        ensure!(!page(name)?.contains("bench"), "{name} mentions the bench");
    }
    for path in [
        "bash-completion/completions/flatpath",
        "zsh/vendor-completions/_flatpath",
    ] {
        let text = workspace::text(&root.join("usr/share").join(path))?;
        ensure!(!text.contains("bench"), "{path} mentions the bench");
    }
    let book = root.join("usr/share/doc/flatpath/book");
    for chapter in fs::read_dir(workspace::root().join("book/src"))? {
        let name = chapter?.file_name();
        ensure!(
            book.join(&name).exists(),
            "the book has no {}",
            name.display()
        );
    }
    Ok(())
}

/// What the package's scripts do with systemd: recorded, and not done.
fn maintained(package: &Path) -> Result<()> {
    let root = tempfile::tempdir()?;
    let at = |name: &str| root.path().join(name);
    let mut control = Command::new("dpkg-deb");
    process::run(control.arg("--control").arg(package).arg(at("control")))?;
    let conffiles = workspace::text(&at("control/conffiles"))?;
    ensure!(
        conffiles == "/etc/flatpath/flatpath.toml\n/etc/logrotate.d/flatpath\n",
        "conffiles: {conffiles}"
    );
    fs::create_dir(at("programs"))?;
    for program in ["deb-systemd-helper", "deb-systemd-invoke", "systemctl"] {
        let record = "#!/bin/sh\necho \"${0##*/} $*\" >>\"$DPKG_ROOT/calls\"\n";
        // Nothing was installed before.
        let text = format!("{record}test \"$1\" != debian-installed\n");
        fs::write(at("programs").join(program), text)?;
        fs::set_permissions(at("programs").join(program), Permissions::from_mode(0o755))?;
    }
    for directory in ["var/log/private/flatpath", "var/lib/private/flatpath"] {
        fs::create_dir_all(at(directory))?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", at("programs").display());
    let calls = |step: &str| -> Result<String> {
        let (script, arguments) = step.split_once(' ').context("a script")?;
        fs::write(at("calls"), "")?;
        let mut command = Command::new("sh");
        command
            .arg(at("control").join(script))
            .args(arguments.split(' '));
        process::run(command.env("PATH", &path).env("DPKG_ROOT", root.path()))?;
        workspace::text(&at("calls"))
    };
    for (step, wanted, unwanted) in [
        (
            "postinst configure",
            "enable flatpath.service\n",
            "enable flatpath-http.socket",
        ),
        ("prerm upgrade 2", "", "stop"),
        ("postinst configure 1", "", "start flatpath-http.socket"),
        ("prerm remove", "", "start"),
        ("postrm remove", "mask flatpath.service", "purge"),
        ("postrm purge", "purge flatpath.service", "start"),
    ] {
        let calls = calls(step)?;
        let is_right = calls.contains(wanted) && !calls.contains(unwanted);
        ensure!(is_right, "{step}: {calls}");
    }
    ensure!(
        !at("var/log/private/flatpath").exists(),
        "a purge left the logs"
    );
    ensure!(
        at("var/lib/private/flatpath").exists(),
        "a purge took the users' data"
    );
    Ok(())
}

/// The image serves as nobody, without any right, with io_uring refused by podman's own profile and
/// allowed by ours.
fn container(file: &Path) -> Result<()> {
    let Some(podman) = tools::find("podman") else {
        return Ok(());
    };
    build_image(&podman, file.parent().context("a directory")?)?;
    let profile = workspace::root().join("dist/container/seccomp-io-uring.json");
    let own = format!("--security-opt=seccomp={}", profile.display());
    for (options, driver) in [
        (vec![], "driver epoll"),
        (vec![own.as_str()], "driver uring"),
    ] {
        let mut server = Launch::new(podman.clone())
            .with([
                "run",
                "--rm",
                "--runtime=runc",
                "--network=host",
                "--read-only",
            ])
            .with(["--cap-drop=all", "--security-opt=no-new-privileges"])
            // Podman's own wish for more descriptors than this user has fails.
            .with(["--ulimit=nofile=1024:4096", "--ulimit=nproc=1000:1000"])
            .with(options)
            .with([IMAGE, "serve", "/", "--http", "127.0.0.1:0"])
            .start();
        let reply = server.client().get("/flatpath");
        ensure!(reply.status == 200, "the image answers {}", reply.status);
        let log = server.log();
        ensure!(log.contains(driver), "not served by {driver}: {log}");
        // The container outlives podman's process unless it ends first.
        server.terminate();
        let status = server.exit_status();
        ensure!(status.success(), "the container ended with {status}");
    }
    Ok(())
}
