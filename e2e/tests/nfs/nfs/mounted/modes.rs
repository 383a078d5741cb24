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

/// All directories and files that one makes in a directory of each mode, with each mask, as `NAME
/// MODE OWNER GROUP`.
fn made(within: &Path) -> Vec<String> {
    let lines = "for u in 0 022 077; do umask $u; for m in 0 700 755 777 1777 2770 3777 7777; do
                   mkdir -m $m d$u-$m; mkdir p$u-$m; : >f$u-$m; chmod $m f$u-$m
                 done; done; python3 -c \"
import os
for u in (0, 0o22, 0o77):
    os.umask(u)
    for m in (0, 0o700, 0o777, 0o1777, 0o2770, 0o7777):
        os.mkdir('y%o-%o' % (u, m), m)
        os.close(os.open('c%o-%o' % (u, m), os.O_CREAT | os.O_EXCL | os.O_WRONLY, m))
        os.mkfifo('q%o-%o' % (u, m), m)\"
                 stat -c '%n %a %u %g' * | sort";
    let mut command = by(1000, &[2000], "sh", within);
    let output = tools::run(command.args(["-ec", lines]), patience());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().map(String::from).collect()
}

fn what_is_made_has_the_mode_and_the_group_of_a_local_one(driver: Driver) {
    let (Some(_), Some(mount)) = (tools::find("python3"), Mount::new(driver, "", &[])) else {
        return;
    };
    for mode in [0o777, 0o2777, 0o1777, 0o3777] {
        let [here, there] = ["local", "mounted"].map(|name| format!("{name}-{mode:o}"));
        for name in [&here, &there] {
            let directory = mount.site.at(name);
            std::fs::create_dir(&directory).expect("a new one");
            chown(&directory, Some(1000), Some(2000)).expect("we are root");
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&directory, permissions).expect("we are root");
        }
        let expected = made(&mount.site.at(&here));
        let found = made(&mount.path().join(&there));
        assert!(expected.len() > 60, "{expected:?}");
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
