//! Target `nfs_exports`: the text of a file in the format of `/etc/exports`.
//!
//! Holds of every input
//! - It is exports or an error, whose place lies in it.
//! - What follows the line of an error changes nothing of it.
//! - Exports that are written anew, each path in octal numbers and each option in words, mean the
//!   same; so an option that is not understood is never left out.
//! - No export is without a client, and no path without a slash at its front.

use std::os::unix::ffi::OsStrExt;

use flatpath_nfs::limits::{EXPORTS_MAX, RULES_MAX};
use flatpath_nfs::{Access, ClientRule, Clients, ExportOptions, ExportsFile, Rights, Squash};

pub(crate) fn run(data: &[u8]) {
    match ExportsFile::parse(data, "exports") {
        Ok(file) => check(&file),
        Err(error) => {
            let lines: Vec<&[u8]> = data.split_inclusive(|byte| *byte == b'\n').collect();
            assert!(error.line >= 1 && error.line <= lines.len() + 1, "{error}");
            let line = lines.get(error.line - 1).copied().unwrap_or_default();
            assert!(
                error.column >= 1 && error.column <= line.len() + 1,
                "{error}"
            );
            let so_far = lines[..error.line.min(lines.len())].concat();
            let again = ExportsFile::parse(&so_far, "exports");
            assert_eq!(again, Err(error), "what follows counts");
        }
    }
}

/// What an export means, without its places.
type Meaning = (Vec<u8>, Vec<(Clients, Rights)>);

fn meaning(exports: &[ExportOptions]) -> Vec<Meaning> {
    let exports = exports.iter().map(|export| {
        let rules = export.rules.iter();
        let rules = rules.map(|rule| (rule.clients.clone(), rule.rights));
        let path = export.directory.as_os_str().as_bytes();
        (path.to_vec(), rules.collect())
    });
    exports.collect()
}

fn check(file: &ExportsFile) {
    assert!(file.exports.len() <= EXPORTS_MAX);
    let mut text = String::new();
    for export in &file.exports {
        let path = export.directory.as_os_str().as_bytes();
        assert_eq!(path[0], b'/');
        assert!((1..=RULES_MAX).contains(&export.rules.len()));
        // The first byte in the open: a line is found by it.
        text.push('/');
        for byte in &path[1..] {
            text += &format!("\\{byte:03o}");
        }
        for rule in &export.rules {
            text += &format!(" {}", written(rule));
        }
        text.push('\n');
    }
    let again = ExportsFile::parse(text.as_bytes(), "exports");
    let again = again.unwrap_or_else(|error| panic!("{error}:\n{text}"));
    assert_eq!(meaning(&again.exports), meaning(&file.exports), "{text}");
}

fn written(rule: &ClientRule) -> String {
    let rights = rule.rights;
    let access = match rights.access {
        Access::ReadWrite => "rw",
        _ => "ro",
    };
    let squash = match rights.squash {
        Squash::All => "all_squash",
        Squash::Anonymous => "no_root_squash",
        _ => "root_squash",
    };
    let ports = match rights.secure_ports {
        true => "secure",
        false => "insecure",
    };
    let wire = match rights.tls_required {
        true => "xprtsec=tls",
        false => "xprtsec=none",
    };
    format!(
        "{}({access},{squash},{ports},{wire},anonuid={},anongid={})",
        rule.clients, rights.anonymous_user, rights.anonymous_group
    )
}
