//! A full handshake, a request for the small file, and a close, this many at a time.
//!
//! The load is the harness's own. wrk resumes sessions: of its connections to `openssl s_server`
//! with `Connection: close`, all but the first ones did.

use std::io;

use flatpath_bench_common::servers::{CPU, ERRORS, P50, P99, RATE, REPLY_BYTES};

use super::newcomers::{one_request_each, warm_up};
use super::tls::Client;
use super::wrk::{Request, Wrk};
use crate::comparison::{Load, Row, Turn};
use crate::ground::{Ground, SMALL_PATH, small_body};

/// See the module.
pub(crate) struct Handshakes(pub(crate) u32);

impl Load for Handshakes {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let (server, client) = (row.start(ground)?, Client::new(&ground.issued, &[])?);
        let asked = Wrk::kept(Request::of(SMALL_PATH, small_body()), 1);
        warm_up(&client, server.address)?;
        Ok(Box::new(move || {
            let reply_bytes = asked.check(&server, Some(&client))?;
            let clients = self.0 as usize;
            let each = || one_request_each(&client, server.address, clients, ground.time());
            let (counts, used) = server.watch(each)?;
            if counts.served == 0 {
                return Err(io::Error::other("not one reply"));
            }
            let run = vec![
                (RATE, counts.served as f64 / used.wall.as_secs_f64()),
                (CPU, used.server_micros_over(counts.served)),
                (P50, counts.quantile(0.5)),
                (P99, counts.quantile(0.99)),
                (ERRORS, counts.failed as f64),
                (REPLY_BYTES, reply_bytes as f64),
            ];
            server.shown(&used, run)
        }))
    }
}
