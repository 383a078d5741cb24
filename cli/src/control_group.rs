//! What the control groups of this process allow it: memory.
//!
//! The limit of a group counts what `--memory` does not, socket buffers and page cache among it,
//! and who goes beyond it is killed.

use std::fs;
use std::path::Path;

use crate::units::size_text;

/// The part of a group's limit that `--memory` may be: the rest is for the kernel's buffers of
/// connections, which the group counts.
const PART: (usize, usize) = (3, 4);

/// The memory that the groups allow, in bytes; `None` where they set no limit.
pub(crate) fn memory_bytes() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_bytes(&groups, |path| fs::read_to_string(path).ok())
}

/// What to warn of where a server has this much memory, and its groups allow that much.
pub(crate) fn warning(memory: usize, limit: usize) -> Option<String> {
    let most = limit / PART.1 * PART.0;
    (memory > most).then(|| {
        format!(
            "--memory is {}, and the control group of this process allows {}, buffers of sockets \
             included: beyond that the kernel kills it; set --memory {}",
            size_text(memory),
            size_text(limit),
            size_text((most >> 20).max(1) << 20)
        )
    })
}

/// The least limit of the groups in this text (`/proc/self/cgroup`), and of those they are in.
fn group_bytes(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let limits = groups.lines().flat_map(|line| {
        // `0::/a/b`; of version 1 `4:memory:/a/b`.
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next().unwrap_or_default();
        let group = parts.next().unwrap_or_default().trim_start_matches('/');
        let place = match controllers {
            "" => Some(("/sys/fs/cgroup", "memory.max")),
            _ if controllers.split(',').any(|it| it == "memory") => {
                Some(("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))
            }
            _ => None,
        };
        let limits = place.into_iter().flat_map(|(root, name)| {
            let path = Path::new(group);
            // The last one is the root's.
            let limits = path
                .ancestors()
                .map(|it| Path::new(root).join(it).join(name));
            limits.collect::<Vec<_>>()
        });
        limits.collect::<Vec<_>>()
    });
    // `max` is none.
    limits
        .filter_map(|path| read(&path)?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_that_the_group_does_not_allow_is_warned_of_with_both_numbers() {
        let warning = |memory: usize, limit: usize| warning(memory << 20, limit << 20);
        let words = warning(256, 96).expect("it is too much");
        for part in ["--memory is 256M", "allows 96M", "set --memory 72M"] {
            assert!(words.contains(part), "{words}");
        }
        assert!(warning(96, 96).is_some(), "nothing is left for sockets");
        assert_eq!(warning(72, 96), None);
    }

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let files = |path: &Path| {
            let limit = match path.to_str()? {
                "/sys/fs/cgroup/a/b/memory.max" => "max\n",
                "/sys/fs/cgroup/a/memory.max" => "2097152\n",
                "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => "1048576\n",
                _ => return None,
            };
            Some(limit.to_owned())
        };
        for (groups, expected) in [
            ("0::/a/b\n", Some(2 << 20)),
            ("0::/\n", None),
            ("5:cpu:/a\n4:memory:/c\n0::/a/b\n", Some(1 << 20)),
            ("4:cpu,memory:/c\n", Some(1 << 20)),
            ("", None),
        ] {
            assert_eq!(group_bytes(groups, files), expected, "{groups}");
        }
    }
}
