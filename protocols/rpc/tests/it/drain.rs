//! A drain at each step of RPC with TLS (RFC 9289): before the call that asks for it, before the
//! client's hello, and before the end of its handshake, with which its first call comes. The client
//! is delayed there, always or not at all, by less than an idle connection has, and workers are
//! slow or not. In every case that call is answered.

use std::sync::Arc;

use flatpath::memory::PoolHandle;
use flatpath::simulation::{Client, ClientState, Conditions, SimulatedServer, each_seed};
use flatpath::tls::TlsConfig;
use flatpath_rpc::limits::REPLY_HEAD_BYTES;
use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{Arguments, Call, CallOutcome, Programs, Reply, Route, Rpc};
use flatpath_testkit::Issued;
use flatpath_testkit::tls::{TlsClient, VERSIONS, client_config};

use crate::simulation::{call, call_with};

const TURNS_MAX: usize = 10_000;
/// RFC 9289 section 4.1.
const AUTH_TLS: u32 = 7;

/// Every call has results without any data, from a worker.
struct Empty;

impl Programs for Empty {
    fn name(&self) -> &'static str {
        "empty"
    }

    fn route(&self, _: &Call) -> Route {
        Route::Pooled
    }

    fn reply_bytes_max(&self, _: &Call, _: Arguments<'_>) -> usize {
        REPLY_HEAD_BYTES
    }

    fn inline(&self, _: &Call, _: Arguments<'_>, _: &mut Writer<'_>) -> CallOutcome {
        CallOutcome::SystemError
    }

    fn pooled(&self, _: &Call, _: Arguments<'_>, _: &mut Reply, _: PoolHandle<'_>) -> CallOutcome {
        CallOutcome::Results
    }
}

/// What a client has to say next follows from what it has heard.
struct Talk {
    client: Client,
    tls: TlsClient,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asks,
    AwaitsReply,
    Shakes,
}

impl Talk {
    fn listen(&mut self) {
        let bytes = self.client.read();
        if self.stage == Stage::Shakes {
            self.tls.feed(&bytes);
        } else if !bytes.is_empty() {
            assert!(bytes.ends_with(b"STARTTLS\0\0\0\0"), "in one record");
            self.stage = Stage::Shakes;
        }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        match self.stage {
            Stage::Asks => {
                self.stage = Stage::AwaitsReply;
                Some(call_with(0, 1, AUTH_TLS))
            }
            Stage::AwaitsReply => None,
            Stage::Shakes => Some(self.tls.take()).filter(|said| !said.is_empty()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    None,
    AtDrain,
    Always,
}

/// Runs one case; whether the drain began before the client was answered.
fn run(issued: &Issued, seed: u64, (drain_at, delay, slow_turns): (usize, Delay, usize)) -> bool {
    let mut conditions = Conditions::calm(seed);
    let Issued { certificate, key } = issued;
    let tls = TlsConfig::from_pem(certificate.as_bytes(), key.as_bytes());
    conditions.tls = Some(tls.expect("a pair"));
    conditions.starts_tls = true;
    let rests = conditions.limits.drain_idle_timeout * 4 / 5;
    let mut server = SimulatedServer::new(conditions, Rpc::new(Empty));
    let mut config = client_config(certificate, None, &VERSIONS[1..]);
    config.alpn_protocols = vec![b"sunrpc".to_vec()];
    let mut talk = Talk {
        client: server.connect(),
        tls: TlsClient::new(&Arc::new(config)),
        stage: Stage::Asks,
    };
    talk.tls.say(&call(2));
    (0..4).for_each(|_| server.turn());
    let what = format!("seed {seed}, drain at {drain_at}, {delay:?}, {slow_turns} slow turns");
    let (mut step, mut drains) = (0, false);
    for turn in 0.. {
        assert!(turn < TURNS_MAX, "{what}: no end");
        // The state before the words: what is there at the end is read.
        let state = talk.client.state();
        talk.listen();
        if !talk.tls.heard.is_empty() {
            break;
        }
        let broken = &talk.tls.broken;
        assert_eq!(
            state,
            ClientState::Open,
            "{what}: {:?}, {broken:?}",
            talk.stage
        );
        if let Some(said) = talk.next() {
            let is_now = step == drain_at;
            if is_now {
                server.drain();
                drains = true;
            }
            if delay == Delay::Always || is_now && delay == Delay::AtDrain {
                (0..4).for_each(|_| server.turn());
                server.advance(rests);
                (0..4).for_each(|_| server.turn());
            }
            talk.client.write(&said);
            (0..slow_turns).for_each(|_| server.turn_without_workers());
            step += 1;
        }
        server.turn();
    }
    // A record of so many bytes, and the number of the call.
    assert_eq!(talk.tls.heard[4..8], 2_u32.to_be_bytes(), "{what}");
    drop(talk);
    server.drain();
    server.end(TURNS_MAX);
    drains
}

#[test]
fn sim_a_drain_at_each_step_of_a_call_over_tls_loses_none() {
    let issued = Issued::for_localhost();
    each_seed(4, |seed| {
        for delay in [Delay::None, Delay::AtDrain, Delay::Always] {
            for slow_turns in [0, 6] {
                let at = |drain_at| run(&issued, seed, (drain_at, delay, slow_turns));
                let steps = (0..).take_while(|step| at(*step)).count();
                assert!(steps >= 3, "{steps} steps");
            }
        }
    });
}
