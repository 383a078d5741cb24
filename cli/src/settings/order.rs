//! The order of the help: what a newcomer needs comes first.
//!
//! The entries are in the order in which they are read in the code. In the help the topics below
//! come first, in this order, and in each of them these settings; the others follow as the entries
//! have them.

/// Names of settings, by topic.
pub(super) const FIRST: [&[&str]; 8] = [
    &["dir"],
    &[
        "http",
        "https",
        "writable",
        "nfs",
        "access-log",
        "admin",
        "relay",
        "ingest",
        "echo",
    ],
    &["proxy", "auth-file", "hidden", "hosts"],
    &[
        "tls-self-signed",
        "tls-cert",
        "tls-key",
        "acme",
        "acme-accept-terms",
        "acme-storage",
        "http-redirect",
    ],
    &["nfs-tls", "nfs-allow"],
    &["memory", "max-connections"],
    &["driver", "network-threads", "workers", "handover"],
    &["ingest-socket"],
];

/// Settings in the order of use; of each `describe` tells its topic and name.
pub(super) fn of_use<T: Copy>(
    settings: impl Iterator<Item = T>,
    describe: impl Fn(T) -> (Option<&'static str>, &'static str),
) -> Vec<T> {
    let mut all: Vec<T> = settings.collect();
    let described: Vec<_> = all.iter().map(|it| describe(*it)).collect();
    let place = |(topic, name): (Option<&str>, &str)| {
        let is_of_topic = |names: &&[&str]| {
            let mut known = described.iter();
            known.any(|(its, name)| *its == topic && names.contains(name))
        };
        let at = FIRST.iter().position(is_of_topic);
        let names = at.map_or(&[][..], |at| FIRST[at]);
        let within = names.iter().position(|it| *it == name);
        (at.unwrap_or(FIRST.len()), within.unwrap_or(names.len()))
    };
    // Those at one place stay in the order of the entries.
    all.sort_by_key(|setting| place(describe(*setting)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_first_is_first_and_topics_stay_in_one_piece() {
        let settings = [
            (Some("HTTP"), "hidden"),
            (Some("Engine"), "accept"),
            (Some("HTTP"), "listing"),
            (Some("Listeners"), "http"),
            (Some("HTTP"), "auth-file"),
            (None, "dir"),
            (Some("Engine"), "driver"),
            (Some("Other"), "b"),
            (Some("Other"), "a"),
        ];
        let ordered = of_use(settings.into_iter(), |it| it);
        let names: Vec<_> = ordered.iter().map(|(_, name)| *name).collect();
        let expected = [
            "dir",
            "http",
            "auth-file",
            "hidden",
            "listing",
            "driver",
            "accept",
            "b",
            "a",
        ];
        assert_eq!(names, expected);
    }
}
