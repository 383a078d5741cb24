//! What `--acme` and its companions ask for, as the settings have it.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::settings::{Settings, is_on};

/// The directory of Let's Encrypt.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// A certificate has no more names (Let's Encrypt, and most others).
const NAMES_MAX: usize = 100;

/// Bytes of a name (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// One certificate that an authority issues and renews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Its names, in small letters; one at least.
    pub(super) names: Vec<String>,
    pub(super) contacts: Vec<String>,
    pub(super) directory: String,
    pub(super) storage: PathBuf,
    /// By which the directory's own HTTPS is verified, in PEM; the machine's without it.
    pub(super) ca: Option<PathBuf>,
}

impl Plan {
    /// What these settings ask for, if they do.
    ///
    /// # Errors
    /// Something is missing, or no authority issues a certificate for such a name.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Plan>, Failure> {
        let wrong = |why: String| Err(Failure::WrongUse(why));
        if settings.acme.is_empty() {
            let is_beside = settings.acme_storage.is_some()
                || settings.acme_directory.is_some()
                || settings.acme_ca.is_some()
                || !settings.acme_contact.is_empty();
            return match is_beside {
                true => wrong("--acme-... options are for --acme NAME, which is not given".into()),
                false => Ok(None),
            };
        }
        let mut names: Vec<String> = Vec::new();
        for name in &settings.acme {
            let name = name.to_ascii_lowercase();
            if let Err(why) = check_name(&name) {
                return wrong(format!("--acme {name}: {why}"));
            }
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.len() > NAMES_MAX {
            return wrong(format!(
                "--acme: a certificate has {NAMES_MAX} names at most"
            ));
        }
        let directory = settings.acme_directory.as_deref().unwrap_or(DIRECTORY);
        if !directory.starts_with("https://") {
            return wrong(format!(
                "--acme-directory {directory}: it begins with https://"
            ));
        }
        if let Some(contact) = settings.acme_contact.iter().find(|it| !it.contains(':')) {
            return wrong(format!("--acme-contact {contact}: write mailto:{contact}"));
        }
        let Some(storage) = &settings.acme_storage else {
            return wrong(
                "--acme needs a place for keys and certificates: --acme-storage DIR".into(),
            );
        };
        if !is_on(settings.acme_accept_terms) {
            return wrong(format!(
                "--acme: the authority issues to those who agree to its terms of service, whose \
                 address is in {directory} (termsOfService): read them, then add \
                 --acme-accept-terms"
            ));
        }
        Ok(Some(Plan {
            names,
            contacts: settings.acme_contact.clone(),
            directory: directory.into(),
            storage: storage.clone(),
            ca: settings.acme_ca.clone(),
        }))
    }

    /// The names, for the log.
    pub(super) fn named(&self) -> String {
        self.names.join(", ")
    }
}

/// Why no authority can be asked for this name.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.starts_with("*.") {
        return Err(
            "a wildcard is validated through the DNS (DNS-01), which is not here: name each host, \
             or have another client (lego, certbot) get the certificate for --tls-cert",
        );
    }
    let is_label = |label: &str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_good)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
        return Err("write a host name such as www.example.org, in ASCII (xn--...)");
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err("it is an address: name a host"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(names: &[&str]) -> Settings {
        Settings {
            acme: names.iter().map(|it| (*it).into()).collect(),
            acme_accept_terms: Some(true),
            acme_storage: Some("dir".into()),
            ..Settings::default()
        }
    }

    #[test]
    fn names_are_those_that_an_authority_can_reach() {
        let plan = Plan::of(&settings(&["WWW.example.org", "a.b", "a.b"])).expect("good");
        assert_eq!(plan.expect("a plan").names, ["www.example.org", "a.b"]);
        for (name, words) in [
            ("*.example.org", "DNS-01"),
            ("192.0.2.1", "address"),
            ("::1", "host name"),
            ("a..b", "host name"),
            ("-a.b", "host name"),
            ("a.b-", "host name"),
            ("a/../b", "host name"),
            ("ä.example", "xn--"),
            ("", "host name"),
            (&"a.".repeat(127), "host name"),
        ] {
            let Err(Failure::WrongUse(why)) = Plan::of(&settings(&[name])) else {
                panic!("{name} is refused");
            };
            assert!(why.contains(words), "{name}: {why}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let good = settings(&["a.example"]);
        let wrong = |change: fn(&mut Settings)| {
            let mut settings = good.clone();
            change(&mut settings);
            Plan::of(&settings)
                .expect_err("something is wrong")
                .to_string()
        };
        let terms = wrong(|it| it.acme_accept_terms = None);
        assert!(terms.contains("--acme-accept-terms"), "{terms}");
        assert!(wrong(|it| it.acme_accept_terms = Some(false)).contains("terms"));
        assert!(wrong(|it| it.acme_storage = None).contains("--acme-storage DIR"));
        assert!(wrong(|it| it.acme.clear()).contains("--acme NAME"));
        let contact = wrong(|it| it.acme_contact = vec!["a@b".into()]);
        assert!(contact.contains("mailto:a@b"), "{contact}");
        assert!(wrong(|it| it.acme_directory = Some("http://a".into())).contains("https://"));
        assert_eq!(Plan::of(&Settings::default()), Ok(None));
    }
}
