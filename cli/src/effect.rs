//! Options that have no effect together with the others, and are likely a mistake.

use clap::ArgMatches;

use crate::access;
use crate::config::Configuration;
use crate::listener::Listener;
use crate::nfs_exports;
use crate::reach;
use crate::references;
use crate::settings::{ListenerProtocol, SETTINGS, Setting, is_on};

/// Warns of what a configuration names or sets to no effect, or to one that is hardly meant: the
/// same whether it is checked, served or loaded again.
pub(crate) fn warn(listeners: &[Listener], file: &Configuration) {
    if let Some(why) = writable_beside_exports(listeners, file) {
        log::warn!("{why}");
    }
    access::warn_of_clear_passwords(listeners);
    references::warn(listeners);
    if let Some(why) = reach::warning(listeners) {
        log::warn!("{why}");
    }
}

/// Warns of each option of the command line or the environment that no listener looks at.
pub(crate) fn warn_of_flags(matches: &ArgMatches, listeners: &[Listener]) {
    for setting in SETTINGS.iter().filter(|it| it.is_given(matches)) {
        if let Some(why) = idle(setting, listeners) {
            log::warn!("{} has no effect: {why}", setting.flag());
        }
    }
}

/// Exports that are named say themselves whether they are writable.
fn writable_beside_exports(listeners: &[Listener], file: &Configuration) -> Option<String> {
    let is_idle = |it: &&Listener| {
        it.protocol == ListenerProtocol::Nfs
            && is_on(it.settings.writable)
            && nfs_exports::are_named(&it.settings, file)
    };
    listeners.iter().find(is_idle)?;
    let http = match listeners.iter().any(Listener::serves_over_http) {
        true => "is for HTTP alone",
        false => "has no effect",
    };
    Some(format!(
        "writable {http}: exports are named, and each says rw or ro itself"
    ))
}

/// Why an option has no effect, if so.
fn idle(setting: &Setting, listeners: &[Listener]) -> Option<String> {
    let takers = setting.listeners();
    let of_takers = |listener: &&Listener| takers.contains(&listener.protocol);
    let mut concerned = listeners.iter().filter(of_takers).peekable();
    if !takers.is_empty() && concerned.peek().is_none() {
        let names: Vec<_> = takers
            .iter()
            .map(|it| ListenerProtocol::name(*it))
            .collect();
        return Some(format!("there is no listener for {}", names.join(" or ")));
    }
    let writes = concerned.any(|listener| match listener.serves_over_http() {
        true => listener.is_writable(),
        false => is_on(listener.settings.writable),
    });
    (setting.is_for_writing() && !writes).then(|| "clients only read without --writable".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners;
    use crate::settings::Settings;

    fn idle_of(name: &str, settings: Settings) -> Option<String> {
        let listeners = listeners::of(&settings, &Configuration::default()).expect("they fit");
        let setting = Setting::named(name).expect("a setting");
        idle(setting, &listeners)
    }

    #[test]
    fn what_no_listener_looks_at_has_no_effect() {
        let address = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port)).into();
        let http = || Settings {
            http: vec![address(80)],
            ..Settings::default()
        };
        let why = idle_of("nfs-allow", http()).expect("no NFS");
        assert!(why.contains("no listener for nfs"), "{why}");
        assert!(idle_of("relay-wait", http()).is_some());
        assert!(
            idle_of("durable", http())
                .expect("reads")
                .contains("--writable")
        );
        for name in [
            "hidden",
            "dir",
            "workers",
            "idle-timeout",
            "max-connections",
            "http",
        ] {
            assert_eq!(idle_of(name, http()), None, "{name}");
        }
        let writable = Settings {
            writable: Some(true),
            ..http()
        };
        assert_eq!(idle_of("durable", writable), None);
        let nfs = Settings {
            nfs: Some(address(2049)),
            ..Settings::default()
        };
        assert_eq!(idle_of("nfs-allow", nfs.clone()), None);
        assert!(idle_of("hidden", nfs).is_some());
    }

    #[test]
    fn writable_is_said_to_be_of_no_use_where_exports_are_named() {
        let told = |lines: &str| {
            let file = Configuration::from_text(lines).expect("a good file");
            let listeners = listeners::of(&file.settings, &file).expect("they fit");
            writable_beside_exports(&listeners, &file)
        };
        let export = "[[export]]\npath = \"/\"\nclients = \"*\"\n";
        let all = [
            ("nfs = 1\nwritable = true\n", true, Some("has no effect")),
            (
                "nfs = 1\nhttp = 2\nwritable = true\n",
                true,
                Some("is for HTTP alone"),
            ),
            (
                "nfs = 1\nwritable = true\nnfs-exports = \"f\"\n",
                false,
                Some("has no effect"),
            ),
            ("nfs = 1\nwritable = true\n", false, None),
            ("nfs = 1\nwritable = false\n", true, None),
            ("http = 2\nwritable = true\n", true, None),
        ];
        for (lines, exports, words) in all {
            let lines = format!("{lines}{}", if exports { export } else { "" });
            let why = told(&lines);
            assert_eq!(why.is_some(), words.is_some(), "{lines}: {why:?}");
            assert!(
                why.unwrap_or_default().contains(words.unwrap_or_default()),
                "{lines}"
            );
        }
    }
}
