//! Which challenges of an ACME authority (`--acme`) the listeners answer, and whether it gets to
//! them.
//!
//! A listener with the certificate that is ordered answers TLS-ALPN-01, and one for HTTP without
//! TLS answers HTTP-01, those of tables too. Where an authority connects to is fixed; a port that
//! is another one may be forwarded to, so it is no error.

use crate::failure::Failure;
use crate::listener::Listener;
use crate::settings::ListenerProtocol;

/// The ports that an authority connects to (RFC 8737 section 3, RFC 8555 section 8.3).
const PORTS: [u16; 2] = [443, 80];

/// Which challenges can be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) tls_alpn: bool,
    pub(crate) http: bool,
}

impl Reach {
    /// At these listeners.
    pub(crate) fn of(listeners: &[Listener]) -> Reach {
        Reach {
            tls_alpn: over_http(listeners).any(is_ordered),
            http: over_http(listeners).any(|it| it.tls.is_none()),
        }
    }
}

fn over_http(listeners: &[Listener]) -> impl Iterator<Item = &Listener> {
    let all = listeners.iter();
    all.filter(|it| it.protocol == ListenerProtocol::Http)
}

/// Whether its certificate is ordered: a table names its own.
fn is_ordered(listener: &Listener) -> bool {
    listener.tls.is_some() && !listener.is_table && !listener.settings.acme.is_empty()
}

/// Refuses listeners that no authority can validate a name at, if one is to.
///
/// # Errors
/// None of them answers a challenge.
pub(crate) fn check(listeners: &[Listener]) -> Result<(), Failure> {
    if listeners.iter().any(is_ordered) && Reach::of(listeners) == Reach::default() {
        return Err(Failure::WrongUse(
            "--acme: no listener answers the challenges of an authority: add --https ADDR \
             (TLS-ALPN-01) or --http ADDR (HTTP-01)"
                .into(),
        ));
    }
    Ok(())
}

/// What to mind if no listener is at a port that authorities connect to.
pub(crate) fn warning(listeners: &[Listener]) -> Option<String> {
    let mut ports = over_http(listeners)
        .flat_map(|it| &it.addresses)
        .map(|it| it.internet().map(|it| it.port()));
    // A socket that another process passes may be at any.
    let is_reached = ports.any(|it| it.is_none_or(|port| PORTS.contains(&port)));
    (listeners.iter().any(is_ordered) && !is_reached).then(|| {
        "--acme: authorities connect to port 443 or 80, and no listener is at one of these: have \
         them forwarded"
            .into()
    })
}

#[cfg(all(test, feature = "acme"))]
mod tests {
    use super::*;
    use crate::config::Configuration;
    use crate::listeners;

    #[test]
    fn challenges_need_a_listener_at_a_port_that_authorities_connect_to() {
        let named = |text: &str| {
            let own = "acme = \"a.example\"\nacme-accept-terms = true\nacme-storage = \"d\"\n";
            let file = Configuration::from_text(&format!("{own}{text}"));
            let file = file.expect("a good file");
            listeners::of(&file.settings, &file)
        };
        for (text, tls_alpn, http, is_reached) in [
            ("https = 443", true, false, true),
            ("https = 8443", true, false, false),
            ("https = 8443\nhttp = 80", true, true, true),
            ("https = 8443\nhttp = 8080", true, true, false),
            ("https = \"fd:web\"", true, false, true),
            (
                "https = 8443\n[[listener]]\nprotocol = \"http\"\naddress = 80",
                true,
                true,
                true,
            ),
            (
                "nfs = 2049\nnfs-tls = \"required\"\nhttp = 80",
                false,
                true,
                true,
            ),
        ] {
            let listeners = named(text).expect(text);
            assert_eq!(Reach::of(&listeners), Reach { tls_alpn, http }, "{text}");
            assert_eq!(warning(&listeners).is_none(), is_reached, "{text}");
        }
        for (text, words) in [
            ("nfs = 2049\nnfs-tls = \"required\"", "no listener answers"),
            ("http = 80", "--https"),
            ("https = 443\ntls-self-signed = true", "leave it out"),
            (
                "https = 443\ntls-cert = \"a\"\ntls-key = \"b\"",
                "leave it out",
            ),
        ] {
            let why = named(text).expect_err(words).to_string();
            assert!(why.contains(words), "{why}");
        }
        let none = Configuration::from_text("http = 8080").expect("a good file");
        let none = listeners::of(&none.settings, &none).expect("listeners");
        assert_eq!(warning(&none), None, "nothing is asked");
    }
}
