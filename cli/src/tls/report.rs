//! What `check` and `doctor` say of certificates.

use std::fmt::Write as _;
use std::time::SystemTime;

use super::acme::Plan;
use super::certificate::Certificate;
use super::clients::ClientFiles;
use super::source::{Pair, Secured, Source, pairs};
use super::watched;
use crate::failure::Failure;
use crate::settings::Settings;

/// What there is to say of certificates.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) words: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// Those that cannot be used.
    pub(crate) mismatches: Vec<String>,
}

/// What these certificates are, as comments of a configuration, each once.
///
/// # Errors
/// One cannot be read, or its key is another one's.
pub(crate) fn comments<'a>(secured: impl Iterator<Item = &'a Secured>) -> Result<String, Failure> {
    let mut text = String::new();
    let mut seen: Vec<&Secured> = Vec::new();
    for secured in secured {
        if seen.contains(&secured) {
            continue;
        }
        seen.push(secured);
        let certificates = match secured.certificates {
            Source::Files(_) => secured.certificates.load()?,
            Source::SelfSigned | Source::Authority(_) => Vec::new(),
        };
        if let Some(plan) = secured.plan() {
            let (words, warning, mismatch) = plan.found();
            let _ = writeln!(text, "\n# {words}");
            if let Some(warning) = warning {
                let _ = writeln!(text, "# {warning}");
            }
            if let Some(why) = mismatch {
                return Err(Failure::Failed(why));
            }
        }
        for certificate in certificates {
            let _ = writeln!(text, "\n# certificate {certificate}; the key is its own");
            if let Some(warning) = certificate.warning(SystemTime::now()) {
                let _ = writeln!(text, "# {warning}");
            }
        }
        for (words, warnings) in secured.check()? {
            let _ = writeln!(text, "\n# {words}");
            for warning in warnings {
                let _ = writeln!(text, "# {warning}");
            }
        }
    }
    Ok(text)
}

/// What the certificates are that settings name, or listeners have, each once.
///
/// # Errors
/// There are more certificates than keys, or fewer.
pub(crate) fn findings<'a>(
    settings: &Settings,
    listeners: impl Iterator<Item = &'a Secured>,
) -> Result<Findings, Failure> {
    let mut pairs = pairs(&settings.tls_cert, &settings.tls_key)?;
    let mut clients = Vec::new();
    let (authorities, revoked) = (&settings.tls_client_ca, &settings.tls_client_crl);
    if !authorities.is_empty() || !revoked.is_empty() {
        clients.push(ClientFiles::named(authorities.clone(), revoked.clone()));
    }
    let mut plans: Vec<Plan> = Vec::new();
    for secured in listeners {
        add_new(&mut plans, secured.plan().map_or(&[], std::slice::from_ref));
        if let Source::Files(own) = &secured.certificates {
            add_new(&mut pairs, own);
        }
        add_new(&mut clients, secured.clients.as_slice());
    }
    let mut findings = Findings::default();
    for plan in plans {
        let (words, warning, mismatch) = plan.found();
        findings.words.push(words);
        findings.warnings.extend(warning);
        findings.mismatches.extend(mismatch);
    }
    for pair in &pairs {
        findings.read(pair);
    }
    for files in &clients {
        match watched::check(files) {
            Ok((words, warnings)) => {
                findings.warnings.extend(warnings);
                findings.words.push(words);
            }
            Err(cause) => findings.mismatches.push(cause),
        }
    }
    Ok(findings)
}

impl Findings {
    fn read(&mut self, pair: &Pair) {
        let now = SystemTime::now();
        match Certificate::from_files(pair) {
            Ok(certificate) => {
                let warning = certificate.warning(now);
                match certificate.is_valid(now) {
                    true => self.warnings.extend(warning),
                    false => self.mismatches.extend(warning),
                }
                self.words
                    .push(format!("{certificate}; the key is its own"));
            }
            Err(cause) => self.mismatches.push(cause),
        }
    }
}

fn add_new<T: Clone + PartialEq>(all: &mut Vec<T>, others: &[T]) {
    for other in others {
        if !all.contains(other) {
            all.push(other.clone());
        }
    }
}
