//! What a kernel boots: its modules, busybox, and a script that shows it this machine's files.
//!
//! The files come by 9p, which is read-only, below a layer in memory: what a test writes is gone
//! afterwards. `/tmp` is an ext4 file system of its own (`machine.rs`), because an overlay gives no
//! handles of files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::fetch::run;

/// The modules that tests need, in this order.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
    "loop",
    // What file systems ask for only once they mount.
    "crc32c_generic",
    "utf8data",
    "quota_v2",
    "ext4",
    "xfs",
    "btrfs",
    "fuse",
    // What systemd asks for.
    "autofs4",
    "tun",
    "veth",
    "dummy",
    "bridge",
    "tls",
    // What TLS in the kernel asks for.
    "gcm",
    "ctr",
    "aes_generic",
    "ghash-generic",
    "aesni-intel",
    "nfs",
    "nfsv3",
    "nfsd",
];

/// Programs of busybox that the script calls by name.
const APPLETS: &[&str] = &[
    "sh",
    "mount",
    "modprobe",
    "mkdir",
    "chmod",
    "chroot",
    "switch_root",
    "poweroff",
    "cat",
    "sed",
    "grep",
    "ifconfig",
];

/// The file that has the modules which were asked for.
const KEPT: &str = "modules-wanted";
/// The name of the port on which the output comes.
pub(super) const PORT: &str = "flatpath";
/// How the kernel's command line names the script to run.
pub(super) const SCRIPT: &str = "flatpath.script";
/// What of the command line has systemd as the first process, and the script as a unit of it.
pub(super) const SYSTEMD: &str = "flatpath.systemd";

/// Keeps of an unpacked kernel what is booted: its image and the modules.
pub(super) fn keep(files: &Path, to: &Path) -> Result<()> {
    // In `boot`, or beside the modules.
    let mut command = Command::new("find");
    command.arg(files).args(["-name", "vmlinuz*", "-type", "f"]);
    let images = run(&mut command)?;
    let image = images.lines().next().context("no image")?;
    fs::rename(image, to.join("image"))?;
    let modules = ["usr/lib/modules", "lib/modules"].map(|place| files.join(place));
    let modules = modules.iter().find(|place| place.is_dir());
    let modules = modules.context("no modules")?;
    let release = fs::read_dir(modules)?.next().context("no modules")??;
    let release = release.file_name().into_string().ok().context("a name")?;
    // Below `lib` for depmod and modprobe, whatever the package has.
    let kept = to.join("modules/lib/modules");
    fs::create_dir_all(&kept)?;
    let all = modules.join(&release);
    let base = files.join("base");
    fs::create_dir_all(base.join("lib/modules"))?;
    fs::rename(&all, base.join("lib/modules").join(&release))?;
    run(tool("depmod").arg("-b").arg(&base).arg(&release))?;
    let from = base.join("lib/modules").join(&release);
    for module in MODULES {
        let mut command = tool("modprobe");
        command.arg("-d").arg(&base).args(["-S", &release]);
        // Built in, or not there: nothing to load.
        let Some(shown) = crate::process::output(command.args(["--show-depends", module])) else {
            continue;
        };
        for file in shown.lines().filter_map(|it| it.strip_prefix("insmod ")) {
            let file = Path::new(file.split_whitespace().next().unwrap_or_default());
            let within = file.strip_prefix(&from)?;
            let place = kept.join(&release).join(within);
            fs::create_dir_all(place.parent().context("a directory")?)?;
            fs::copy(file, &place)?;
            // busybox reads no packed module.
            if place.extension().is_some_and(|it| it == "xz") {
                run(Command::new("xz").arg("-df").arg(&place))?;
            }
        }
    }
    for entry in fs::read_dir(&from)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("modules.") {
            fs::copy(entry.path(), kept.join(&release).join(entry.file_name()))?;
        }
    }
    run(tool("depmod")
        .arg("-b")
        .arg(to.join("modules"))
        .arg(&release))?;
    fs::write(to.join(KEPT), MODULES.join("\n"))?;
    fs::write(to.join("release"), release)?;
    Ok(())
}

/// Whether what is kept here has all modules that are wanted today.
pub(super) fn is_current(kept: &Path) -> bool {
    let modules = fs::read_to_string(kept.join(KEPT));
    modules.is_ok_and(|modules| modules == MODULES.join("\n"))
}

/// A program of the administrator's, which need not be on `PATH`.
fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Makes the initial file system of the kernel that is kept here.
pub(super) fn initial(kept: &Path) -> Result<PathBuf> {
    let root = tempfile::tempdir()?;
    let at = |name: &str| root.path().join(name);
    for name in ["bin", "proc", "sys", "dev", "host", "layer", "new"] {
        fs::create_dir(at(name))?;
    }
    run(Command::new("cp")
        .arg("-r")
        .arg(kept.join("modules/lib"))
        .arg(at("lib")))?;
    let busybox = ["/bin/busybox", "/usr/bin/busybox"];
    let busybox = busybox.iter().find(|it| Path::new(it).is_file());
    fs::copy(
        busybox.context("busybox-static is not installed")?,
        at("bin/busybox"),
    )?;
    for applet in APPLETS {
        symlink("busybox", at("bin").join(applet))?;
    }
    fs::write(at("init"), init())?;
    fs::set_permissions(at("init"), fs::Permissions::from_mode(0o755))?;
    let names = run(Command::new("find").arg(".").current_dir(root.path()))?;
    let file = kept.join("initial");
    let mut command = Command::new("cpio");
    command
        .args(["-o", "-H", "newc", "--quiet"])
        .current_dir(root.path())
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&file)?);
    let mut packer = command.spawn()?;
    let mut names_in = packer.stdin.take().context("its input")?;
    names_in.write_all(names.as_bytes())?;
    drop(names_in);
    ensure!(packer.wait()?.success(), "cpio fails");
    Ok(file)
}

/// The first process. Its last line reaches the port when all that was said before has.
fn init() -> String {
    let modules = MODULES.join(" ");
    format!(
        r"#!/bin/sh
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
for module in {modules}; do modprobe $module; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose host /host
mount -t tmpfs -o size=1g layer /layer; mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work o /new
mount -t proc p /new/proc; mount -t sysfs s /new/sys; mount -t devtmpfs d /new/dev
mkdir -p /new/dev/shm /new/dev/pts; mount -t devpts p /new/dev/pts
for place in dev/shm run srv mnt; do mount -t tmpfs -o size=1g t /new/$place; done
ifconfig lo 127.0.0.1 up
script=$(sed -n 's/.*{SCRIPT}=\([^ ]*\).*/\1/p' /proc/cmdline)
cd /sys/class/virtio-ports
for it in *; do [ $(cat $it/name) = {PORT} ] && port=/dev/$it; done
if grep -q {SYSTEMD} /proc/cmdline; then
    mount -t tmpfs -o size=1g t /new/tmp; chmod 1777 /new/tmp
    # What systemd mounts anew hides nothing of it there.
    cat /new$script >/new/script
    cat >/new/etc/systemd/system/flatpath-kernels.service <<UNIT
[Unit]
Requires=basic.target
After=basic.target dbus.socket
[Service]
Type=oneshot
ExecStart=/bin/bash -c '/bin/bash /script >$port 2>&1; poweroff -f'
UNIT
    cd /
    exec switch_root /new /lib/systemd/systemd --unit=flatpath-kernels.service
fi
chroot /new /bin/bash $script 2>&1 | cat >$port
poweroff -f
"
    )
}
