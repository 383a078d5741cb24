//! What is needed only now and then: encoders of compression, archives, and the memory of Argon2.
//! All sites of all listeners take turns for one share of the memory.
//!
//! Each kind owns what one piece of its work needs, which the others leave to it. So a client with
//! slow downloads of archives does not keep others from logging in, and a busy site of one kind may
//! have nearly all of the share while the others rest. What finds no memory waits (passwords), is
//! sent as it is (files that would be compressed), or is answered with 503 (archives).

use flatpath::memory::{MemoryShare, SharePart};
use flatpath_files::limits::{ARCHIVE_BYTES_MAX, COMPRESS_WHOLE_BYTES_MAX};

use crate::passwords::PasswordChecks;

const MIB: usize = 1 << 20;

/// The part of the memory that the share has for each kind, and for all together, unless what they
/// own is more.
const KIND_PART: usize = 8;
const SHARE_PART: usize = 4;

/// A file that is compressed: the largest encoder 4 MiB with its buffers, the content and what
/// becomes of it.
const COMPRESSED_BYTES: usize = 4 * MIB + 64 * 1024 + 2 * COMPRESS_WHOLE_BYTES_MAX as usize;

/// Which of it a server needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OccasionalNeeds {
    pub(crate) compresses: bool,
    pub(crate) archives: bool,
    /// Of the largest check of a password; 0 where none has Argon2.
    pub(crate) check_bytes: usize,
    /// How many passwords may be checked at a time for the processors' sake.
    pub(crate) checks_max: u32,
}

/// The share, and its parts.
#[derive(Clone, Debug)]
pub(crate) struct Occasional {
    bytes: usize,
    own: Own,
    pub(crate) compress: SharePart,
    pub(crate) archives: SharePart,
    pub(crate) checks: PasswordChecks,
}

/// What the kinds own of it, in bytes.
#[derive(Clone, Copy, Debug)]
struct Own {
    compress: usize,
    archives: usize,
    /// Of one check.
    check: usize,
    checks: u32,
}

impl Own {
    fn passwords(&self) -> usize {
        self.check * self.checks as usize
    }

    fn sum(&self) -> usize {
        self.compress + self.archives + self.passwords()
    }
}

impl OccasionalNeeds {
    fn own(&self, memory_bytes: usize) -> Own {
        let of = |is_needed: bool, bytes| if is_needed { bytes } else { 0 };
        // As many as the processors would take, while they fit into the part of a kind.
        let fitting = memory_bytes / KIND_PART / self.check_bytes.max(1);
        let checks_max = self.checks_max.max(1);
        let checks = u32::try_from(fitting).unwrap_or(u32::MAX);
        Own {
            compress: of(self.compresses, COMPRESSED_BYTES),
            archives: of(self.archives, ARCHIVE_BYTES_MAX),
            check: self.check_bytes,
            checks: match self.check_bytes {
                0 => checks_max,
                _ => checks.clamp(1, checks_max),
            },
        }
    }

    fn share_bytes(&self, memory_bytes: usize, own: &Own) -> usize {
        let kinds = [self.compresses, self.archives, self.check_bytes > 0];
        let kinds = kinds.iter().filter(|is_needed| **is_needed).count();
        let usual = (kinds * (memory_bytes / KIND_PART)).min(memory_bytes / SHARE_PART);
        usual.max(own.sum())
    }

    /// The share that a server with this memory has.
    pub(super) fn divide(&self, memory_bytes: usize) -> Occasional {
        let own = self.own(memory_bytes);
        let bytes = self.share_bytes(memory_bytes, &own);
        let share = MemoryShare::new(bytes);
        let passwords = share.part(own.passwords());
        Occasional {
            bytes,
            own,
            compress: share.part(own.compress),
            archives: share.part(own.archives),
            checks: PasswordChecks::at_most(own.checks).memory(passwords),
        }
    }

    /// What each setting takes of it at least.
    pub(super) fn terms(&self, memory_bytes: usize) -> [(&'static str, usize); 3] {
        let own = self.own(memory_bytes);
        [
            ("compress", own.compress),
            ("archive", own.archives),
            ("auth-file", own.passwords()),
        ]
    }
}

impl Occasional {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A setting of new sites for which nothing, or too little, was set aside here.
    pub(super) fn lack(&self, new: &Self) -> Option<&'static str> {
        let (own, new) = (&self.own, &new.own);
        [
            ("compress", own.compress, new.compress),
            ("archive", own.archives, new.archives),
            ("auth-file with Argon2", own.check, new.check),
        ]
        .into_iter()
        .find(|(_, own, new)| new > own)
        .map(|(setting, ..)| setting)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Demands;
    use super::super::tests::{demands, four_sites};
    use super::*;

    fn all(check_mib: usize) -> OccasionalNeeds {
        OccasionalNeeds {
            compresses: true,
            archives: true,
            check_bytes: check_mib * MIB,
            checks_max: 16,
        }
    }

    #[test]
    fn one_share_holds_what_each_kind_owns_and_a_part_of_the_memory_otherwise() {
        let bytes = |of: OccasionalNeeds, mib| of.divide(mib * MIB).bytes();
        assert_eq!(bytes(OccasionalNeeds::default(), 256), 0);
        assert_eq!(bytes(all(0), 256), 64 * MIB);
        let compresses = OccasionalNeeds {
            archives: false,
            ..all(0)
        };
        assert_eq!(bytes(compresses, 256), 32 * MIB);
        let own = COMPRESSED_BYTES + ARCHIVE_BYTES_MAX;
        assert_eq!(bytes(all(64), 256), 64 * MIB + own);
        assert_eq!(bytes(all(0), 16), own, "as little as one of each takes");
        assert_eq!(bytes(all(64), 4096), 1024 * MIB);
    }

    #[test]
    fn slow_archives_leave_a_password_and_a_file_their_memory() {
        let turns = all(64).divide(256 * MIB);
        let archives: Vec<_> =
            std::iter::from_fn(|| turns.archives.hold(ARCHIVE_BYTES_MAX)).collect();
        assert_eq!(archives.len(), 1);
        assert!(turns.compress.hold(COMPRESSED_BYTES).is_some());
        let turns = all(0).divide(256 * MIB);
        let archives: Vec<_> =
            std::iter::from_fn(|| turns.archives.hold(ARCHIVE_BYTES_MAX)).collect();
        assert_eq!(archives.len(), 7);
        assert!(turns.compress.hold(COMPRESSED_BYTES).is_some());
    }

    #[test]
    fn passwords_are_checked_at_a_time_as_their_memory_and_the_processors_allow() {
        let checks = |check_mib, mib| all(check_mib).own(mib * MIB).checks;
        assert_eq!((checks(0, 64), checks(64, 64)), (16, 1));
        assert_eq!(
            (checks(19, 256), checks(19, 1024), checks(19, 1 << 16)),
            (1, 6, 16)
        );
    }

    #[test]
    fn what_takes_turns_does_not_multiply_by_sites_and_listeners() {
        let one = Demands {
            http: 1,
            ..four_sites(64 * MIB)
        };
        let many = Demands {
            http: 64,
            ..one.clone()
        };
        let bytes = |demands: Demands| demands.divide().expect("enough").occasional.bytes();
        assert_eq!(bytes(one), bytes(many));
    }

    #[test]
    fn sites_of_a_reload_take_turns_for_what_was_set_aside() {
        let started = demands(256).divide().expect("enough");
        let why = started
            .of_reload(&four_sites(0))
            .expect_err("nothing")
            .to_string();
        assert!(
            why.contains("for compress of the new sites: restart"),
            "{why}"
        );
        let started = four_sites(16 * MIB).divide().expect("enough");
        let more = Demands {
            http: 12,
            ..four_sites(8 * MIB)
        };
        let parts = started.of_reload(&more).expect("the same kinds");
        assert_eq!(parts.occasional.bytes(), started.occasional.bytes());
        let larger = started
            .of_reload(&four_sites(64 * MIB))
            .expect_err("larger");
        assert!(larger.to_string().contains("for auth-file"), "{larger}");
    }
}
