//! The rules, as tables: each with the reason that it gives.

use flatpath_rpc::Groups;

use super::*;
use crate::attributes::Time;
use crate::identity::GroupList;

const OWNER: u32 = 1000;
const MEMBER: u32 = 1001;
const STRANGER: u32 = 1002;
const ROOT: u32 = 0;
const GROUP: u32 = 100;
const OTHER_GROUP: u32 = 200;

const CHOSEN: SetTime = SetTime::To(Time {
    seconds: 5,
    nanoseconds: 5,
});
const NOTHING: SetAttributes = SetAttributes {
    mode: None,
    user: None,
    group: None,
    size: None,
    accessed: SetTime::Keep,
    modified: SetTime::Keep,
};

fn who(user: u32) -> Who {
    let groups = match user {
        STRANGER => Groups::default(),
        _ => Groups::new([GROUP]),
    };
    Who {
        user,
        group: user,
        groups: GroupList::Sent(groups),
    }
}

/// What a caller may of a file of [`OWNER`] and [`GROUP`] with mode 664.
fn change(kind: FileType, user: u32, wanted: &SetAttributes) -> Result<Plan, Refusal> {
    let is_root = user == ROOT;
    let file = Existing {
        kind,
        user: OWNER,
        group: GROUP,
        may_write: user != STRANGER,
    };
    let powers = Powers {
        gives_away: is_root,
        owns_all: is_root,
        lent: true,
    };
    let who = who(user);
    decide(&Subject::There(file), &Caller { who: &who, powers }, wanted)
}

fn new(kind: FileType, user: u32, wanted: &SetAttributes) -> Result<Plan, Refusal> {
    let powers = Powers {
        gives_away: user == ROOT,
        ..Powers::default()
    };
    let (who, device) = (who(user), (0, 0));
    decide(
        &Subject::New { kind, device },
        &Caller { who: &who, powers },
        wanted,
    )
}

/// What is wanted; why the owner, one who may write, and one who may not are refused it.
type Row = (SetAttributes, [Option<Refusal>; 3]);

fn with(change: impl FnOnce(&mut SetAttributes)) -> SetAttributes {
    let mut wanted = NOTHING;
    change(&mut wanted);
    wanted
}

fn rules() -> [Row; 8] {
    use Refusal as No;
    let all = |refusal| [Some(refusal); 3];
    let of_owner = |refusal| [None, Some(refusal), Some(refusal)];
    let of_writers = |refusal| [None, None, Some(refusal)];
    [
        (with(|it| it.size = Some(0)), of_writers(No::MayNotWrite)),
        (
            with(|it| it.mode = Some(0o600)),
            of_owner(No::ModeOfAnother),
        ),
        (with(|it| it.user = Some(OWNER)), of_owner(No::GivesAway)),
        (with(|it| it.user = Some(MEMBER)), all(No::GivesAway)),
        (
            with(|it| it.group = Some(GROUP)),
            of_owner(No::ForeignGroup),
        ),
        (
            with(|it| it.group = Some(OTHER_GROUP)),
            all(No::ForeignGroup),
        ),
        (
            with(|it| it.modified = SetTime::Now),
            of_writers(No::MayNotWrite),
        ),
        (with(|it| it.accessed = CHOSEN), of_owner(No::TimeOfAnother)),
    ]
}

#[test]
fn each_attribute_has_those_who_may_set_it() {
    for (number, (wanted, refusals)) in rules().into_iter().enumerate() {
        let refusal = |user, wanted| change(FileType::RegularFile, user, wanted).err();
        let found = [OWNER, MEMBER, STRANGER].map(|user| refusal(user, &wanted));
        assert_eq!(found, refusals, "{number}");
        assert_eq!(refusal(ROOT, &wanted), None, "root, {number}");
        // Beside what it may, nothing is saved.
        if wanted.accessed == SetTime::Keep {
            let both = SetAttributes {
                accessed: SetTime::Now,
                ..wanted
            };
            assert_eq!(refusal(MEMBER, &both), refusals[1], "with a time, {number}");
        }
    }
}

#[test]
fn the_owner_gives_a_file_to_groups_it_is_in() {
    let wanted = SetAttributes {
        group: Some(OWNER),
        ..NOTHING
    };
    let plan = change(FileType::RegularFile, OWNER, &wanted).expect("its own");
    assert_eq!(plan.group, Some(OWNER));
    // What stands for "no change" in chown(2) changes nothing.
    let wanted = SetAttributes {
        user: Some(u32::MAX),
        group: Some(u32::MAX),
        ..NOTHING
    };
    assert_eq!(
        change(FileType::RegularFile, STRANGER, &wanted),
        Ok(Plan::default())
    );
}

#[test]
fn sizes_are_of_files_and_no_longer_than_a_file_can_be() {
    let sized = |size| SetAttributes {
        size: Some(size),
        ..NOTHING
    };
    let refusal = |kind, size| change(kind, OWNER, &sized(size)).err();
    assert_eq!(refusal(FileType::RegularFile, (1 << 63) - 1), None);
    assert_eq!(
        refusal(FileType::RegularFile, 1 << 63),
        Some(Refusal::TooLong)
    );
    assert_eq!(
        refusal(FileType::Directory, 0),
        Some(Refusal::SizeOfDirectory)
    );
    assert_eq!(refusal(FileType::Fifo, 0), Some(Refusal::SizeOfSpecial));
    assert_eq!(refusal(FileType::Symlink, 0), Some(Refusal::SizeOfSpecial));
}

#[test]
fn a_link_has_no_mode_and_what_else_is_wanted_is_set() {
    let wanted = SetAttributes {
        mode: Some(0o600),
        modified: CHOSEN,
        ..NOTHING
    };
    let plan = change(FileType::Symlink, OWNER, &wanted).expect("it may");
    let times = Step::Times {
        accessed: SetTime::Keep,
        modified: CHOSEN,
        by: By::Caller,
    };
    assert_eq!(plan.steps().collect::<Vec<_>>(), [times]);
    let mode = SetAttributes {
        mode: Some(0o600),
        ..NOTHING
    };
    assert_eq!(
        change(FileType::Symlink, STRANGER, &mode),
        Ok(Plan::default())
    );
}

#[test]
fn the_servers_time_is_set_by_whom_the_kernel_lets_and_implied_by_a_size() {
    let by = |user, size, accessed, modified| {
        let wanted = SetAttributes {
            size,
            accessed,
            modified,
            ..NOTHING
        };
        change(FileType::RegularFile, user, &wanted)
            .expect("it may write")
            .times
    };
    let (keep, now) = (SetTime::Keep, SetTime::Now);
    assert_eq!(by(MEMBER, None, keep, now), Some((keep, now, By::Server)));
    assert_eq!(by(MEMBER, None, now, keep), Some((now, keep, By::Server)));
    assert_eq!(by(MEMBER, None, now, now), Some((now, now, By::Caller)));
    assert_eq!(by(OWNER, None, now, keep), Some((now, keep, By::Caller)));
    assert_eq!(by(MEMBER, Some(0), keep, now), None);
    assert_eq!(by(MEMBER, Some(0), now, now), Some((now, now, By::Caller)));
    assert_eq!(
        by(MEMBER, Some(0), now, keep),
        Some((now, keep, By::Server))
    );
    // A server that is not root has no more rights than its callers.
    let file = Existing {
        kind: FileType::RegularFile,
        user: OWNER,
        group: GROUP,
        may_write: true,
    };
    let (who, powers) = (who(MEMBER), Powers::default());
    let caller = Caller { who: &who, powers };
    let refusal = |wanted| decide(&Subject::There(file), &caller, &wanted).err();
    let one = SetAttributes {
        modified: now,
        ..NOTHING
    };
    assert_eq!(refusal(one), Some(Refusal::OneTimeOfAnother));
    assert_eq!(
        refusal(SetAttributes {
            size: Some(0),
            ..one
        }),
        None
    );
    assert_eq!(
        refusal(SetAttributes {
            accessed: now,
            ..one
        }),
        None
    );
}

#[test]
fn a_size_comes_after_all_that_may_be_refused_and_what_it_takes_is_set_again() {
    let wanted = SetAttributes {
        mode: Some(0o4755),
        user: Some(OWNER),
        group: None,
        size: Some(7),
        accessed: SetTime::Keep,
        modified: CHOSEN,
    };
    let plan = change(FileType::RegularFile, OWNER, &wanted).expect("it may");
    let owner = Step::Owner {
        user: Some(OWNER),
        group: None,
    };
    let times = Step::Times {
        accessed: SetTime::Keep,
        modified: CHOSEN,
        by: By::Caller,
    };
    let mode = Step::Mode(0o4755);
    let steps = plan.steps().collect::<Vec<_>>();
    assert_eq!(steps, [owner, mode, times, Step::Size(7), mode, times]);
    let plain = SetAttributes {
        mode: Some(0o755),
        size: Some(7),
        ..NOTHING
    };
    let plan = change(FileType::RegularFile, OWNER, &plain).expect("it may");
    let steps = plan.steps().collect::<Vec<_>>();
    assert_eq!(steps, [Step::Mode(0o755), Step::Size(7)]);
}

#[test]
fn only_who_may_give_files_away_names_the_owner_and_group_of_a_new_one() {
    let wanted = SetAttributes {
        user: Some(7),
        group: Some(GROUP),
        ..NOTHING
    };
    for kind in [
        FileType::RegularFile,
        FileType::Directory,
        FileType::Symlink,
        FileType::Fifo,
    ] {
        let plan = new(kind, OWNER, &wanted).expect("made");
        assert!(!plan.has_steps(), "{kind:?}: {GROUP} is one of its groups");
        let plan = new(kind, ROOT, &wanted).expect("made");
        assert_eq!((plan.user, plan.group), (Some(7), Some(GROUP)));
        assert!(!plan.without_owner(7, GROUP).has_steps());
        assert_eq!(plan.without_owner(7, 0).group, Some(GROUP));
    }
}

#[test]
fn a_new_object_is_made_with_its_mode_and_gets_the_rest_after_that() {
    let mode = |kind, mode| {
        let plan = new(kind, OWNER, &SetAttributes { mode, ..NOTHING }).expect("made");
        (plan.made_with, plan.steps().collect::<Vec<_>>())
    };
    assert_eq!(mode(FileType::RegularFile, None), (0o600, vec![]));
    assert_eq!(mode(FileType::RegularFile, Some(0o4751)), (0o4751, vec![]));
    assert_eq!(mode(FileType::Directory, None), (0o700, vec![]));
    // Root names another owner, and the bits that this would take.
    let other = SetAttributes {
        user: Some(7),
        mode: Some(0o4751),
        ..NOTHING
    };
    let plan = new(FileType::RegularFile, ROOT, &other).expect("made");
    let owner = Step::Owner {
        user: Some(7),
        group: None,
    };
    let steps = plan.steps().collect::<Vec<_>>();
    assert_eq!(steps, [owner, Step::Mode(0o4751)]);
    // As mkdir(2): the group's bit of the directory above stays.
    assert_eq!(mode(FileType::Directory, Some(0o1777)), (0o1777, vec![]));
    assert_eq!(
        mode(FileType::Directory, Some(0o2750)),
        (0o750, vec![Step::Bits(0o2000)])
    );
    let sized = |kind, size| {
        let plan = new(
            kind,
            OWNER,
            &SetAttributes {
                size: Some(size),
                ..NOTHING
            },
        );
        plan.map(|plan| plan.size)
    };
    assert_eq!(sized(FileType::RegularFile, 0), Ok(None), "it is empty");
    assert_eq!(sized(FileType::RegularFile, 5), Ok(Some(5)));
    assert_eq!(sized(FileType::RegularFile, 1 << 63), Err(Refusal::TooLong));
    assert_eq!(sized(FileType::Directory, 1 << 63), Ok(None));
}

#[test]
fn numbers_of_devices_that_the_kernel_would_cut_are_refused() {
    let (who, powers) = (who(ROOT), Powers::default());
    let decided = |kind, device| {
        let caller = Caller { who: &who, powers };
        decide(&Subject::New { kind, device }, &caller, &NOTHING).err()
    };
    for kind in [FileType::CharacterDevice, FileType::BlockDevice] {
        assert_eq!(decided(kind, (4095, (1 << 20) - 1)), None);
        for device in [
            (4096, 0),
            (4097, 3),
            (1 << 20, 0),
            (1, 1 << 20),
            (1, 1 << 21),
        ] {
            assert_eq!(
                decided(kind, device),
                Some(Refusal::NoSuchDevice),
                "{device:?}"
            );
        }
    }
    assert_eq!(
        decided(FileType::Fifo, (4097, 3)),
        None,
        "they are not its own"
    );
}
