//! The entries as a whole.

use super::*;

#[test]
fn names_are_unique_and_found() {
    for setting in SETTINGS.iter() {
        assert_eq!(Setting::named(setting.name()), Some(setting));
    }
    assert_eq!(Setting::named("port"), Setting::named("http"));
    assert_eq!(Setting::named("max_connections"), None);
    assert_eq!(Setting::named("config"), None);
}

#[test]
fn the_help_has_every_setting_in_the_order_of_use_and_topics_in_one_piece() {
    for names in order::FIRST {
        let topic = |name: &&str| Setting::named(name).expect(name).topic();
        assert!(names.iter().all(|name| topic(name) == topic(&names[0])));
    }
    let line = Settings::added_to(Command::new("serve"));
    let arguments = || line.get_arguments();
    let common = SETTINGS.iter().filter(|it| it.facts.is_of_all_commands);
    assert_eq!(arguments().count(), SETTINGS.len() - common.count());
    let first: Vec<_> = arguments().map(|it| it.get_id().as_str()).take(4).collect();
    assert_eq!(first, ["dir", "http", "https", "writable"]);
    let mut topics: Vec<_> = arguments().map(Arg::get_help_heading).collect();
    topics.dedup();
    let mut unique = topics.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(topics.len(), unique.len(), "{topics:?}");
}

#[test]
fn the_facts_of_a_setting_fit_each_other() {
    for setting in SETTINGS.iter() {
        let is_of_listeners = !setting.listeners().is_empty();
        if setting.is_reloaded(Part::Table) || !setting.is_inherited() || setting.is_for_writing() {
            assert!(is_of_listeners, "{setting:?} is set in tables");
        }
        assert!(
            setting.argument.get_help().is_some(),
            "{setting:?} has help"
        );
    }
}

#[test]
fn a_setting_that_is_a_limit_changes_that_limit_alone() {
    let server = format!("{:?}", Limits::default());
    let mut settings = Settings::default();
    for setting in SETTINGS.iter() {
        let values = ["7", "1s", "true", "127.0.0.1:7", "::1"].map(str::to_owned);
        let mut own = Settings::default();
        let is_read = values
            .iter()
            .any(|it| setting.parse(&mut own, std::slice::from_ref(it)).is_ok());
        if !is_read || setting.facts.is_reloaded {
            continue;
        }
        let above = setting.is_reloaded(Part::AboveTables);
        assert_eq!(
            format!("{:?}", own.limits()) != server,
            above,
            "{setting:?}"
        );
        let in_table = setting.is_reloaded(Part::Table);
        assert_eq!(
            own.listener_limits() != ListenerLimits::default(),
            in_table,
            "{setting:?}"
        );
        setting.copy(&own, &mut settings);
        assert!(setting.is_same(&own, &settings), "{setting:?}");
    }
}

/// Two flags come together on the command line alone; a file is refused where its list is.
#[test]
fn a_value_that_excludes_others_stands_alone_in_its_list() {
    let told = |words: &str| {
        let line = line().try_get_matches_from(words.split(' '));
        Settings::default()
            .replaced_by(&line.expect("each is one"))
            .conflict()
    };
    for words in ["--compress off --compress gzip", "--compress zstd,off"] {
        let why = told(words).expect("they exclude each other");
        assert!(
            why.starts_with("--compress off excludes other values"),
            "{why}"
        );
    }
    for words in ["--compress off", "--compress off,off", "--compress gzip,br"] {
        assert_eq!(told(words), None, "{words}");
    }
    let mut settings = Settings::default();
    let compress = Setting::named("compress").expect("a setting");
    let all = ["off", "br"].map(str::to_owned);
    assert!(compress.parse(&mut settings, &all).is_err());
    assert!(compress.parse(&mut settings, &all[..1]).is_ok());
}

/// The book is not in the package of this crate.
#[test]
fn the_book_has_each_setting_that_a_reload_takes_over_in_its_row() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/src/operate.md");
    let Ok(page) = std::fs::read_to_string(path) else {
        return;
    };
    for (end, above, in_tables) in [
        ("| anywhere |", true, true),
        ("| above the tables |", true, false),
        ("| in a table `[[listener]]` |", false, true),
    ] {
        let row = page.lines().find(|line| line.ends_with(end)).expect(end);
        let mut named: Vec<_> = row.split('`').skip(1).step_by(2).collect();
        named.retain(|it| *it != "[[listener]]");
        let mut names: Vec<_> = SETTINGS
            .iter()
            .filter(|it| it.is_reloaded(Part::AboveTables) == above)
            .filter(|it| it.is_reloaded(Part::Table) == in_tables)
            .map(Setting::name)
            .collect();
        named.sort_unstable();
        names.sort_unstable();
        assert_eq!(named, names, "{end}");
    }
}

/// Where an option may stand is said by its entry; the book repeats it.
#[test]
fn the_book_has_each_setting_in_the_row_of_the_tables_that_may_set_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/src/configure.md");
    let Ok(page) = std::fs::read_to_string(path) else {
        return;
    };
    for (end, of_listeners, of_sites) in [
        ("| nothing: they are the server's |", false, false),
        ("| listener |", true, false),
        ("| site |", false, true),
        ("| listener and site |", true, true),
    ] {
        let row = page.lines().find(|line| line.ends_with(end)).expect(end);
        let mut named: Vec<_> = row.split('`').skip(1).step_by(2).collect();
        let mut names: Vec<_> = SETTINGS
            .iter()
            .filter(|it| it.listeners().is_empty() != of_listeners)
            .filter(|it| it.is_of_sites() == of_sites)
            .map(Setting::name)
            .collect();
        named.sort_unstable();
        names.sort_unstable();
        assert_eq!(named, names, "{end}");
    }
}
