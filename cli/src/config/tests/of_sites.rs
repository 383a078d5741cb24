//! Tables `[[site]]`: what each has of its listener and for itself, and what is wrong with one.

use expect_test::expect_file;

use super::{errors, sites};
use crate::config::Configuration;
use crate::config::site::SiteTable;
use crate::settings::is_on;

#[test]
fn a_site_is_three_lines_and_has_what_its_listener_has() {
    let text = "hidden = true\nrate = \"10/s\"\nallow = \"10.0.0.0/8\"\n\
        [[site]]\nnames = \"example.org\"\ndir = \"/srv/example\"\n\
        [[site]]\nnames = [\"A.example\", \"*.a.example\"]\nprefix = \"/p\"\ndir = \"a\"\n\
        hidden = false\nallow = []\nwritable = true\n\
        [[site]]\ndir = \"rest\"\n";
    let file = Configuration::from_text(text).expect("a good file");
    let labels: Vec<_> = file.sites.iter().map(SiteTable::label).collect();
    assert_eq!(
        labels,
        ["example.org /", "a.example, *.a.example /p", "* /"]
    );
    let over: Vec<_> = file
        .sites
        .iter()
        .map(|it| it.over(&file.settings))
        .collect();
    assert_eq!(over[0].dir, Some("/srv/example".into()));
    assert_eq!((is_on(over[0].hidden), over[0].allow.len()), (true, 1));
    assert_eq!((is_on(over[1].hidden), over[1].allow.len()), (false, 0));
    assert!(is_on(over[1].writable) && over[1].rate.is_some());
    let defaults: Vec<_> = file.sites.iter().map(SiteTable::is_default).collect();
    assert_eq!(defaults, [false, false, true]);
}

#[test]
fn a_table_has_a_directory_or_asks_servers_whatever_stands_above() {
    const ABOVE: [&str; 2] = ["dir = \"above\"", "proxy = \"http://127.0.0.1:1\""];
    const OWN: [&str; 2] = ["dir = \"own\"", "proxy = \"http://127.0.0.1:2\""];
    for above in ABOVE {
        for (own, has_dir) in OWN.into_iter().zip([true, false]) {
            let text = format!(
                "{above}\n[[listener]]\nprotocol = \"http\"\naddress = 1\n{own}\n[[site]]\n{own}\n"
            );
            let file = Configuration::from_text(&text).expect(&text);
            let listener = file.listeners[0].over(&file.settings);
            for over in [listener, file.sites[0].over(&file.settings)] {
                let proxy: Vec<_> = over.proxy.iter().map(ToString::to_string).collect();
                match has_dir {
                    true => assert_eq!((over.dir, proxy), (Some("own".into()), vec![]), "{text}"),
                    false => {
                        assert_eq!(
                            (over.dir, &*proxy),
                            (None, &["http://127.0.0.1:2".into()][..])
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_mistake_in_a_site_has_its_place_and_a_cure() {
    const SITE: &str = "[[site]]\ndir = \"a\"\n";
    const PROXY: &str = "proxy = \"http://127.0.0.1:3000\"\n";
    let texts = [
        "site = 1".to_owned(),
        "[site]\ndir = \"a\"".into(),
        "[[site]]\nnames = \"a.example\"".into(),
        format!("{SITE}names = []"),
        format!("{SITE}{PROXY}"),
        format!("[[site]]\n{PROXY}allow-origin = \"*\""),
        format!("[[site]]\n{PROXY}redirect = [{{ from = \"/a\", to = \"/b\" }}]"),
        format!("{SITE}names = 1"),
        format!("{SITE}names = [\"a.example\", \"http://b.example\"]"),
        format!("{SITE}prefix = \"a\""),
        format!("{SITE}prefix = 1"),
        format!("{SITE}prefix = \"/a/../b\""),
        format!("{SITE}address = 80"),
        format!("{SITE}memory = \"64M\""),
        format!("{SITE}allow = \"::1\"\ndeny = [\"10.0.0.1\", \"::1\"]"),
        format!("allow = \"::1\"\n\n{SITE}deny = \"::1\""),
        format!("{SITE}head-timeout = 1"),
        format!("{SITE}hosts = \"a.example\""),
        format!("{SITE}hiden = true"),
        format!("{SITE}name = \"a.example\""),
        format!("{SITE}all-squash = true"),
        format!("{SITE}no-such-key = true"),
        format!("{SITE}allow = \"10.0.0.5/8\""),
        format!("{SITE}rate = \"fast\""),
        format!("{SITE}{SITE}"),
        format!("{SITE}names = \"a.example\"\n{SITE}names = [\"b.example\", \"A.example\"]"),
        format!("{SITE}prefix = \"/a\"\n{SITE}prefix = \"/a/\""),
    ];
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    expect_file!["../site_errors.txt"].assert_eq(&errors(&texts, |text| sites(text).map(drop)));
}
