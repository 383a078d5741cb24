//! TLS with the servers of `--proxy`: whose certificates are trusted, for which name, and what is
//! shown to them. A server's certificate is always verified.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use flatpath::tls::provider;
use flatpath::tls::rustls::pki_types::pem::PemObject;
use flatpath::tls::rustls::pki_types::{CertificateDer, ServerName};
use flatpath::tls::rustls::sign::SingleCertAndKey;
use flatpath::tls::rustls::{ClientConfig, RootCertStore};
use flatpath_http::{UpstreamServer, UpstreamTls};

use super::certificate::Certificate;
use super::source::Pair;
use crate::bounded_file;
use crate::failure::Failure;
use crate::settings::Settings;

/// The servers of these settings, those of `https://` with their TLS.
pub(crate) fn servers(settings: &Settings) -> Result<Vec<UpstreamServer>, Failure> {
    let mut servers = settings.proxy.clone();
    let own = own(settings)?;
    if !servers.iter().any(UpstreamServer::is_secured) {
        return Ok(servers);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| Failure::Failed(format!("TLS: {cause}")))?
        .with_root_certificates(roots(&settings.proxy_tls_ca)?);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let shown = Certificate::from_files(&pair).map_err(Failure::WrongUse)?;
            let shown = SingleCertAndKey::from((*shown.key).clone());
            config.with_client_cert_resolver(Arc::new(shown))
        }
    };
    let tls = UpstreamTls::new(config);
    let tls = match &settings.proxy_tls_name {
        None => tls,
        Some(name) => tls.name(ServerName::try_from(name.clone()).map_err(|_| {
            Failure::WrongUse(format!("--proxy-tls-name {name}: no name of a host"))
        })?),
    };
    for server in &mut servers {
        if server.is_secured() {
            *server = server.clone().tls(&tls);
        }
    }
    Ok(servers)
}

/// What is shown to servers that want a certificate.
fn own(settings: &Settings) -> Result<Option<Pair>, Failure> {
    match (&settings.proxy_tls_cert, &settings.proxy_tls_key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Pair {
            certificate: certificate.clone(),
            key: key.clone(),
        })),
        _ => Err(Failure::WrongUse(
            "--proxy-tls-cert is shown with its --proxy-tls-key: name both".into(),
        )),
    }
}

/// The authorities in these files, or those that the machine trusts.
fn roots(files: &[PathBuf]) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    if files.is_empty() {
        let found = machines_roots("--proxy-tls-ca");
        let found = found.map_err(|cause| Failure::Failed(format!("proxy: {cause}")))?;
        // A machine may have some that are no use to anyone.
        roots.add_parsable_certificates(found);
    }
    for path in files {
        let named = |cause: &dyn std::fmt::Display| {
            Failure::WrongUse(format!("--proxy-tls-ca {}: {cause}", path.display()))
        };
        let text = bounded_file::read(path).map_err(|cause| named(&cause))?;
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|cause| named(&cause))?;
            roots.add(certificate).map_err(|cause| named(&cause))?;
        }
        if roots.len() == before {
            return Err(named(&"there is no certificate in it (in PEM)"));
        }
    }
    Ok(roots)
}

/// As OpenSSL finds them: `SSL_CERT_FILE`, `SSL_CERT_DIR`, or where distributions have them.
pub(super) fn machines_roots(option: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let _reading = bounded_file::begin("the machine's certificates".into());
    let found = rustls_native_certs::load_native_certs();
    match found.certs.is_empty() {
        true => Err(io::Error::other(format!(
            "this machine has no certificates of authorities: install ca-certificates, or name \
             the right one with {option} FILE"
        ))),
        false => Ok(found.certs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(server: &str) -> Settings {
        Settings {
            proxy: vec![server.parse().expect("a server")],
            ..Settings::default()
        }
    }

    fn refused(settings: &Settings) -> String {
        servers(settings)
            .map(drop)
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn a_certificate_is_shown_with_its_key_and_authorities_are_in_their_file() {
        let mut half = settings("http://127.0.0.1");
        half.proxy_tls_cert = Some("own.pem".into());
        assert!(refused(&half).contains("name both"));
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, "no certificate\n").expect("written");
        let mut empty = settings("https://127.0.0.1");
        empty.proxy_tls_ca = vec![file];
        assert!(refused(&empty).contains("no certificate in it"));
        // Without https:// nothing is read.
        empty.proxy = vec!["http://127.0.0.1".parse().expect("a server")];
        assert_eq!(
            servers(&empty).map_err(|why| why.to_string()),
            Ok(empty.proxy.clone())
        );
    }
}
