//! `flatpath health ADDR`: asks a server once and tells by the exit code whether it is well: for
//! images without a shell, and for scripts.
//!
//! | exit code | what the server said                                                       |
//! |-----------|----------------------------------------------------------------------------|
//! | 0         | 2xx: what it said is on standard output                                    |
//! | 1         | another status, or nothing in time: the reason is on standard error        |
//! | 2         | the command line is wrong                                                  |

use std::io::Write as _;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use flatpath::sockets::ListenAddress;

use crate::client::{self, Question, Stream};
use crate::failure::Failure;
use crate::units;

/// The command line of `health`.
pub(crate) fn command() -> Command {
    let option = |name, value| Arg::new(name).long(name).value_name(value);
    let command = Command::new("health")
        .about("Ask a running server whether it is well, and tell by the exit code")
        .args([
            client::address(
                "Where the server answers: what its --admin was given, HOST:PORT, PORT or \
                 unix:PATH; or one of its listeners, with --path",
            ),
            option("path", "PATH").default_value("/readyz").help(
                "What to ask for: /readyz, whether new clients should be sent there; /healthz, \
                 whether it needs a restart; or a file that it serves",
            ),
            option("host", "NAME")
                .default_value("localhost")
                .help("The host to ask for, which with TLS the certificate has to name"),
            option("timeout", "TIME")
                .default_value("3s")
                .value_parser(units::time)
                .help("How long to wait for each step"),
        ])
        .after_help("Exit codes: 0, the server answers 2xx; 1, it does not; 2, wrong use.");
    #[cfg(feature = "tls")]
    let command = command.arg(
        option("ca", "FILE")
            .value_parser(clap::value_parser!(std::path::PathBuf))
            .help("Speak TLS, with a server whose certificate one in this file (PEM) vouches for"),
    );
    command
}

/// Asks.
///
/// # Errors
/// The server is not well, or does not answer.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let one = "it is required, or has a default";
    let address: &ListenAddress = matches.get_one("address").expect(one);
    let text = |name| matches.get_one::<String>(name).expect(one).as_str();
    let patience: Duration = *matches.get_one("timeout").expect(one);
    let (target, host) = (text("path"), text("host"));
    if !target.starts_with('/') || target.bytes().any(|it| !it.is_ascii_graphic()) {
        let why = format!("--path {target}: write a path such as /readyz");
        return Err(Failure::WrongUse(why));
    }
    let failed = |why: String| Failure::Failed(format!("{address}: {why}"));
    let question = Question { target, host };
    let stream = client::connect(address, patience).map_err(failed)?;
    let mut stream = secured(stream, matches, host)?;
    let reply = client::get(&mut *stream, &question).map_err(failed)?;
    let body = String::from_utf8_lossy(&reply.body);
    match reply.status {
        200..300 => {
            // Nobody need read it.
            let _ = std::io::stdout().write_all(&reply.body);
            Ok(())
        }
        status => {
            let line = body.lines().next().unwrap_or_default().escape_default();
            Err(failed(format!("{target} is {status}: {line}")))
        }
    }
}

#[cfg(not(feature = "tls"))]
fn secured(stream: Box<dyn Stream>, _: &ArgMatches, _: &str) -> Result<Box<dyn Stream>, Failure> {
    Ok(stream)
}

/// With TLS where it is asked for.
#[cfg(feature = "tls")]
fn secured(
    stream: Box<dyn Stream>,
    matches: &ArgMatches,
    host: &str,
) -> Result<Box<dyn Stream>, Failure> {
    use std::path::PathBuf;
    use std::sync::Arc;

    use flatpath::tls::provider;
    use flatpath::tls::rustls::pki_types::pem::PemObject as _;
    use flatpath::tls::rustls::pki_types::{CertificateDer, ServerName};
    use flatpath::tls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    let Some(path) = matches.get_one::<PathBuf>("ca") else {
        return Ok(stream);
    };
    let wrong = |why: String| Failure::WrongUse(format!("--ca {}: {why}", path.display()));
    let text = crate::bounded_file::read(path).map_err(|cause| wrong(cause.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|cause| wrong(cause.to_string()))?;
        roots
            .add(certificate)
            .map_err(|cause| wrong(cause.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it (in PEM)".into()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| Failure::Failed(format!("TLS: {cause}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Failure::WrongUse(format!("--host {host}: no name of a host")))?;
    let session = ClientConnection::new(Arc::new(config), name)
        .map_err(|cause| Failure::Failed(format!("TLS: {cause}")))?;
    Ok(Box::new(StreamOwned::new(session, stream)))
}
