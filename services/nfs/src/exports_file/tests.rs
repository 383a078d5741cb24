//! Lines of `/etc/exports`, as exports(5) has them and as people write them.

use super::*;
use crate::rights::{Access, Squash};

fn parse(text: &str) -> Result<Vec<ExportOptions>, String> {
    let file = ExportsFile::parse(text.as_bytes(), "exports").map_err(|it| it.to_string())?;
    Ok(file.exports)
}

/// The rights of the only client in a file.
fn rights(client: &str) -> Rights {
    let exports = parse(&format!("/srv {client}\n")).expect(client);
    let [export] = &exports[..] else {
        panic!("{exports:?}");
    };
    let [rule] = &export.rules[..] else {
        panic!("{export:?}");
    };
    rule.rights
}

/// `CLIENT=rw` or `CLIENT=ro` for each client of each line.
fn seen(text: &str) -> Vec<(String, Vec<String>)> {
    let exports = parse(text).expect(text);
    let seen = exports.iter().map(|export| {
        let rules = export.rules.iter().map(|rule| {
            let access = match rule.rights.access {
                Access::ReadWrite => "rw",
                Access::ReadOnly => "ro",
            };
            format!("{}={access}", rule.clients)
        });
        (export.directory.display().to_string(), rules.collect())
    });
    seen.collect()
}

fn one(path: &str, rules: &[&str]) -> (String, Vec<String>) {
    let rules = rules.iter().map(ToString::to_string).collect();
    (path.into(), rules)
}

#[test]
fn paths_clients_and_options_are_read_as_in_the_manual() {
    let text = "# sample\n\n\
        / master(rw) trusty(rw,no_root_squash)\n\
        /home/joe\tpc001(rw,all_squash,anonuid=150,anongid=100)\n\
        /pub *(ro,insecure,all_squash)  # for all\n\
        /srv/www -sync,rw server external(ro)\n\
        /foo 2001:db8:9:e54::/64(rw) 192.0.2.0/24(rw) 10.0.0.0/255.0.0.0\n";
    let expected = [
        one("/", &["master=rw", "trusty=rw"]),
        one("/home/joe", &["pc001=rw"]),
        one("/pub", &["*=ro"]),
        one("/srv/www", &["server=rw", "external=ro"]),
        one(
            "/foo",
            &["2001:db8:9:e54::/64=rw", "192.0.2.0/24=rw", "10.0.0.0/8=ro"],
        ),
    ];
    assert_eq!(seen(text), expected);
    let joe = rights("pc001(rw,all_squash,anonuid=150,anongid=100)");
    assert_eq!(joe.squash, Squash::All);
    assert_eq!((joe.anonymous_user, joe.anonymous_group), (150, 100));
}

#[test]
fn what_is_not_said_is_as_safe_as_in_the_manual() {
    let silent = rights("*");
    assert_eq!(silent, DEFAULT);
    assert_eq!(
        (silent.access, silent.squash),
        (Access::ReadOnly, Squash::Root)
    );
    assert!(silent.secure_ports);
    assert_eq!(
        (silent.anonymous_user, silent.anonymous_group),
        (65_534, 65_534)
    );
    assert_eq!(rights("*()"), silent);
    assert_eq!(
        rights("*(rw,ro,insecure,secure,)"),
        silent,
        "the last word counts"
    );
}

#[test]
fn all_stays_squashed_whatever_is_said_of_root() {
    for options in ["all_squash,no_root_squash", "no_root_squash,all_squash"] {
        assert_eq!(
            rights(&format!("*({options})")).squash,
            Squash::All,
            "{options}"
        );
    }
    assert_eq!(rights("*(no_root_squash)").squash, Squash::Anonymous);
    assert_eq!(rights("*(no_root_squash,root_squash)").squash, Squash::Root);
    assert_eq!(rights("*(all_squash,no_all_squash)").squash, Squash::Root);
    assert_eq!(
        rights("*(no_root_squash,no_all_squash)").squash,
        Squash::Anonymous
    );
}

#[test]
fn lines_continue_and_quotes_and_octal_numbers_make_any_path() {
    let text = "/a \\\n  10.0.0.1(rw) \\\n\t10.0.0.2\n\
        \"/my files/#1\" *\n/oct\\040al\\134\\042 *\n/with\" two \"quotes *\n\
        # a comment that goes on \\\n/never *\n/hash#tag *\n/back\\slash *\n\
        /caf\u{e9} *\r\n/last *";
    let paths: Vec<_> = seen(text).into_iter().map(|it| it.0).collect();
    let expected = [
        "/a",
        "/my files/#1",
        "/oct al\\\"",
        "/with two quotes",
        "/hash#tag",
        "/back\\slash",
        "/caf\u{e9}",
        "/last",
    ];
    assert_eq!(paths, expected);
    assert_eq!(seen(text)[0].1, ["10.0.0.1=rw", "10.0.0.2=ro"]);
    assert!(parse("").expect("nothing").is_empty());
    assert!(parse("# nothing").expect("nothing").is_empty());
}

#[test]
fn default_options_hold_for_what_follows_in_their_line() {
    let text = "/a one -rw two three(ro) -ro,insecure four\n/b five\n";
    let expected = [
        one("/a", &["one=ro", "two=rw", "three=ro", "four=ro"]),
        one("/b", &["five=ro"]),
    ];
    assert_eq!(seen(text), expected);
    let exports = parse(text).expect("good lines");
    let secure = exports[0].rules.iter().map(|rule| rule.rights.secure_ports);
    assert_eq!(secure.collect::<Vec<_>>(), [true, true, true, false]);
}

#[test]
fn every_mistake_has_its_place_and_nothing_is_exported_to_more_than_was_meant() {
    let cases = [
        ("srv *", "1:1: a line begins"),
        ("\n/srv", "2:1: no client is named"),
        ("/srv\n", "1:1: no client is named"),
        ("/srv -rw\n", "1:1: no client is named"),
        ("/srv host (rw)", "1:11: options without a client"),
        ("/srv (rw)", "1:6: options without a client"),
        ("/srv host(rw", "1:10: options are written"),
        ("/srv host(rw, sync)", "1:10: options are written"),
        ("/srv host(rw)x", "1:10: options are written"),
        (
            "/srv host(rw,root_sqash)",
            "1:14: the option \"root_sqash\"",
        ),
        ("/srv -rw,x host", "1:10: the option \"x\""),
        ("/srv host(RO)", "1:11: the option \"RO\""),
        ("/srv host(sec=krb5p)", "1:11: sec=krb5p"),
        ("/srv host(sec=krb5:sys)", "1:11: sec=krb5:sys"),
        ("/srv host(sec=none)", "1:11: sec=none"),
        ("/srv host(sec)", "1:11: sec="),
        ("/srv host(refer=/x@y)", "1:11: refer is not"),
        ("/srv host(mp)", "1:11: mp is not"),
        ("/srv host(mountpoint=/x)", "1:11: mountpoint is not"),
        ("/srv host(squash_uids=0-15)", "1:11: squash_uids"),
        ("/srv host(anonuid=-2)", "1:11: anonuid=-2"),
        ("/srv host(anonuid=+2)", "1:11: anonuid=+2"),
        ("/srv host(anonuid=)", "1:11: anonuid="),
        ("/srv host(anongid=4294967295)", "1:11: anongid="),
        ("/srv host(xprtsec=mtls)", "1:11: xprtsec=mtls"),
        ("/srv host(xprtsec=ssl)", "1:11: xprtsec=ssl"),
        ("/srv @group(ro)", "1:6: netgroups"),
        ("/srv gss/krb5(rw)", "1:6: Kerberos"),
        (
            "/srv [2001:db8::1](ro)",
            "1:6: write an IPv6 address without",
        ),
        ("/srv *.example.org", "1:6: wildcards"),
        ("/srv host?", "1:6: wildcards"),
        ("/srv host[0-9]", "1:6: wildcards"),
        ("/srv 10.0.0.0/33", "1:6: \"10.0.0.0/33\" is no network"),
        (
            "/srv 10.0.0.0/255.0.255.0",
            "1:6: the mask 255.0.255.0 has holes",
        ),
        ("/srv 10.0.0.0/", "1:6: \"10.0.0.0/\""),
        ("/srv host/24", "1:6: \"host/24\""),
        ("/srv 10.0.0", "1:6: \"10.0.0\" is no address"),
        ("/srv 0x7f.0x1", "1:6: \"0x7f.0x1\""),
        ("/srv a..b", "1:6: \"a..b\""),
        ("/srv a_b!", "1:6: \"a_b!\""),
        ("/srv h\u{f6}st", "1:6: the name of a client"),
        ("\"/srv *\n", "1:8: a quote"),
        ("/srv \"\"", "1:8: there is nothing"),
        ("/a *\n/b\\000 *", "2:3: no path or name"),
        ("/b\u{e4}\u{f6} x(y)", "1:8: the option"),
        ("/a \\\n  x \\\n y(z)", "3:4: the option"),
    ];
    for (text, expected) in cases {
        let why = parse(text).expect_err(text);
        assert!(why.starts_with(expected), "{text:?}: {why}");
    }
}

#[test]
fn what_has_no_effect_is_told_once_with_its_place() {
    let text = b"/a *(ro,fsid=0,async,crossmnt)\n/b *(ro,fsid=1,no_subtree_check,wdelay)\n";
    let file = ExportsFile::parse(text, "exports").expect("good lines");
    let places: Vec<_> = file.notices.iter().map(|it| it.split(' ').next()).collect();
    let expected = ["exports:1:9:", "exports:1:16:", "exports:1:22:"].map(Some);
    assert_eq!(places, expected, "{:?}", file.notices);
}

#[test]
fn a_network_that_holds_against_the_order_is_told() {
    let notices = |line: &str| {
        let file = ExportsFile::parse(line.as_bytes(), "exports").expect("a good line");
        file.notices
    };
    let told = notices("/a 10.0.0.0/8(ro) 10.1.0.0/16(rw)\n");
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("exports:1:19: the order of networks"),
        "{told:?}"
    );
    for line in [
        "/a 10.1.0.0/16(rw) 10.0.0.0/8(ro)\n",
        "/a 10.0.0.0/8(ro) 10.1.0.0/16(ro)\n",
        "/a 10.0.0.0/8(ro) 11.1.0.0/16(rw)\n",
        "/a 10.0.0.0/8(ro) 10.1.0.1(rw)\n",
    ] {
        assert!(
            notices(line).is_empty(),
            "{line}: nfs-utils reads it so, too"
        );
    }
}

#[test]
fn tls_is_demanded_by_the_kinds_that_are_allowed() {
    let requires = |kinds: &str| rights(&format!("*(xprtsec={kinds})")).tls_required;
    assert!(requires("tls") && requires("tls:mtls"));
    assert!(!requires("none") && !requires("none:tls"));
}

#[test]
fn clients_of_a_table_are_those_of_a_line() {
    let read = |options, clients: &[&str]| {
        let (rules, notices) = ExportsFile::clients(options, clients, "x.toml:3:1")?;
        assert!(rules.iter().all(|rule| rule.place == "x.toml:3:1"));
        assert!(
            notices.iter().all(|it| it.starts_with("x.toml:3:1:")),
            "{notices:?}"
        );
        Ok::<_, String>(
            rules
                .into_iter()
                .map(|rule| rule.rights)
                .collect::<Vec<_>>(),
        )
    };
    let rights = read("insecure,fsid=1", &["10.0.0.0/8(rw)", "*"]).expect("good ones");
    assert_eq!(rights.len(), 2);
    assert_eq!(rights[0].access, Access::ReadWrite);
    assert!(!rights[0].secure_ports && !rights[1].secure_ports);
    assert_eq!(read("", &["*"]), Ok(vec![DEFAULT]));
    for (options, clients) in [
        ("x", &["*"][..]),
        ("", &["* *"]),
        ("", &["*(x)"]),
        ("", &[""]),
    ] {
        assert!(read(options, clients).is_err(), "{options} {clients:?}");
    }
}

#[test]
fn more_exports_or_clients_than_are_served_are_refused() {
    let lines = "/a *\n".repeat(EXPORTS_MAX + 1);
    let why = parse(&lines).expect_err("too many");
    assert!(
        why.starts_with(&format!("{}:1: a server has", EXPORTS_MAX + 1)),
        "{why}"
    );
    let clients = " 10.0.0.1".repeat(RULES_MAX + 1);
    assert!(parse(&format!("/a{clients}")).is_err());
}

#[test]
fn an_option_with_dashes_is_refused_with_the_right_one() {
    let why = parse("/srv *(ro,all-squash)\n").expect_err("no such option");
    assert!(
        why.contains("\"all-squash\" is not known: write all_squash"),
        "{why}"
    );
    assert_eq!(
        ExportsFile::option_named("all-squash").as_deref(),
        Some("all_squash")
    );
    assert_eq!(
        ExportsFile::option_named("No_Root-Squash").as_deref(),
        Some("no_root_squash")
    );
    assert_eq!(ExportsFile::option_named("manage-gids"), None);
    for option in options::APPLIED {
        let unknown = parse(&format!("/srv *({option})\n")).err();
        let is_unknown = unknown.is_some_and(|why| why.contains("is not known"));
        assert!(!is_unknown, "{option}");
    }
}

#[test]
fn the_end_of_an_address_in_a_network_counts_for_nothing_and_is_noted() {
    let notices = |client: &str| {
        let text = format!("/srv {client}\n");
        let file = ExportsFile::parse(text.as_bytes(), "exports").expect("it can be read");
        file.notices
    };
    for (client, network) in [
        ("192.0.2.7/24", "192.0.2.0/24"),
        ("10.0.0.5/255.0.0.0", "10.0.0.0/8"),
        ("2001:db8::1/64", "2001:db8::/64"),
    ] {
        let noted = notices(client);
        let words = format!("the end of an address has no effect: {client} is {network}");
        assert!(noted.len() == 1 && noted[0].contains(&words), "{noted:?}");
    }
    for client in [
        "192.0.2.0/24",
        "192.0.2.7",
        "10.0.0.0/255.0.0.0",
        "*",
        "host",
    ] {
        assert_eq!(notices(client), Vec::<String>::new(), "{client}");
    }
}
