//! Session tickets that several servers share: files with keys.
//!
//! A key has one of a few lengths ([`KEY_BYTES`]). One of another length is still being written, or
//! was not written to its end: a server that took it would open no ticket of the others.

use std::fmt;
use std::path::{Path, PathBuf};

use flatpath::tls::{TicketKeys, TlsConfig, TlsError};
use zeroize::Zeroizing;

use super::watched::Files;
use crate::bounded_file;
use crate::failure::Failure;
use crate::settings::Settings;

/// Bytes that a key may have: 48 and 80 as those of nginx (`ssl_session_ticket_key`), and those of
/// 256 and 512 bits.
const KEY_BYTES: [usize; 4] = [32, 48, 64, 80];

/// Files with keys, as the settings have them: the first seals, all of them open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TicketFiles(Vec<PathBuf>);

/// The keys of the files.
#[derive(Debug)]
pub(crate) struct Tickets {
    keys: TicketKeys,
    files: Vec<PathBuf>,
}

impl TicketFiles {
    /// Those that these settings name, if they name any.
    pub(super) fn of(settings: &Settings) -> Result<Option<TicketFiles>, Failure> {
        let files = &settings.tls_ticket_key;
        match (files.is_empty(), settings.tls_client_ca.is_empty()) {
            (true, _) => Ok(None),
            (false, true) => Ok(Some(TicketFiles(files.clone()))),
            (false, false) => Err(Failure::WrongUse(
                "--tls-ticket-key: no session is resumed where clients have certificates: leave it \
                 out, or --tls-client-ca"
                    .into(),
            )),
        }
    }
}

impl Files for TicketFiles {
    type Read = Tickets;

    const OTHERWISE: &'static str = "sessions are resumed as before";

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    fn load(&self) -> Result<Tickets, String> {
        let mut secrets = Vec::new();
        for path in &self.0 {
            let named = |cause: String| format!("{}: {cause}", path.display());
            let secret = bounded_file::read(path).map_err(|cause| named(cause.to_string()))?;
            let secret = Zeroizing::new(secret);
            if !KEY_BYTES.contains(&secret.len()) {
                return Err(named(format!(
                    "a key of tickets has 32, 48, 64 or 80 bytes, and there are {}: was it \
                     written to its end?",
                    secret.len()
                )));
            }
            secrets.push(secret);
        }
        let keys = TicketKeys::new(secrets.iter().map(|it| &***it));
        Ok(Tickets {
            keys: keys.map_err(|cause| cause.to_string())?,
            files: self.0.clone(),
        })
    }

    fn apply(read: &Tickets, config: &TlsConfig) -> Result<(), TlsError> {
        config.share_tickets(&read.keys)
    }
}

impl fmt::Display for Tickets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.iter().map(|file| file.display().to_string());
        let files: Vec<String> = files.collect();
        write!(
            formatter,
            "session tickets with the keys of {}",
            files.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_not_whole_names_its_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("good"), [1; 80]).expect("written");
        std::fs::write(at("empty"), []).expect("written");
        std::fs::write(at("short"), [1; 31]).expect("written");
        std::fs::write(at("half"), [1; 40]).expect("written");
        std::fs::write(at("long"), [1; 81]).expect("written");
        let load = |names: &[&str]| TicketFiles(names.iter().map(|name| at(name)).collect()).load();
        for bytes in KEY_BYTES {
            std::fs::write(at("good"), vec![1; bytes]).expect("written");
            let said = load(&["good"]).expect("whole").to_string();
            assert!(said.ends_with("good"), "{said}");
        }
        for (name, words) in [
            (
                "empty",
                "empty: a key of tickets has 32, 48, 64 or 80 bytes, and there are 0",
            ),
            ("short", "there are 31: was it written to its end?"),
            ("half", "there are 40: was it written to its end?"),
            ("long", "there are 81: was it written to its end?"),
            ("none", "none: No such file"),
        ] {
            let why = load(&["good", name]).expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn keys_beside_authorities_of_clients_are_a_mistake() {
        let settings = |authorities: &[&str], keys: &[&str]| Settings {
            tls_client_ca: authorities.iter().map(PathBuf::from).collect(),
            tls_ticket_key: keys.iter().map(PathBuf::from).collect(),
            ..Settings::default()
        };
        assert_eq!(TicketFiles::of(&settings(&["a"], &[])), Ok(None));
        let files = TicketFiles::of(&settings(&[], &["a", "b"])).expect("good");
        assert_eq!(files, Some(TicketFiles(vec!["a".into(), "b".into()])));
        TicketFiles::of(&settings(&["a"], &["b"])).expect_err("both");
    }
}
