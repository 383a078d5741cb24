//! The configuration file beside the command line.

use std::time::Duration;

use expect_test::expect_file;

use super::*;
use crate::settings::{is_on, line as settings_line};

mod of_sites;

fn sites(text: &str) -> Result<Vec<SiteTable>, String> {
    Configuration::from_text(text).map(|file| file.sites)
}

fn line(arguments: &[&str]) -> Settings {
    let matches = settings_line().try_get_matches_from(arguments);
    Settings::default().replaced_by(&matches.expect("a good command line"))
}

fn file(text: &str) -> Result<Settings, String> {
    Configuration::from_text(text).map(|file| file.settings)
}

/// The same settings as in the test of flags.
const ALL_BY_FILE: &str = r#"
        dir = "site"
        http = ["127.0.0.1:80", "[::1]:0"]
        echo = "127.0.0.1:7"
        relay = "127.0.0.1:4001"
        relay-waiting = 9
        relay-wait = 60
        relay-idle = 61
        nfs = "127.0.0.1:2049"
        nfs-exports = ["/etc/exports", "more"]
        manage-gids = true
        no-root-squash = true
        nfs-allow = ["10.0.0.0/8", "::1"]
        nfs-secure-ports = true
        nfs-register = true
        nfs-portmapper = ["127.0.0.1", "::1"]
        nfs-state = "/state"
        ingest = "127.0.0.1:9000"
        ingest-socket = "/run/ingest"
        no-ingest-sharing = true
        ingest-memory = "64M"
        ingest-page = "32K"
        ingest-consumers = 2
        ingest-message = "1M"
        network-threads = 2
        workers = "2..64"
        workers-per-listener = 32
        driver = "epoll"
        accept = "single"
        no-defer-accept = true
        proxy-from = ["10.0.0.0/8", "::1"]
        max-connections = 1000
        connections-per-address = 0
        memory = "64M"
        hidden = true
        listing = "json"
        archive = ["tar", "zip"]
        compress = ["zstd", "gzip"]
        hosts = ["files.example.org", "*.example.net"]
        allow-origin = "https://app.example.org"
        proxy = ["http://127.0.0.1:3000", "unix:/run/app"]
        proxy-balance = "round-robin"
        proxy-host = "app.example.org"
        proxy-forwarded = "append"
        proxy-keep-prefix = true
        proxy-timeout = 30
        proxy-tls-ca = ["inner.pem", "other.pem"]
        proxy-tls-name = "app.internal"
        proxy-tls-cert = "own.pem"
        proxy-tls-key = "own.key"
        forwarded-from = "10.0.0.0/8"
        forwarded-header = "forwarded"
        allow = ["10.0.0.0/8", "::1"]
        deny = "10.1.0.0/16"
        auth-file = "users"
        rate = "10/s"
        rate-bytes = "1G/1h"
        stat-age = 0.25
        etag = "portable"
        writable = true
        put-max = "2G"
        durable = true
        uploads-max = 9
        uploads-bytes = "5G"
        upload-expires = 3600
        head-timeout = 5
        body-timeout = 6
        idle-timeout = 0.5
        write-timeout = "7"
        drain-timeout = 8
        drain-delay = 0
        handover = "/run/next"
        drain-idle-timeout = 9
        "#;

#[test]
fn flags_and_file_say_the_same_in_the_same_words() {
    let by_line = "site --http 127.0.0.1:80 --http [::1]:0 --echo 127.0.0.1:7 \
        --relay 127.0.0.1:4001 --relay-waiting 9 --relay-wait 60 \
        --relay-idle 61 --nfs 127.0.0.1:2049 \
        --nfs-exports /etc/exports,more --manage-gids=true \
        --no-root-squash=true --nfs-allow 10.0.0.0/8 --nfs-allow ::1 --nfs-secure-ports=true \
        --nfs-register=true --nfs-portmapper 127.0.0.1:111,[::1] \
        --nfs-state /state --ingest 127.0.0.1:9000 \
        --ingest-socket /run/ingest --ingest-memory 64M \
        --ingest-page 32K --ingest-consumers 2 --ingest-message 1M \
        --no-ingest-sharing=true --network-threads 2 --workers 2..64 \
        --workers-per-listener 32 --driver epoll --accept single \
        --no-defer-accept=true --proxy-from 10.0.0.0/8,::1 --max-connections 1000 \
        --connections-per-address 0 --memory 64M --hidden=true \
        --listing json --archive tar --archive zip --compress zstd,gzip \
        --hosts files.example.org,*.example.net --allow-origin https://app.example.org \
        --proxy http://127.0.0.1:3000,unix:/run/app --proxy-balance round-robin \
        --proxy-host app.example.org --proxy-forwarded append --proxy-keep-prefix=true \
        --proxy-timeout 30 --proxy-tls-ca inner.pem,other.pem --proxy-tls-name app.internal \
        --proxy-tls-cert own.pem --proxy-tls-key own.key \
        --forwarded-from 10.0.0.0/8 --forwarded-header forwarded \
        --allow 10.0.0.0/8,::1 --deny 10.1.0.0/16 --auth-file users \
        --rate 10/s --rate-bytes 1G/1h --stat-age 0.25 --etag portable --writable=true \
        --put-max 2G \
        --durable=true --uploads-max 9 --uploads-bytes 5G \
        --upload-expires 3600 --head-timeout 5 --body-timeout 6 \
        --idle-timeout 0.5 --write-timeout 7 --drain-timeout 8 \
        --drain-delay 0 --drain-idle-timeout 9 --handover /run/next";
    let by_line = line(&by_line.split(' ').collect::<Vec<_>>());
    let by_file = file(ALL_BY_FILE);
    assert_eq!(by_file, Ok(by_line));
}

#[test]
fn the_file_has_the_names_of_the_flags_and_no_others() {
    for argument in settings_line().get_arguments() {
        let name = argument.get_id().as_str().replace('_', "-");
        for value in [
            "1",
            "true",
            "\"127.0.0.1:1\"",
            "\"::1\"",
            "\"auto\"",
            "\"portable\"",
            "\"http://127.0.0.1:1\"",
            "\"new\"",
            "\"round-robin\"",
            "\"optional\"",
            "\"offered\"",
            "\"json\"",
            "\"info\"",
            "\"10/s\"",
            "\"*\"",
            "\"forwarded\"",
            "\"tar\"",
            "\"gzip\"",
            "\"single\"",
        ] {
            if file(&format!("{name} = {value}")).is_ok() {
                break;
            }
            assert_ne!(value, "\"single\"", "{name} takes no value");
        }
    }
    for text in [
        "no-such-flag = 1",
        "max_connections = 1",
        "config = \"x\"",
        "help = true",
        "help = \"\"",
        "version = true",
        "[http]",
        "http = [[\"127.0.0.1:1\"]]",
        "dir = [\"a\", \"b\"]",
        "resp = \"127.0.0.1:1\"",
    ] {
        assert!(file(text).is_err(), "{text}");
    }
    let odd = file("dir = \"--hidden\"").map(|settings| settings.dir);
    assert_eq!(odd, Ok(Some("--hidden".into())), "a value is never a flag");
}

#[test]
fn help_is_grouped_by_topic_and_short_where_asked_for() {
    for argument in settings_line().get_arguments() {
        let has_topic = argument.get_help_heading().is_some();
        assert_eq!(
            has_topic,
            argument.get_id() != "dir",
            "{}",
            argument.get_id()
        );
    }
    let lines = |help: String| help.lines().count();
    let short = lines(settings_line().render_help().to_string());
    let long = lines(settings_line().render_long_help().to_string());
    assert!(short < 80 && long > 100, "{short} and {long} lines");
}

/// Each text with the error that it causes.
fn errors(texts: &[&str], error: impl Fn(&str) -> Result<(), String>) -> String {
    let told = texts.iter().map(|text| {
        let error = error(text).expect_err(text);
        format!("{text}\n=> {error}\n")
    });
    told.collect::<Vec<_>>().join("\n")
}

/// Values that are refused, by the settings that refuse them.
const REFUSED: [(&str, &str); 38] = [
    ("workers", "4..2"),
    ("workers", "two"),
    ("memory", "1Q"),
    ("memory", "99999999999999999999"),
    ("put-max", "18446744073709551615K"),
    ("ingest-page", ""),
    ("ingest-page", "5120G"),
    ("ingest-message", "5120G"),
    ("ingest-consumers", "1099511627776"),
    ("network-threads", "0"),
    ("max-connections", "-1"),
    ("connections-per-address", "some"),
    ("http", "8080x"),
    ("nfs", "localhost"),
    ("nfs-portmapper", "localhost:sunrpc"),
    ("driver", "kqueue"),
    ("accept", "twice"),
    ("etag", "weak"),
    ("nfs-allow", "10.0.0.0/33"),
    ("proxy-from", "balancer"),
    ("forwarded-from", "proxy"),
    ("proxy-tls-name", "a b"),
    ("proxy", "http://localhost:3000"),
    ("proxy", "127.0.0.1:3000"),
    ("proxy-balance", "random"),
    ("proxy-forwarded", "yes"),
    ("proxy-host", "a b"),
    ("forwarded-header", "via"),
    ("idle-timeout", "0"),
    ("stat-age", "30x"),
    ("hosts", "http://a:80"),
    ("allow-origin", "example.org"),
    ("hidden", "yes"),
    ("allow", "10.0.0.0/33"),
    ("deny", "nobody"),
    ("rate", "fast"),
    ("rate", "0/s"),
    ("rate-bytes", "1G"),
];

#[test]
fn errors_have_the_text_that_was_given_and_what_is_accepted() {
    let values = REFUSED.map(|(key, given)| {
        let text = format!("{key} = \"{given}\"");
        let by_file = file(&text).expect_err(&text);
        let argument = format!("--{key}={given}");
        let by_line = settings_line().try_get_matches_from([&argument]);
        let by_line = by_line.expect_err(&argument).to_string();
        let message = by_file.strip_prefix("1:1: ").expect(&by_file);
        assert!(
            by_line.starts_with(&format!("error: {message}\n")),
            "{by_line}"
        );
        text
    });
    let others = [
        "idle-timeout = 0",
        "max-connections = -1",
        "network-threads = [1, 2]",
        "network-threads = true",
        "http = [true]",
        "memory = { size = 1 }",
        "[http]\nport = 1",
        "max_connections = 1",
        "name = \"a.example\"",
        "names = \"a.example\"",
        "all-squash = true",
        "spa = true",
        "[[sites]]\ndir = \"a\"",
        "[redirect]\nfrom = \"/a\"",
        "allow = \"10.0.0.5/8\"",
        "\nmemory = 1 2",
    ];
    let all: Vec<_> = values.iter().map(String::as_str).chain(others).collect();
    expect_file!["errors.txt"].assert_eq(&errors(&all, |text| file(text).map(drop)));
}

#[test]
fn the_command_line_replaces_what_the_file_sets() {
    let arguments = [
        "--http=127.0.0.1:1",
        "--network-threads=3",
        "--hidden=false",
        "--durable",
    ];
    let matches = settings_line().get_matches_from(arguments);
    let file = file(
        "http = [\"127.0.0.1:2\"]\nnetwork-threads = 4\nhidden = true\nmemory = 4096\n\
         writable = true\ndurable = false",
    );
    let both = file.expect("a good file").replaced_by(&matches);
    let address: std::net::SocketAddr = "127.0.0.1:1".parse().expect("an address");
    assert_eq!(both.http, [address.into()]);
    assert_eq!(
        (both.network_threads, both.memory),
        (Some(3.into()), Some(4_096))
    );
    let switches = [
        both.hidden,
        both.durable,
        both.writable,
        both.no_root_squash,
    ];
    assert_eq!(switches.map(is_on), [false, true, true, false]);
}

fn tables(text: &str) -> Result<Vec<ListenerTable>, String> {
    Configuration::from_text(text).map(|file| file.listeners)
}

#[test]
fn tables_have_settings_of_their_own_over_those_of_the_server() {
    let text = "hidden = true\nidle-timeout = 30\nmax-connections = 500\ndir = \"all\"\n\
        [[listener]]\nprotocol = \"http\"\naddress = \":80\"\ndir = \"--odd\"\n\
        max-connections = 10\nwritable = true\n\
        [[listener]]\nprotocol = \"relay\"\naddress = [4001, \"[::1]:4001\"]\nidle-timeout = 5\n\
        [[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.1:81\"\nhidden = false\n";
    let file = Configuration::from_text(text).expect("a good file");
    let [first, relay, last] = &file.listeners[..] else {
        panic!("{:?}", file.listeners);
    };
    assert_eq!(first.protocol, ListenerProtocol::Http);
    assert_eq!(first.own.max_connections, Some(10));
    assert_eq!(
        last.own.max_connections, None,
        "that of the server is no listener's"
    );
    let over = first.over(&file.settings);
    assert_eq!(over.dir, Some("--odd".into()));
    assert_eq!((is_on(over.hidden), is_on(over.writable)), (true, true));
    assert_eq!(relay.addresses.len(), 2);
    assert_eq!(
        relay.over(&file.settings).idle_timeout,
        Some(Duration::from_secs(5))
    );
    let over = last.over(&file.settings);
    assert_eq!((over.dir, is_on(over.hidden)), (Some("all".into()), false));
    // A flag replaces what stands above the tables, and nothing in them.
    let flags = settings_line().get_matches_from(["--hidden=true", "flagged"]);
    let settings = file.settings.clone().replaced_by(&flags);
    let dirs = [first, last].map(|table| table.over(&settings).dir);
    assert_eq!(dirs, [Some("--odd".into()), Some("flagged".into())]);
    assert!(!is_on(last.over(&settings).hidden));
}

#[test]
fn a_table_has_of_the_settings_above_it_what_is_inherited_alone() {
    let (none, above) = (Settings::default(), file(ALL_BY_FILE).expect("a good file"));
    let settings = over(&none, &[], &above);
    for setting in SETTINGS.iter().filter(|it| !it.is_same(&none, &above)) {
        let inherited = setting.is_same(&above, &settings);
        assert_eq!(inherited, setting.is_inherited(), "{setting:?}");
        assert_eq!(setting.is_same(&none, &settings), !inherited, "{setting:?}");
    }
    let kept = |name| Setting::named(name).expect(name).is_same(&above, &settings);
    assert!(kept("hidden") && !kept("nfs-portmapper"));
}

#[test]
fn an_empty_list_in_a_table_replaces_that_of_the_server() {
    let table = |rest: &str| {
        format!("proxy-from = \"::1\"\n[[listener]]\nprotocol = \"echo\"\naddress = 0\n{rest}")
    };
    for (rest, count) in [
        ("", 1),
        ("proxy-from = []", 0),
        ("proxy-from = [\"::1\", \"::2\"]", 2),
    ] {
        let file = Configuration::from_text(&table(rest)).expect("a good file");
        let over = file.listeners[0].over(&file.settings);
        assert_eq!(over.proxy_from.len(), count, "{rest}");
    }
}

#[test]
fn every_mistake_in_a_table_has_its_place_and_a_cure() {
    const EMPTY: &str = "# first\n[[listener]]\n";
    let of_http = [
        "address = \"nowhere\"",
        "address = [80, true]",
        "address = []",
        "address = 80\nmax-conections = 1",
        "address = 80\nmax_connections = 1",
        "address = 80\nall-squash = true",
        "addresses = 80",
        "address = 80\nnames = \"a.example\"",
        "address = 80\nmax-connections = 0",
        "address = 80\nnfs-allow = \"::1\"",
        "address = 80\nmemory = \"64M\"",
        "address = 80\nhttp = 81",
        "address = 80\nhidden = {}",
        "address = 80\nhidden = 1\nhidden = 1",
    ];
    let of_http = of_http.map(|rest| format!("[[listener]]\nprotocol = \"http\"\n{rest}"));
    let others = [
        "listener = 1",
        "listener = [1]",
        "[listener]\nprotocol = \"http\"",
        EMPTY,
        &format!("{EMPTY}protocol = \"echo\""),
        &format!("{EMPTY}protocol = \"gopher\""),
        &format!("{EMPTY}protocol = 1"),
    ];
    let all: Vec<_> = others
        .into_iter()
        .chain(of_http.iter().map(String::as_str))
        .collect();
    expect_file!["table_errors.txt"].assert_eq(&errors(&all, |text| tables(text).map(drop)));
}

#[test]
fn strings_are_quoted_as_toml_reads_them() {
    for text in [
        "plain",
        "a\"b\\c",
        "tab\tline\n",
        "\u{7f}\u{1}",
        "\u{e9}\u{1f980}",
    ] {
        let read = file(&format!("dir = {}", quoted(text)));
        assert_eq!(read.map(|it| it.dir), Ok(Some(text.into())));
    }
}

#[test]
fn tables_of_exports_have_paths_clients_and_options_as_lines_of_exports_do() {
    let text = "dir = \"x\"\n[[export]]\npath = \"/srv/www\"\noptions = \"insecure,fsid=1\"\n\
        clients = [\"10.0.0.0/8(rw)\", \"*\"]\n\
        [[export]]\npath = \"/srv/more\"\nclients = \"fd00::1\"\n";
    let file = Configuration::from_text(text).expect("a good file");
    let paths: Vec<_> = file.exports.iter().map(|it| &*it.path).collect();
    assert_eq!(paths, ["/srv/www", "/srv/more"]);
    let line = b"/srv/www -insecure,fsid=1 10.0.0.0/8(rw) *\n/srv/more fd00::1\n";
    let lines = flatpath_nfs::ExportsFile::parse(line, "exports").expect("good lines");
    for (table, line) in file.exports.iter().zip(&lines.exports) {
        let rules = |export: &flatpath_nfs::ExportOptions| {
            let rules = export.rules.iter();
            rules
                .map(|it| (it.clients.clone(), it.rights))
                .collect::<Vec<_>>()
        };
        assert_eq!(rules(&table.export("file")), rules(line));
        assert_eq!(table.export("file").directory, line.directory);
    }
    assert_eq!(file.exports[0].export("x.toml").place, "x.toml:2:1");
    assert_eq!(
        file.exports[1].export("x.toml").rules[0].place,
        "x.toml:8:12"
    );
}

#[test]
fn every_mistake_in_a_table_of_an_export_has_its_place_and_a_cure() {
    let all = [
        "export = 1",
        "[export]\npath = \"/srv\"",
        "[[export]]",
        "[[export]]\npath = \"/srv\"",
        "[[export]]\nclients = \"*\"",
        "[[export]]\npath = \"srv\"\nclients = \"*\"",
        "[[export]]\npath = 1\nclients = \"*\"",
        "[[export]]\npath = \"/srv\"\nclients = []",
        "[[export]]\npath = \"/srv\"\nclients = [\"*\", 1]",
        "[[export]]\npath = \"/srv\"\nclients = [\"*\", \"@group\"]",
        "[[export]]\npath = \"/srv\"\nclients = \"*(rw, sync)\"",
        "[[export]]\npath = \"/srv\"\nclients = \"*\"\noptions = \"sec=krb5\"",
        "[[export]]\npath = \"/srv\"\nclients = \"*\"\noptions = 1",
        "[[export]]\npath = \"/srv\"\nclients = \"*\"\nhidden = true",
        "[[export]]\npath = \"/srv\"\nclients = \"*\"\nall-squash = true",
        "[[export]]\npath = \"/srv\"\nclients = \"*(rw,all-squash)\"",
        "[[export]]\npath = \"/srv\"\nclient = \"*\"",
    ];
    let refused = |text: &str| Configuration::from_text(text).map(drop);
    expect_file!["export_errors.txt"].assert_eq(&errors(&all, refused));
}

#[test]
fn the_rules_of_a_site_do_what_its_tables_say() {
    let text = "\
        [[site]]\ndir = \"a\"\nclean-urls = true\nspa = true\ntrailing-slash = \"leave\"\n\
        [[site.redirect]]\nfrom = \"/old/*\"\nto = \"/new\"\n\
        [[site.redirect]]\nfrom = \"~^/p/([0-9]+)$\"\nto = \"https://b.example/$1\"\nstatus = 307\n\
        [[site.rewrite]]\nfrom = \"/api\"\nto = \"/api.json\"\n\
        [[site.header]]\npath = \"/assets/*\"\nimmutable = true\n\
        [[site.header]]\nset = { X-A = \"1\" }\nappend = { X-A = \"2\" }\nremove = \"X-B\"\n\
        [site.error-pages]\n404 = \"/404.html\"\n[site.types]\ngmi = \"text/gemini\"\n\
        [[site]]\nnames = \"b.example\"\ndir = \"b\"\ntry = [\"$path\", \"/x\"]\n";
    let sites = sites(text).expect("good sites");
    let explained = |site: &SiteTable, path| site.rules.rules.explain(path).to_string();
    let paths = ["/old/a?q", "/p/7", "/api", "/assets/a.js"];
    let explained: String = paths.map(|path| explained(&sites[0], path)).join("\n")
        + "\n"
        + &explained(&sites[1], "/a");
    expect_file!["site_rules.txt"].assert_eq(&explained);
}

#[test]
fn every_mistake_in_a_rule_has_its_place_and_a_cure() {
    let rules = [
        "redirect = { from = \"/a\", to = \"/b\" }",
        "[[site.redirect]]\nfrom = \"/a\"",
        "[[site.redirect]]\nfrom = \"/a\"\nto = 1",
        "[[site.redirect]]\nfrom = \"a\"\nto = \"/b\"",
        "[[site.redirect]]\nfrom = \"~(\"\nto = \"/b\"",
        "[[site.redirect]]\nfrom = \"/a\"\nto = \"//b.example\"",
        "[[site.redirect]]\nfrom = \"/a\"\nto = \"/b/$1\"",
        "[[site.redirect]]\nfrom = \"/a/*\"\nto = \"/a\"",
        "[[site.redirect]]\nfrom = \"/a\"\nto = \"/b\"\nstatus = 200",
        "[[site.redirect]]\nfrom = \"/a\"\nto = \"/b\"\ncode = 301",
        "[[site.rewrite]]\nfrom = \"/a\"\nto = \"/b?c\"",
        "[[site.header]]\npath = \"/a\"",
        "[[site.header]]\nset = { Content-Length = \"1\" }",
        "[[site.header]]\nset = { X-A = \"a\\nb\" }",
        "[[site.header]]\nset = \"X-A: 1\"",
        "clean-urls = 1",
        "trailing-slash = \"never\"",
        "spa = 1",
        "try = [1]",
        "error-pages = 1",
        "[site.error-pages]\n200 = \"/a\"",
        "[site.error-pages]\n404 = \"../a\"",
        "[site.types]\ngmi = \"gemini\"",
        "rewrites = 1",
        "[[site.redirect]]\nfrom = \"/a/*\"\nto = \"/b/:splat\"",
        "[[site.redirect]]\nfrom = \"/a/{id}\"\nto = \"/b\"",
        "[[site.rewrite]]\nfrom = \"/a/:id\"\nto = \"/b/:id\"",
        "[[site.header]]\npath = \"/a/:id\"\nset = { X-A = \":id\" }",
    ];
    let texts = rules.map(|rule| format!("[[site]]\ndir = \"a\"\n{rule}"));
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    let found = errors(&texts, |text| sites(text).map(drop));
    expect_file!["rule_errors.txt"].assert_eq(&found);
}

#[test]
fn values_that_exclude_each_other_are_refused_in_their_line() {
    for (text, place) in [
        ("hidden = true\ncompress = [\"off\", \"gzip\"]", "2:1: "),
        ("compress = \"gzip,off\"", "1:1: "),
        (
            "[[listener]]\nprotocol = \"http\"\naddress = 1\ncompress = [\"br\", \"off\"]",
            "4:1: ",
        ),
    ] {
        let why = file(text).expect_err("they exclude each other");
        let told = format!("{place}'--compress <CODING>': off excludes other values");
        assert!(why.starts_with(&told), "{why}");
    }
}
