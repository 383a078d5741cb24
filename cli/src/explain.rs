//! `flatpath check FILE --url URL`: which site answers for an address, and with what.
//!
//! The words about the site and its rules are from the configuration. The answer is a real one: for
//! the length of one request the site is served to this process alone, at a port of 127.0.0.1 that
//! the kernel picks, without its rules of access and read-only.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use flatpath::{DriverChoice, Server};
use flatpath_cli_protocols::Spoken;
use flatpath_files::Files;
use flatpath_http::http::Uri;
use flatpath_http::http::uri::Scheme;
use flatpath_http::{Hosts, Http, Sites, without_dot_segments};

use crate::failure::Failure;
use crate::hosts;
use crate::listener::Listener;
use crate::memory::Parts;
use crate::redirect::Redirect;
use crate::settings::{ListenerProtocol, Settings};
use crate::sites::{self, Served};

/// Far beyond what a file takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest head of an answer that is shown.
const HEAD_BYTES_MAX: u64 = 64 * 1024;

/// What there is to say of an address.
pub(crate) fn url(text: &str, listeners: &[Listener], parts: &Parts) -> Result<String, Failure> {
    let wrong = || {
        let why = format!("--url {text}: write an address such as http://example.org/path");
        Failure::WrongUse(why)
    };
    let url: Uri = text.parse().map_err(|_| wrong())?;
    let is_https = match url.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => false,
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        _ => return Err(wrong()),
    };
    let authority = url.authority().ok_or_else(wrong)?.as_str();
    let port = url.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let listener = listener_of(listeners, is_https, port).ok_or_else(|| {
        let scheme = if is_https { "https" } else { "http" };
        Failure::WrongUse(format!("--url {text}: no listener speaks {scheme}"))
    })?;
    let mut out = String::new();
    let addresses: Vec<_> = listener.addresses.iter().map(ToString::to_string).collect();
    let _ = writeln!(out, "listener {}", addresses.join(", "));
    if !hosts::of_each(listener)
        .iter()
        .any(|hosts| hosts.admits(authority))
    {
        let _ = writeln!(
            out,
            "answer 421: the listener does not answer for this host (hosts)"
        );
        return Ok(out);
    }
    if listener.redirects {
        let sites = sites::redirecting(listener, &Redirect::default())?;
        out += match sites.number_of(authority, "/") {
            Some(_) => "answer 308: it leads to the listener with TLS (http-redirect)\n",
            None => "answer 421: no site has this host\n",
        };
        return Ok(out);
    }
    // As the server does it, before it looks for a site.
    let Ok(path) = without_dot_segments(url.path()) else {
        let _ = writeln!(out, "answer 400: its path leads above the root");
        return Ok(out);
    };
    let query = url.query().map(|query| format!("?{query}"));
    let target = &format!("{path}{}", query.unwrap_or_default());
    // Nothing is written, nor are uploads that have expired removed.
    let mut served = listener.served();
    served.iter_mut().for_each(|it| it.settings.writable = None);
    let Some(number) = number_of(&served, authority, &path) else {
        let _ = writeln!(out, "answer 421 or 404: no site has this host and path");
        return Ok(out);
    };
    describe(&mut out, &served[number]);
    if !served[number].has_directory() {
        // Asking the server would be a request of its own.
        return Ok(out);
    }
    served.retain(Served::has_directory);
    let number = number_of(&served, authority, &path).expect("it is still there");
    let site = &served[number];
    let files = served.iter().map(|it| sites::files(it, parts));
    let files: Vec<_> = files.collect::<Result<_, _>>()?;
    let below = target.strip_prefix(site.prefix.trim_end_matches('/'));
    let explained = files[number].explain(below.unwrap_or(target));
    let _ = write!(out, "{explained}");
    out += &answer(&served, files, authority, target)?;
    Ok(out)
}

/// The listener that a client of this address reaches, as far as the port tells; else the first
/// that speaks its scheme.
fn listener_of(listeners: &[Listener], is_https: bool, port: u16) -> Option<&Listener> {
    let is_http = |it: &Listener| it.protocol == ListenerProtocol::Http;
    let speaks = |it: &&Listener| is_http(it) && it.tls.is_some() == is_https;
    let has_port = |it: &&Listener| {
        let mut ports = it
            .addresses
            .iter()
            .filter_map(|it| Some(it.internet()?.port()));
        ports.any(|it| it == port)
    };
    let speaking = || listeners.iter().filter(speaks);
    speaking().find(has_port).or_else(|| speaking().next())
}

/// The number of the site of a host and a path, by the rule by which they are served.
fn number_of(served: &[Served<'_>], authority: &str, path: &str) -> Option<usize> {
    let sites = served.iter().try_fold(Sites::new(), |sites, it| {
        sites.add(&it.names, it.prefix, Redirect::default())
    });
    sites.ok()?.number_of(authority, path)
}

fn describe(out: &mut String, site: &Served<'_>) {
    let names: Vec<_> = site.names.iter().map(ToString::to_string).collect();
    let _ = writeln!(out, "site {} {}", names.join(", "), site.prefix);
    match site.has_directory() {
        true => {
            let dir = sites::directory(&site.settings).display();
            let _ = writeln!(out, "directory {dir}");
        }
        false => {
            for server in &site.settings.proxy {
                let _ = writeln!(out, "proxy {server}");
            }
        }
    }
    for line in access(&site.settings) {
        let _ = writeln!(out, "access {line}");
    }
}

/// The rules of access, in words.
fn access(settings: &Settings) -> Vec<String> {
    let list = |networks: &[flatpath::Subnet]| {
        let networks: Vec<_> = networks.iter().map(ToString::to_string).collect();
        networks.join(", ")
    };
    let mut lines = Vec::new();
    if !settings.allow.is_empty() {
        lines.push(format!("for clients of {}", list(&settings.allow)));
    }
    if !settings.deny.is_empty() {
        lines.push(format!("not for clients of {}", list(&settings.deny)));
    }
    if let Some(rate) = settings.rate {
        lines.push(format!(
            "for {} requests of an address in {:?}",
            rate.amount, rate.time
        ));
    }
    if let Some(rate) = settings.rate_bytes {
        lines.push(format!(
            "for {} bytes to an address in {:?}",
            rate.amount, rate.time
        ));
    }
    if let Some(file) = &settings.auth_file {
        lines.push(format!("by a name and a password of {}", file.display()));
    }
    lines
}

/// The head of the answer to a GET.
fn answer(
    served: &[Served<'_>],
    files: Vec<Files>,
    authority: &str,
    target: &str,
) -> Result<String, Failure> {
    let mut sites = Sites::new();
    for (site, files) in served.iter().zip(files) {
        let added = sites.add(&site.names, site.prefix, files);
        sites = added.map_err(|why| Failure::WrongUse(why.to_string()))?;
    }
    let failed = |cause: &dyn std::fmt::Display| Failure::Failed(format!("--url: {cause}"));
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::new().driver(DriverChoice::Epoll).workers(1..=2);
    let spoken = Spoken::Sites(Http::service(sites).hosts(Hosts::any()));
    let running = spoken
        .at(server, address.into())
        .start()
        .map_err(|cause| failed(&cause))?;
    let bound = running
        .listeners()
        .first()
        .and_then(|it| it.address.internet());
    let head = bound.map(|bound| head(bound, authority, target));
    running.handle().drain();
    let ended = running.wait();
    ended.map_err(|cause| failed(&cause))?;
    match head {
        Some(Ok(head)) => Ok(head),
        Some(Err(cause)) => Err(failed(&cause)),
        None => Ok(String::new()),
    }
}

fn head(server: SocketAddr, authority: &str, target: &str) -> std::io::Result<String> {
    let mut client = TcpStream::connect(server)?;
    client.set_read_timeout(Some(PATIENCE))?;
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    let mut client = client.take(HEAD_BYTES_MAX);
    let end = b"\r\n\r\n";
    while !answer.windows(end.len()).any(|it| it == end) {
        match client.read(&mut piece)? {
            0 => break,
            bytes => answer.extend_from_slice(&piece[..bytes]),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let mut out = format!("answer {}\n", status.trim_start_matches("HTTP/1.1 "));
    for line in lines.filter(|it| !it.starts_with("Connection:") && !it.starts_with("Date:")) {
        let _ = writeln!(out, "header {line}");
    }
    Ok(out)
}
