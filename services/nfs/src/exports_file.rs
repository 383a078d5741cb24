//! The format of `/etc/exports` (exports(5) of nfs-utils): text in, exports out.
//!
//! ```text
//! /srv/www   192.0.2.0/24(rw,no_root_squash)  2001:db8::/32(ro)   # a comment
//! "/srv/my files" -ro,insecure  build.example.org  *(all_squash,anonuid=99)
//! /srv/old\040files \
//!     10.0.0.7(rw)
//! ```
//!
//! A word that is not understood, or that says something this server does not do, is an error with
//! its line and column ([`BadExports`]). What has no effect here and takes no protection away is
//! accepted; where an administrator may expect an effect, a notice says so. Where nfs-utils warns
//! and exports to everybody (a line without clients, options behind a blank), this is an error.
//!
//! Does not: read files, look names up, or look at directories. No file is too odd for it: any
//! bytes are exports or an error (`fuzz`, target `nfs_exports`).

mod lexer;
mod options;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStringExt;

use flatpath::Subnet;

use crate::limits::{EXPORTS_MAX, MOUNT_PATH_BYTES_MAX, RULES_MAX};
use crate::rights::{Access, ClientRule, Clients, ExportOptions, NOBODY, Rights, Squash};
use lexer::{Lexer, Token, Word};
use options::{Notices, read_options};

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadExports {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what to write instead.
    pub why: String,
}

impl std::fmt::Display for BadExports {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}: {}", self.line, self.column, self.why)
    }
}

impl std::error::Error for BadExports {}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportsFile {
    /// One for each line; several may be of one directory.
    pub exports: Vec<ExportOptions>,
    /// What is accepted and has no effect, with its place: for the log.
    pub notices: Vec<String>,
}

/// The rights of a client whose options do not say more: as exports(5) has them, so only from ports
/// below 1024.
const DEFAULT: Rights = Rights {
    access: Access::ReadOnly,
    squash: Squash::Root,
    anonymous_user: NOBODY,
    anonymous_group: NOBODY,
    secure_ports: true,
    tls_required: false,
};

impl ExportsFile {
    /// The option that a word means, however its parts are joined: `all_squash` for `all-squash`,
    /// which is no option. `None`: it is none in any way.
    pub fn option_named(word: &str) -> Option<String> {
        options::named(word)
    }

    /// Reads the text of a file with this name, which the places of exports and notices begin with.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &[u8], name: &str) -> Result<ExportsFile, BadExports> {
        let mut lexer = Lexer::new(text);
        let mut notices = Notices::default();
        let mut exports: Vec<ExportOptions> = Vec::new();
        loop {
            match lexer.next()? {
                Token::End => break,
                Token::EndOfLine => {}
                Token::Word(path) if exports.len() == EXPORTS_MAX => {
                    let why = format!("a server has at most {EXPORTS_MAX} exports");
                    return Err(path.error(0, why));
                }
                Token::Word(path) => {
                    let export = read_line(&mut lexer, &path, name, &mut notices)?;
                    exports.push(export);
                }
            }
        }
        let notices = notices.into_lines(name);
        Ok(ExportsFile { exports, notices })
    }

    /// The rules of clients that are written as in a line of such a file, each in a text of its
    /// own, such as `10.0.0.0/8(rw)`, with default options like those behind a dash. Places and
    /// notices are those of `place`.
    ///
    /// # Errors
    /// What is wrong with a client or an option.
    pub fn clients(
        options: &str,
        clients: &[&str],
        place: &str,
    ) -> Result<(Vec<ClientRule>, Vec<String>), String> {
        let mut notices = Notices::default();
        let mut defaults = DEFAULT;
        read_options(&Word::of(options), 0, &mut defaults, &mut notices).map_err(|it| it.why)?;
        let rules = clients.iter().map(|client| {
            if client.contains(char::is_whitespace) {
                return Err(format!("{client:?}: no blanks are allowed in a client"));
            }
            let read = read_client(&Word::of(client), defaults, place, &mut notices);
            read.map_err(|it| format!("{client:?}: {}", it.why))
        });
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        notices.order_of(&rules);
        Ok((rules, notices.into_lines(place)))
    }
}

/// The rest of a line that begins with this path.
fn read_line(
    lexer: &mut Lexer<'_>,
    path: &Word,
    name: &str,
    notices: &mut Notices,
) -> Result<ExportOptions, BadExports> {
    if path.bytes.first() != Some(&b'/') {
        let why = "a line begins with the path of a directory, from / on";
        return Err(path.error(0, why));
    }
    if path.bytes.len() > MOUNT_PATH_BYTES_MAX {
        let why = format!("the path is longer than {MOUNT_PATH_BYTES_MAX} bytes");
        return Err(path.error(0, why));
    }
    let mut defaults = DEFAULT;
    let mut rules = Vec::new();
    while let Token::Word(word) = lexer.next()? {
        if word.bytes[0] == b'-' {
            read_options(&word, 1, &mut defaults, notices)?;
            continue;
        }
        if rules.len() == RULES_MAX {
            let why = format!("an export has at most {RULES_MAX} clients; name networks");
            return Err(word.error(0, why));
        }
        let place = format!("{name}:{}", word.place(0));
        let place = place.trim_end_matches(':');
        rules.push(read_client(&word, defaults, place, notices)?);
    }
    if rules.is_empty() {
        let why = "no client is named: write *, with options such as *(ro), if everybody is meant";
        return Err(path.error(0, why));
    }
    notices.order_of(&rules);
    let place = format!("{name}:{}", path.place(0));
    Ok(ExportOptions {
        directory: OsString::from_vec(path.bytes.clone()).into(),
        rules,
        place: place.trim_end_matches(':').into(),
    })
}

/// `CLIENT` or `CLIENT(OPTIONS)`.
fn read_client(
    word: &Word,
    defaults: Rights,
    place: &str,
    notices: &mut Notices,
) -> Result<ClientRule, BadExports> {
    let open = word.bytes.iter().position(|byte| *byte == b'(');
    let name = &word.bytes[..open.unwrap_or(word.bytes.len())];
    let clients = read_name(name).map_err(|why| word.error(0, why))?;
    notices.bits_of(&clients, name, word);
    let mut rights = defaults;
    if let Some(open) = open {
        let end = word.bytes.len() - 1;
        let close = word.bytes.iter().position(|byte| *byte == b')');
        if close != Some(end) {
            let why = "options are written (ro,sync), without blanks, and the client ends with )";
            return Err(word.error(open, why));
        }
        read_options(&word.until(end), open + 1, &mut rights, notices)?;
    }
    let place = place.to_owned();
    Ok(ClientRule {
        clients,
        rights,
        place,
    })
}

/// The clients that a name stands for.
fn read_name(name: &[u8]) -> Result<Clients, String> {
    let wrong = |why: &str| Err(why.to_owned());
    let Some(name) = std::str::from_utf8(name)
        .ok()
        .filter(|name| name.is_ascii())
    else {
        return wrong("the name of a client is ASCII");
    };
    if name.is_empty() {
        return wrong(
            "options without a client: take the blank before ( away, or write *(...) if everybody \
             is meant",
        );
    }
    if name == "*" {
        return Ok(Clients::Any);
    }
    if name.starts_with('@') {
        return wrong("netgroups are not supported: write the hosts or their network");
    }
    if name.starts_with("gss/") {
        return wrong("Kerberos is not offered: nobody would be let in by it");
    }
    let is_in_brackets = name.starts_with('[') && name.contains(':');
    if is_in_brackets {
        return wrong("write an IPv6 address without brackets");
    }
    if name.contains(['*', '?', '[']) {
        return wrong(
            "wildcards in names are not supported: they would trust what the owner of an address \
             says of its name; write the network",
        );
    }
    if let Some((address, mask)) = name.split_once('/') {
        let network = match mask.parse::<IpAddr>() {
            Ok(mask) => format!("{address}/{}", length_of(mask)?),
            Err(_) => name.to_owned(),
        };
        if let Some(network) = Subnet::around(&network) {
            return Ok(Clients::Network(network));
        }
        let network = network.parse::<Subnet>();
        return network
            .map(Clients::Network)
            .map_err(|error| error.to_string());
    }
    if let Ok(network) = name.parse::<Subnet>() {
        return Ok(Clients::Network(network));
    }
    match is_host(name) {
        true => Ok(Clients::Host(name.to_ascii_lowercase())),
        false => Err(format!("{name:?} is no address, network or name of a host")),
    }
}

/// The number of bits of a mask that is written as an address.
fn length_of(mask: IpAddr) -> Result<u32, String> {
    let (bits, most) = match mask {
        IpAddr::V4(mask) => (u128::from(mask.to_bits()) << 96, 32),
        IpAddr::V6(mask) => (Ipv6Addr::to_bits(mask), 128),
    };
    let length = bits.leading_ones();
    match bits.count_ones() == length {
        true => Ok(length.min(most)),
        false => Err(format!("the mask {mask} has holes: write ADDRESS/BITS")),
    }
}

/// Whether this may be the name of a host. One whose last part is a number is none: the C library
/// would read an address in it that nobody has written, 10.0.0 as 10.0.0.0.
fn is_host(name: &str) -> bool {
    let labels: Vec<&str> = name.strip_suffix('.').unwrap_or(name).split('.').collect();
    let is_label = |label: &&str| {
        let mut bytes = label.bytes();
        !label.is_empty()
            && !label.starts_with('-')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let is_number = |label: &str| {
        label.bytes().all(|byte| byte.is_ascii_digit())
            || label.starts_with("0x")
            || label.starts_with("0X")
    };
    name.len() <= 253
        && labels.iter().all(is_label)
        && !labels.last().is_none_or(|it| is_number(it))
}

#[cfg(test)]
mod tests;
