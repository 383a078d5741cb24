//! Where the certificates of a listener come from, as the settings have it.

use std::path::PathBuf;

use super::acme::Plan;
use super::clients::ClientFiles;
use super::tickets::TicketFiles;
use crate::failure::Failure;
use crate::settings::{Settings, is_on};

/// What a listener with TLS is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Secured {
    pub(crate) certificates: Source,
    /// If clients are to have certificates, too.
    pub(crate) clients: Option<ClientFiles>,
    /// If sessions are to be resumed at other servers, too.
    pub(crate) tickets: Option<TicketFiles>,
}

impl Secured {
    /// What an authority is to issue, if it is.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        match &self.certificates {
            Source::Authority(plan) => Some(plan),
            Source::Files(_) | Source::SelfSigned => None,
        }
    }

    /// Whether clients without a certificate are refused.
    pub(crate) fn requires_clients(&self) -> bool {
        self.clients.as_ref().is_some_and(ClientFiles::are_required)
    }

    /// What these settings name, if they name any.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Secured>, Failure> {
        let clients = ClientFiles::of(settings)?;
        let tickets = TicketFiles::of(settings)?;
        match Source::of(settings)? {
            Some(certificates) => Ok(Some(Secured {
                certificates,
                clients,
                tickets,
            })),
            None if clients.is_none() && tickets.is_none() => Ok(None),
            None => Err(Failure::WrongUse(
                "--tls-client-ca and --tls-ticket-key are for a listener with TLS: name its own \
                 certificate with --tls-cert FILE and --tls-key FILE"
                    .into(),
            )),
        }
    }
}

/// Where the certificates of a listener come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Files: each certificate with its key. There is one at least.
    Files(Vec<Pair>),
    /// An authority issues one; until then it is made here, as one that signs itself.
    Authority(Plan),
    SelfSigned,
}

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Source {
    /// What these settings name, if they name any.
    fn of(settings: &Settings) -> Result<Option<Source>, Failure> {
        let pairs = pairs(&settings.tls_cert, &settings.tls_key)?;
        if let Some(plan) = Plan::of(settings)? {
            return match pairs.is_empty() && !is_on(settings.tls_self_signed) {
                true => Ok(Some(Source::Authority(plan))),
                false => Err(Failure::WrongUse(
                    "--acme gets the certificate of --https: leave it out, or --tls-cert, \
                     --tls-key and --tls-self-signed"
                        .into(),
                )),
            };
        }
        match (is_on(settings.tls_self_signed), pairs.is_empty()) {
            (false, true) => Ok(None),
            (false, false) => Ok(Some(Source::Files(pairs))),
            (true, true) => Ok(Some(Source::SelfSigned)),
            (true, false) => Err(Failure::WrongUse(
                "--tls-self-signed makes a certificate where there is none: leave it out, or \
                 --tls-cert and --tls-key"
                    .into(),
            )),
        }
    }
}

/// The first certificate with the first key, and so on.
pub(crate) fn pairs(certificates: &[PathBuf], keys: &[PathBuf]) -> Result<Vec<Pair>, Failure> {
    if certificates.len() != keys.len() {
        return Err(Failure::WrongUse(format!(
            "--tls-cert names {}, and --tls-key {}: name the key of each certificate, in the same \
             order",
            files(certificates.len()),
            files(keys.len())
        )));
    }
    let pairs = certificates
        .iter()
        .zip(keys)
        .map(|(certificate, key)| Pair {
            certificate: certificate.clone(),
            key: key.clone(),
        });
    Ok(pairs.collect())
}

fn files(count: usize) -> String {
    match count {
        0 => "no file".into(),
        1 => "1 file".into(),
        count => format!("{count} files"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_and_keys_are_paired_in_order() {
        let settings = |certificates: &[&str], keys: &[&str]| Settings {
            tls_cert: certificates.iter().map(PathBuf::from).collect(),
            tls_key: keys.iter().map(PathBuf::from).collect(),
            ..Settings::default()
        };
        assert_eq!(Source::of(&Settings::default()), Ok(None));
        let Ok(Some(Source::Files(pairs))) = Source::of(&settings(&["a", "b"], &["c", "d"])) else {
            panic!("two pairs");
        };
        let [_, second] = &pairs[..] else {
            panic!("two pairs: {pairs:?}");
        };
        assert_eq!(second.certificate, PathBuf::from("b"));
        assert_eq!(second.key, PathBuf::from("d"));
        let Err(Failure::WrongUse(why)) = Source::of(&settings(&["a", "b"], &["c"])) else {
            panic!("a key is missing");
        };
        assert!(
            why.contains("--tls-cert names 2 files, and --tls-key 1 file"),
            "{why}"
        );
        let both = Settings {
            tls_self_signed: Some(true),
            ..settings(&["a"], &["b"])
        };
        assert!(Source::of(&both).is_err());
        let clients = Settings {
            tls_client_ca: vec!["c".into()],
            ..Settings::default()
        };
        Secured::of(&clients).expect_err("no TLS");
        let tickets = Settings {
            tls_ticket_key: vec!["k".into()],
            ..Settings::default()
        };
        Secured::of(&tickets).expect_err("no TLS");
    }
}
