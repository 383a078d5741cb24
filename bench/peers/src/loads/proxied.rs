//! A request that a proxy passes on, driven by wrk. All proxies ask the same server, an nginx that
//! keeps its files open; of what is used only the proxy's part counts.

use std::cell::OnceCell;
use std::io;

use flatpath_bench_common::report::Table;
use flatpath_bench_common::tools::{self, Tool};

use super::wrk::Wrk;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::kind::Kind;
use crate::server::{Needs, Server, Service};

/// Connections of proxies beside those of the load: others are being closed, or opened.
const SPARE: u32 = 200;

/// See the module.
pub(crate) struct Proxied {
    wrk: Wrk,
    /// What all of them ask.
    upstream: OnceCell<Server>,
}

impl Proxied {
    pub(crate) fn new(wrk: Wrk) -> Self {
        Self {
            wrk,
            upstream: OnceCell::new(),
        }
    }

    fn upstream(&self, ground: &Ground) -> io::Result<&Server> {
        if let Some(server) = self.upstream.get() {
            return Ok(server);
        }
        let needs = Needs::of(Service::Http, self.wrk.connections + SPARE);
        let server = Server::start(ground, Kind::NginxTuned, &needs)?;
        Ok(self.upstream.get_or_init(|| server))
    }
}

impl Load for Proxied {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let kind = row.kind.ok_or_else(|| io::Error::other("no server"))?;
        let needs = Needs {
            upstream: Some(self.upstream(ground)?.address),
            ..row.needs.clone()
        };
        let server = Server::start(ground, kind, &needs)?;
        self.wrk.clone().turns(ground, row, server)
    }

    fn tools(&self) -> &'static [Tool] {
        &[tools::NGINX, tools::WRK]
    }

    fn remarks(&self, ground: &Ground, table: &mut Table) -> Vec<String> {
        self.wrk.remarks(ground, table)
    }
}
