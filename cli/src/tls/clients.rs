//! Which clients a listener with TLS takes: files of authorities and revocation lists.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flatpath::tls::rustls::pki_types::pem::PemObject;
use flatpath::tls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use flatpath::tls::{ClientAuth, TlsClients, TlsConfig, TlsError};
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

use super::certificate::when;
use super::watched::Files;
use crate::bounded_file;
use crate::failure::Failure;
use crate::settings::{self, Settings};

/// Files that say which clients are taken, as the settings have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientFiles {
    auth: ClientAuth,
    /// One at least.
    authorities: Vec<PathBuf>,
    revoked: Vec<PathBuf>,
}

impl ClientFiles {
    /// Those that these settings name, if they name any.
    pub(super) fn of(settings: &Settings) -> Result<Option<ClientFiles>, Failure> {
        let Settings {
            tls_client_ca: authorities,
            tls_client_crl: revoked,
            tls_client_auth: auth,
            ..
        } = settings;
        if !authorities.is_empty() {
            return Ok(Some(ClientFiles {
                auth: match auth {
                    None | Some(settings::ClientAuth::Required) => ClientAuth::Required,
                    Some(settings::ClientAuth::Optional) => ClientAuth::Optional,
                },
                authorities: authorities.clone(),
                revoked: revoked.clone(),
            }));
        }
        match (revoked.is_empty(), auth) {
            (true, None) => Ok(None),
            _ => Err(Failure::WrongUse(
                "--tls-client-crl and --tls-client-auth say which certificates of --tls-client-ca \
                 FILE are taken, which is not given"
                    .into(),
            )),
        }
    }

    /// Files without a listener, for `doctor`.
    pub(crate) fn named(authorities: Vec<PathBuf>, revoked: Vec<PathBuf>) -> ClientFiles {
        ClientFiles {
            auth: ClientAuth::Required,
            authorities,
            revoked,
        }
    }

    /// Whether a client without a certificate is refused.
    pub(super) fn are_required(&self) -> bool {
        self.auth == ClientAuth::Required
    }
}

impl Files for ClientFiles {
    type Read = Clients;

    const OTHERWISE: &'static str = "clients are verified as before";

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let all = self.authorities.iter().chain(&self.revoked);
        all.map(PathBuf::as_path)
    }

    fn load(&self) -> Result<Clients, String> {
        let mut authorities = Vec::new();
        for path in &self.authorities {
            let named = |cause: String| format!("{}: {cause}", path.display());
            let text = bounded_file::read(path).map_err(|cause| named(cause.to_string()))?;
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
            let found = found.map_err(|cause| named(cause.to_string()))?;
            if found.is_empty() {
                return Err(named("there is no certificate in it (in PEM)".into()));
            }
            // Each by itself, so that an error names its file.
            let checked = TlsClients::new(self.auth, found.clone(), []);
            checked.map_err(|cause| named(cause.to_string()))?;
            authorities.extend(found);
        }
        let (mut revoked, mut lists) = (Vec::new(), Vec::new());
        for path in &self.revoked {
            let named = |cause: String| format!("{}: {cause}", path.display());
            let content = bounded_file::read(path).map_err(|cause| named(cause.to_string()))?;
            for list in lists_in(content).map_err(named)? {
                let read = List::of(path, &list).map_err(named)?;
                let checked = TlsClients::new(self.auth, authorities.clone(), [list.clone()]);
                checked.map_err(|cause| named(cause.to_string()))?;
                lists.push(read);
                revoked.push(list);
            }
        }
        let count = authorities.len();
        let clients = TlsClients::new(self.auth, authorities, revoked);
        Ok(Clients {
            clients: clients.map_err(|cause| cause.to_string())?,
            auth: self.auth,
            count,
            files: self.authorities.clone(),
            lists,
        })
    }

    fn apply(read: &Clients, config: &TlsConfig) -> Result<(), TlsError> {
        config.verify_clients(&read.clients)
    }

    fn warnings(read: &Clients, now: SystemTime) -> Vec<String> {
        let outdated = read.lists.iter().filter_map(|list| {
            let due = list.due.filter(|due| *due <= now)?;
            Some(format!(
                "revocation list {}: it is outdated since {}, and no client is taken before there \
                 is another",
                list.file.display(),
                when(due)
            ))
        });
        outdated.collect()
    }
}

/// The lists in a file: in PEM, or one in DER, as authorities publish them.
fn lists_in(content: Vec<u8>) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    const SEQUENCE: u8 = 0x30;
    if content.first() == Some(&SEQUENCE) {
        return Ok(vec![content.into()]);
    }
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&content).collect();
    let found = found.map_err(|cause| cause.to_string())?;
    match found.is_empty() {
        true => Err("there is no revocation list in it (in PEM or DER)".into()),
        false => Ok(found),
    }
}

/// Which clients are taken, as the files have it.
#[derive(Debug)]
pub(crate) struct Clients {
    clients: TlsClients,
    auth: ClientAuth,
    /// Authorities.
    count: usize,
    files: Vec<PathBuf>,
    lists: Vec<List>,
}

/// What is said of a revocation list.
#[derive(Clone, Debug)]
struct List {
    file: PathBuf,
    revoked: usize,
    /// When the next one is due.
    due: Option<SystemTime>,
}

impl List {
    fn of(path: &Path, list: &CertificateRevocationListDer<'_>) -> Result<List, String> {
        let read: Result<CertificateList, _> = CertificateList::from_der(list);
        let list = read.map_err(|cause| cause.to_string())?.tbs_cert_list;
        Ok(List {
            file: path.into(),
            revoked: list.revoked_certificates.map_or(0, |all| all.len()),
            due: list.next_update.map(|time| time.to_system_time()),
        })
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.iter().map(|file| file.display().to_string());
        let files: Vec<String> = files.collect();
        let auth = match self.auth {
            ClientAuth::Required => "required",
            ClientAuth::Optional => "optional",
        };
        let (count, files) = (self.count, files.join(", "));
        write!(
            formatter,
            "client certificates {auth}, authorities: {count} of {files}"
        )?;
        for list in &self.lists {
            let (file, revoked) = (list.file.display(), list.revoked);
            write!(formatter, "; {revoked} revoked by {file}")?;
            if let Some(due) = list.due {
                write!(formatter, ", the next list is due {}", when(due))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flatpath_testkit::Authority;

    use super::*;

    #[test]
    fn what_is_wrong_names_its_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let write =
            |name: &str, content: &[u8]| std::fs::write(at(name), content).expect("written");
        let authority = Authority::new("ours");
        let (pem, der) = authority.revokes(&[1, 2], 2999);
        write("ca", authority.certificate().as_bytes());
        write("pem", pem.as_bytes());
        write("der", &der);
        write("old", authority.revokes(&[], 2001).0.as_bytes());
        write("cut", &der[..der.len() - 1]);
        let load = |authorities: &[&str], revoked: &[&str]| {
            let files = |names: &[&str]| names.iter().map(|name| at(name)).collect();
            ClientFiles::named(files(authorities), files(revoked)).load()
        };
        let now = SystemTime::now();
        let loaded = load(&["ca"], &["pem", "der"]).expect("good files");
        let said = loaded.to_string();
        assert!(
            said.starts_with("client certificates required, authorities: 1 of "),
            "{said}"
        );
        assert_eq!(said.matches("; 2 revoked by ").count(), 2, "{said}");
        assert!(
            said.ends_with("the next list is due 2999-01-01T00:00:00Z"),
            "{said}"
        );
        assert!(ClientFiles::warnings(&loaded, now).is_empty());
        let old = load(&["ca"], &["old"]).expect("outdated");
        let old = ClientFiles::warnings(&old, now);
        assert!(
            old.concat()
                .contains("old: it is outdated since 2001-01-01"),
            "{old:?}"
        );
        for (authorities, revoked, words) in [
            (&["none"][..], &[][..], "none: No such file"),
            (&["ca", "pem"], &[], "pem: there is no certificate"),
            (&["ca"], &["none"], "none: No such file"),
            (&["ca"], &["ca"], "ca: there is no revocation list"),
            (&["ca"], &["pem", "cut"], "cut: "),
        ] {
            let why = load(authorities, revoked).expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn lists_without_an_authority_are_a_mistake() {
        let settings = |authorities: &[&str], revoked: &[&str], auth| Settings {
            tls_client_ca: authorities.iter().map(PathBuf::from).collect(),
            tls_client_crl: revoked.iter().map(PathBuf::from).collect(),
            tls_client_auth: auth,
            ..Settings::default()
        };
        assert_eq!(ClientFiles::of(&Settings::default()), Ok(None));
        let optional = Some(settings::ClientAuth::Optional);
        for wrong in [settings(&[], &["a"], None), settings(&[], &[], optional)] {
            ClientFiles::of(&wrong).expect_err("no authority");
        }
        for (auth, meant) in [
            (None, ClientAuth::Required),
            (Some(settings::ClientAuth::Required), ClientAuth::Required),
            (optional, ClientAuth::Optional),
        ] {
            let files = ClientFiles::of(&settings(&["a"], &[], auth));
            let files = files.expect("good").expect("some");
            assert_eq!(files.auth, meant);
        }
    }
}
