//! Who may write and who owns: modes, owners and groups that a mount gives are those of the served
//! file system itself.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Driver, each_driver, tools};

use crate::nfs::mounted::{Mount, by};

each_driver!(
    one_who_may_write_replaces_what_another_owns,
    what_is_made_has_the_mode_and_the_group_of_a_local_one,
    root_is_squashed_unless_it_is_told_otherwise,
);

/// What is opened to be written anew is emptied by a SETATTR of its size.
fn one_who_may_write_replaces_what_another_owns(driver: Driver) {
    let Some(mount) = Mount::new(driver, "", &[]) else {
        return;
    };
    mount.site.write("new", "new\n");
    // One of its group, and one who is neither.
    for (user, groups) in [(1001, &[2000][..]), (1002, &[])] {
        for (lines, expected) in [
            ("cp new f", "new\n"),
            ("echo new >f", "new\n"),
            ("truncate -s 3 f", "pre"),
        ] {
            let file = mount.site.at("f");
            mount.site.write("f", "precious");
            chown(&file, Some(1000), Some(2000)).expect("we are root");
            let mode = std::fs::Permissions::from_mode(0o666);
            std::fs::set_permissions(&file, mode).expect("we are root");
            let mut command = by(user, groups, "sh", mount.path());
            let output = tools::run(command.args(["-ec", lines]), patience());
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{lines} by {user}: {errors}");
            let found = std::fs::read_to_string(&file).expect("there");
            assert_eq!(found, expected, "{lines} by {user}");
        }
    }
    mount.end();
}

/// What mkdir(1) and chmod(1) make of each mode, which have ways of their own.
const BY_PROGRAMS: &str = "umask 022; for m in 0 700 755 777 1777 2770 3777 7777; do
                             mkdir -m $m d$m; : >f$m; chmod $m f$m
                           done; mkdir p; stat -c '%n %a %u %g' * | sort";

/// All that one makes by calls with each mode and mask.
const BY_CALLS: &str = "import os
for u in (0, 0o22, 0o77):
    os.umask(u)
    os.mkdir('plain%o' % u)
    for m in (0, 0o700, 0o755, 0o777, 0o1777, 0o2770, 0o3777, 0o7777):
        name = '%o-%o' % (u, m)
        os.mkdir('made' + name, m)
        os.mkdir('given' + name); os.chmod('given' + name, m)
        os.close(os.open('new' + name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, m))
        os.close(os.open('file' + name, os.O_CREAT | os.O_WRONLY)); os.chmod('file' + name, m)
        os.mkfifo('pipe' + name, m)
for name in sorted(os.listdir('.')):
    s = os.lstat(name); print(name, '%o' % s.st_mode, s.st_uid, s.st_gid)";

/// All directories and files that a program with this argument makes, a line each with its mode,
/// owner and group.
fn made(by_whom: [&str; 3], within: &Path) -> Vec<String> {
    let [program, option, what] = by_whom;
    let mut command = by(1000, &[2000], program, within);
    let output = tools::run(command.args([option, what]), patience());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().map(String::from).collect()
}

fn what_is_made_has_the_mode_and_the_group_of_a_local_one(driver: Driver) {
    let (Some(_), Some(mount)) = (tools::find("python3"), Mount::new(driver, "", &[])) else {
        return;
    };
    let calls = ["python3", "-c", BY_CALLS];
    for (mode, by_whom, count) in [
        (0o777, calls, 123),
        (0o2777, calls, 123),
        (0o1777, calls, 123),
        (0o3777, calls, 123),
        (0o2775, ["sh", "-ec", BY_PROGRAMS], 17),
    ] {
        let [here, there] = ["local", "mounted"].map(|name| format!("{name}-{mode:o}"));
        for name in [&here, &there] {
            let directory = mount.site.at(name);
            std::fs::create_dir(&directory).expect("a new one");
            chown(&directory, Some(1000), Some(2000)).expect("we are root");
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&directory, permissions).expect("we are root");
        }
        let expected = made(by_whom, &mount.site.at(&here));
        let found = made(by_whom, &mount.path().join(&there));
        assert_eq!(expected.len(), count, "{expected:?}");
        assert_eq!(found, expected, "in a directory of mode {mode:o}");
    }
    mount.end();
}

fn root_is_squashed_unless_it_is_told_otherwise(driver: Driver) {
    for (more, owner) in [(&[][..], 65534), (&["--no-root-squash"][..], 0)] {
        let Some(mount) = Mount::new(driver, "", more) else {
            return;
        };
        let file = mount.path().join("file");
        std::fs::write(&file, "of root").expect("anyone may write here");
        assert_eq!(file.metadata().expect("there").uid(), owner, "{more:?}");
        assert_eq!(
            mount.site.at("file").metadata().expect("there").uid(),
            owner
        );
        let given = chown(&file, Some(1000), Some(1000));
        assert_eq!(given.is_ok(), owner == 0, "{given:?}");
        mount.end();
    }
}
