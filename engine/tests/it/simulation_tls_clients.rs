//! Clients that prove who they are, on the simulated driver: without a certificate, with one of
//! another authority, a revoked one, an expired one and one that holds. And clients that come
//! again.

use std::sync::Arc;

use flatpath::simulation::SimulatedServer;
use flatpath::tls::rustls::pki_types::pem::PemObject;
use flatpath::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use flatpath::tls::rustls::{ClientConfig, ServerConfig};
use flatpath::tls::{ClientAuth, TicketKeys, TlsClients, TlsConfig, provider};
use flatpath::{Context, Limits, Protocol, Received};
use flatpath_testkit::{Authority, Issued};

use crate::tls_client::{
    End, TURNS_MAX, VERSIONS, client_config, client_config_of, identity, server_config,
    tls_conditions,
};

/// Says who the client is, and by which terms it is here, for each line.
struct Who;

impl Protocol for Who {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if !input.ends_with(b"\n") {
            return Received::NeedMore { consumed: 0 };
        }
        let terms = Arc::clone(context.tls().expect("it is with TLS"));
        let resumed = match terms.is_resumed() {
            true => "resumed",
            false => "full",
        };
        let client = context.peer_certificate();
        let said = match client {
            Some(client) => format!("{} ({resumed})", client.subject()),
            None => format!("unknown ({resumed})"),
        };
        context.write(said.as_bytes()).expect("room");
        Received::Consumed
    }
}

fn with(auth: ClientAuth, authority: &Authority, revoked: &str) -> TlsConfig {
    let clients = clients(auth, authority, revoked);
    let config = server_config();
    config.verify_clients(&clients).expect("verified");
    config
}

fn clients(auth: ClientAuth, authority: &Authority, revoked: &str) -> TlsClients {
    let authorities = authority.certificate();
    TlsClients::from_pem(auth, authorities.as_bytes(), revoked.as_bytes()).expect("authorities")
}

fn serve(config: &TlsConfig) -> SimulatedServer {
    SimulatedServer::new(tls_conditions(Limits::default(), config.clone()), Who)
}

/// What a client hears; `Err` where it is refused.
fn asks(server: &mut SimulatedServer, config: &Arc<ClientConfig>) -> Result<String, String> {
    let mut end = End::with(server, config);
    end.talk(server);
    if end.tls.broken.is_none() {
        end.tls.say(b"who\n");
    }
    let heard = end.hears(server);
    let outcome = match heard.is_empty() {
        true => Err(end.tls.broken.take().unwrap_or_default()),
        false => Ok(heard),
    };
    end.client.abort();
    outcome
}

fn finish(mut server: SimulatedServer) {
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_only_a_certificate_that_holds_is_taken() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let issue =
        |by: &Authority, serial, until| by.issue(&format!("client {serial}"), serial, until);
    let (revoked, _) = authority.revokes(&[3], 2999);
    for version in VERSIONS {
        let shows = |issued: &Issued| client_config_of(version, issued);
        let nobody = client_config(version);
        let good = shows(&issue(&authority, 1, 2999));
        for auth in [ClientAuth::Required, ClientAuth::Optional] {
            let mut server = serve(&with(auth, &authority, &revoked));
            let known = asks(&mut server, &good);
            assert_eq!(known.as_deref(), Ok("CN=client 1 (full)"));
            for (serial, by, until, alert) in [
                // Of an authority by another key, whatever its name.
                (1, &other, 2999, "UnknownCA"),
                (1, &Authority::new("ours"), 2999, ""),
                (2, &authority, 2001, "CertificateExpired"),
                (3, &authority, 2999, "CertificateRevoked"),
            ] {
                let refused = asks(&mut server, &shows(&issue(by, serial, until)));
                let why = refused.expect_err("refused");
                assert!(why.contains(alert), "{alert}: {why}");
            }
            let refusals = server.statistics().tls_client_certificate;
            assert_eq!(refusals, 4);
            let unknown = asks(&mut server, &nobody);
            match auth {
                ClientAuth::Optional => assert_eq!(unknown.as_deref(), Ok("unknown (full)")),
                ClientAuth::Required => {
                    let why = unknown.expect_err("refused");
                    let alerts = ["CertificateRequired", "HandshakeFailure"];
                    assert!(alerts.iter().any(|alert| why.contains(alert)), "{why}");
                    assert_eq!(server.statistics().tls_client_certificate, refusals + 1);
                }
            }
            // What was kept of the certificate is given back.
            finish(server);
        }
    }
}

#[test]
fn sim_an_outdated_or_missing_list_hides_no_revocation() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let good = client_config_of(VERSIONS[1], &authority.issue("a", 1, 2999));
    for list in [authority.revokes(&[], 2001), other.revokes(&[], 2999)] {
        let mut server = serve(&with(ClientAuth::Required, &authority, &list.0));
        asks(&mut server, &good).expect_err("refused");
        finish(server);
    }
}

/// A client that was good is asked again each time: no ticket outlives its authority.
#[test]
fn sim_who_comes_again_is_verified_again() {
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    for version in VERSIONS {
        let known = client_config_of(version, &before.issue("a", 1, 2999));
        // With sessions to resume, from when no client was verified.
        let config = server_config();
        let mut server = serve(&config);
        for words in ["unknown (full)", "unknown (resumed)"] {
            assert_eq!(asks(&mut server, &known).as_deref(), Ok(words));
        }
        let verify = |authority: &Authority, revoked: &str| {
            let clients = clients(ClientAuth::Required, authority, revoked);
            config.verify_clients(&clients).expect("verified");
        };
        verify(&before, "");
        for _ in 0..3 {
            let heard = asks(&mut server, &known);
            assert_eq!(heard.as_deref(), Ok("CN=a (full)"));
        }
        // Another certificate of the server leaves that as it is.
        let own = identity();
        let replaced = config.replace_pem(own.certificate.as_bytes(), own.key.as_bytes());
        replaced.expect("the same pair");
        assert_eq!(asks(&mut server, &known).as_deref(), Ok("CN=a (full)"));
        asks(&mut server, &client_config(version)).expect_err("no certificate");
        verify(&before, &before.revokes(&[1], 2999).0);
        asks(&mut server, &known).expect_err("revoked");
        verify(&after, "");
        asks(&mut server, &known).expect_err("of another authority");
        finish(server);
    }
}

#[test]
fn sim_sessions_are_resumed_at_every_server_with_the_key() {
    let keys = |secrets: &[[u8; 32]]| TicketKeys::new(secrets).expect("long enough");
    for version in VERSIONS {
        let configs = [server_config(), server_config(), server_config()];
        let [first, second, alone] = &configs;
        for config in [first, second] {
            config.share_tickets(&keys(&[[1; 32]])).expect("shared");
        }
        let mut servers = [serve(first), serve(second), serve(alone)];
        // A client that keeps no later ticket comes with its first one.
        let came = |server: &mut SimulatedServer, client: &Arc<ClientConfig>| {
            let heard = asks(server, client).expect("heard");
            heard == "unknown (resumed)"
        };
        let client = client_config(version);
        assert!(!came(&mut servers[0], &client));
        assert!(came(&mut servers[1], &client));
        // Another certificate leaves that as it is.
        let own = identity();
        let replaced = first.replace_pem(own.certificate.as_bytes(), own.key.as_bytes());
        replaced.expect("the same pair");
        assert!(came(&mut servers[0], &client));
        assert!(!came(&mut servers[2], &client));
        // The key is replaced at one after the other: first all can open, then the new one seals.
        let client = client_config(version);
        assert!(!came(&mut servers[0], &client));
        second
            .share_tickets(&keys(&[[2; 32], [1; 32]]))
            .expect("shared");
        assert!(came(&mut servers[1], &client));
        assert!(!came(&mut servers[0], &client));
        // A client whose ticket cannot be opened is as good as a new one.
        first.share_tickets(&keys(&[[3; 32]])).expect("shared");
        assert!(!came(&mut servers[0], &client));
        assert!(came(&mut servers[0], &client));
        // Where clients are verified there is none, whichever was chosen first.
        let authority = Authority::new("ours");
        let verified = clients(ClientAuth::Optional, &authority, "");
        first.verify_clients(&verified).expect("verified");
        alone.verify_clients(&verified).expect("verified");
        alone.share_tickets(&keys(&[[3; 32]])).expect("shared");
        for server in [0, 2] {
            assert!(!came(&mut servers[server], &client));
            assert!(!came(&mut servers[server], &client));
        }
        servers.into_iter().for_each(finish);
    }
}

#[test]
fn what_no_client_can_be_verified_by_is_an_error() {
    let authority = Authority::new("ours").certificate();
    for (authorities, revoked, words) in [
        ("", "", "the authorities: there is none"),
        ("-----BEGIN CERTIFICATE-----\n*", "", "the authorities: "),
        (
            &*authority,
            "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
            "a revocation list: ",
        ),
    ] {
        let made = TlsClients::from_pem(
            ClientAuth::Required,
            authorities.as_bytes(),
            revoked.as_bytes(),
        );
        let why = made.expect_err(words).to_string();
        assert!(why.contains(words), "{why}");
    }
}

/// A configuration that was given is asked for what `verify_clients` keeps of it.
#[test]
fn sim_a_given_configuration_keeps_its_certificates_and_protocols() {
    let own = identity();
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).expect("in PEM");
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("in PEM");
    let mut given = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a pair");
    given.enable_secret_extraction = true;
    given.alpn_protocols = vec![b"own".to_vec()];
    let config = TlsConfig::from_server_config(given).expect("as it has to be");
    let authority = Authority::new("ours");
    config
        .verify_clients(&clients(ClientAuth::Optional, &authority, ""))
        .expect("verified");
    let mut server = serve(&config);
    let mut client = ClientConfig::clone(&client_config(VERSIONS[1]));
    client.alpn_protocols = vec![b"own".to_vec()];
    let heard = asks(&mut server, &Arc::new(client.clone()));
    assert_eq!(heard.as_deref(), Ok("unknown (full)"));
    client.alpn_protocols = vec![b"other".to_vec()];
    asks(&mut server, &Arc::new(client)).expect_err("no protocol in common");
    assert_eq!(server.statistics().tls_incompatible, 1);
    finish(server);
}
