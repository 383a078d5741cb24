//! Linux's own server beside ours: the same calls through the kernel's client on a mount of each,
//! and in a local directory. The book says what of the differences concerns users.
//!
//! Only where the kernel has that server and its programs are installed; it runs in namespaces of
//! its own, so that nothing of the machine's is touched.

use std::collections::BTreeMap;
use std::process::Command;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::skipped::cannot_run;
use flatpath_testkit::{Driver, Site, binary, each_driver, tools};

use crate::nfs::mounted::Mount;

each_driver!(calls_come_out_as_from_the_server_of_linux);

/// What runs in the namespaces, and what it runs in each directory.
const SCRIPT: &str = include_str!("beside.sh");
const CALLS: &str = include_str!("beside.py");
/// How the script ends where that server cannot run.
const MISSING: i32 = 77;

/// Calls whose outcome is that of a local directory, and not that of Linux's server.
struct Difference {
    /// How they begin.
    calls: &'static str,
    /// The mode that the file has there; all else is the same.
    mode_there: fn(&str) -> String,
    by: By,
}

/// Which servers of Linux's have a difference. What they do says it, and not their versions.
#[derive(PartialEq, Eq)]
enum By {
    All,
    /// That of 5.10, of 6.1 and later ones none.
    Some,
}

const DIFFERENCES: &[Difference] = &[
    // A size leaves set-id bits there.
    Difference {
        calls: "truncate ",
        mode_there: |call| format!("10{}", call.split(' ').nth(1).unwrap_or_default()),
        by: By::All,
    },
    // A new owner or group takes the bit also of a file that no group executes, where it stands for
    // no rights.
    Difference {
        calls: "chown 2745 to ",
        mode_there: |_| "100745".to_owned(),
        by: By::Some,
    },
];

impl Difference {
    fn is_of(&self, call: &str, here: &str, there: &str) -> bool {
        let mode = (self.mode_there)(call);
        let mut words: Vec<&str> = here.split(' ').collect();
        if let Some(word) = words.get_mut(1) {
            *word = &mode;
        }
        call.starts_with(self.calls) && words.join(" ") == there
    }
}

/// What came of each call in one of the directories.
fn in_directory<'a>(name: &str, said: &'a str) -> BTreeMap<&'a str, &'a str> {
    let begin = format!("{name}: ");
    let lines = said.lines().filter_map(|line| line.strip_prefix(&begin));
    lines.filter_map(|line| line.split_once("; ")).collect()
}

fn calls_come_out_as_from_the_server_of_linux(driver: Driver) {
    let needed = ["unshare", "python3"].map(tools::find);
    let ([Some(unshare), Some(_)], Some(mount)) = (needed, Mount::new(driver, "", &[])) else {
        return;
    };
    // It was to see that the kernel has a client.
    mount.end();
    let site = Site::new();
    site.write("beside.py", CALLS);
    let mut command = Command::new(unshare);
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
        .args(["--mount-proc", "sh", "-c", SCRIPT, "sh"])
        .args([site.path().as_os_str(), driver.name().as_ref()])
        .env("FLATPATH", binary::flatpath());
    let output = tools::run(&mut command, long_patience());
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(MISSING) {
        return cannot_run(said.trim_end());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let [local, ours, theirs] = ["LOCAL", "OURS", "THEIRS"].map(|name| in_directory(name, &said));
    assert!(ours.len() > 300, "{} calls", ours.len());
    let mut seen = vec![false; DIFFERENCES.len()];
    let mut unknown = Vec::new();
    for (call, came) in &ours {
        let (there, locally) = (theirs[call], local[call]);
        if there == *came {
            continue;
        }
        let known = DIFFERENCES
            .iter()
            .position(|it| it.is_of(call, came, there));
        match known {
            Some(place) if locally == *came => seen[place] = true,
            _ => unknown.push(format!("{call}: {came}; there {there}, locally {locally}")),
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    let everywhere = DIFFERENCES
        .iter()
        .zip(&seen)
        .filter(|it| it.0.by == By::All);
    let missed: Vec<_> = everywhere.filter(|it| !it.1).map(|it| it.0.calls).collect();
    assert!(
        missed.is_empty(),
        "Linux's server does these as we: {missed:?}"
    );
}
