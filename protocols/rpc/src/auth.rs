//! Who calls: AUTH_NONE and AUTH_SYS (RFC 5531 section 8 and appendix A); and AUTH_TLS, with which
//! nobody calls: it asks for TLS (RFC 9289 section 4.1).
//!
//! A claim, not a proof: AUTH_SYS carries numbers that the client's machine vouches for.
//!
//! Not here: RPCSEC_GSS, AUTH_SHORT (never handed out, so never accepted), AUTH_DH.

use crate::limits::{AUTH_BYTES_MAX, GROUPS_MAX, MACHINE_NAME_BYTES_MAX};
use crate::xdr::{Malformed, Reader};

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
const AUTH_TLS: u32 = 7;

/// Why a caller is not accepted (RFC 5531 section 9, `auth_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthStatus {
    /// The credential cannot be read, or is of a kind not spoken here.
    BadCredential = 1,
    /// The verifier is not the empty one.
    BadVerifier = 3,
    /// Not enough for what was asked: the address or the port is not allowed, or TLS is required.
    TooWeak = 5,
}

/// What is no credential that a call can be made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCaller {
    /// It is not accepted.
    Refused(AuthStatus),
    /// It asks for TLS.
    AsksForTls,
}

/// What the caller claims to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// No user in particular.
    #[default]
    None,
    /// A user with groups, as the client's machine has them.
    System {
        /// User.
        user: u32,
        /// First group.
        group: u32,
        /// Further groups.
        groups: Groups,
    },
}

/// At most sixteen groups, without an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    items: [u32; GROUPS_MAX],
    count: u8,
}

impl Groups {
    /// The groups of `items`; those beyond the sixteenth are dropped.
    pub fn new(items: impl IntoIterator<Item = u32>) -> Groups {
        let mut groups = Groups::default();
        for (place, item) in groups.items.iter_mut().zip(items) {
            *place = item;
            groups.count += 1;
        }
        groups
    }

    /// The groups in the order of the call.
    pub fn as_slice(&self) -> &[u32] {
        &self.items[..usize::from(self.count)]
    }
}

/// Reads the credential and the verifier of a call.
///
/// # Errors
/// The outer one when the call itself cannot be read, the inner one when the caller is not
/// accepted.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Result<Credential, NoCaller>, Malformed> {
    let flavor = reader.u32()?;
    let body = reader.opaque(AUTH_BYTES_MAX)?;
    let verifier_flavor = reader.u32()?;
    let verifier = reader.opaque(AUTH_BYTES_MAX)?;
    let credential = match flavor {
        AUTH_NONE => Ok(Credential::None),
        AUTH_SYS => read_system(body).map_err(|Malformed| BAD_CREDENTIAL),
        AUTH_TLS if body.is_empty() => Err(NoCaller::AsksForTls),
        _ => Err(BAD_CREDENTIAL),
    };
    let is_read = !matches!(credential, Err(NoCaller::Refused(_)));
    if is_read && (verifier_flavor != AUTH_NONE || !verifier.is_empty()) {
        return Ok(Err(NoCaller::Refused(AuthStatus::BadVerifier)));
    }
    Ok(credential)
}

const BAD_CREDENTIAL: NoCaller = NoCaller::Refused(AuthStatus::BadCredential);

fn read_system(body: &[u8]) -> Result<Credential, Malformed> {
    let mut reader = Reader::new(body);
    let _stamp = reader.u32()?;
    let _machine = reader.opaque(MACHINE_NAME_BYTES_MAX)?;
    let user = reader.u32()?;
    let group = reader.u32()?;
    let count = reader.length(GROUPS_MAX)?;
    let mut groups = Groups::default();
    for place in &mut groups.items[..count] {
        *place = reader.u32()?;
        groups.count += 1;
    }
    reader.end()?;
    Ok(Credential::System {
        user,
        group,
        groups,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Writer;

    fn system(machine: &[u8], groups: &[u32]) -> Vec<u8> {
        let mut room = [0; 512];
        let mut writer = Writer::new(&mut room);
        writer.u32(99);
        writer.opaque(machine);
        writer.u32(1000);
        writer.u32(100);
        writer.u32(u32::try_from(groups.len()).expect("few"));
        for group in groups {
            writer.u32(*group);
        }
        let written = writer.written();
        room[..written].to_vec()
    }

    fn call(flavor: u32, body: &[u8], verifier: (u32, &[u8])) -> Vec<u8> {
        let mut room = [0; 1200];
        let mut writer = Writer::new(&mut room);
        writer.u32(flavor);
        writer.opaque(body);
        writer.u32(verifier.0);
        writer.opaque(verifier.1);
        let written = writer.written();
        room[..written].to_vec()
    }

    type Read = Result<Result<Credential, NoCaller>, Malformed>;

    fn read_call(bytes: &[u8]) -> Read {
        read(&mut Reader::new(bytes))
    }

    fn refused(status: AuthStatus) -> Read {
        Ok(Err(NoCaller::Refused(status)))
    }

    #[test]
    fn sixteen_groups_are_read_and_seventeen_are_refused() {
        let groups: Vec<u32> = (1..=16).collect();
        let body = system(b"client", &groups);
        let read = read_call(&call(1, &body, (0, b"")));
        let Ok(Ok(Credential::System {
            user: 1000,
            group: 100,
            groups: found,
        })) = read
        else {
            panic!("{read:?}");
        };
        assert_eq!(found.as_slice(), groups);
        let body = system(b"client", &(1..=17).collect::<Vec<u32>>());
        assert_eq!(
            read_call(&call(1, &body, (0, b""))),
            refused(AuthStatus::BadCredential)
        );
    }

    #[test]
    fn a_machine_name_beyond_its_limit_is_refused() {
        let body = system(&[b'a'; 255], &[]);
        assert!(matches!(read_call(&call(1, &body, (0, b""))), Ok(Ok(_))));
        let body = system(&[b'a'; 256], &[]);
        assert_eq!(
            read_call(&call(1, &body, (0, b""))),
            refused(AuthStatus::BadCredential)
        );
    }

    #[test]
    fn unknown_flavors_and_verifiers_are_refused_by_name() {
        assert_eq!(read_call(&call(0, b"", (0, b""))), Ok(Ok(Credential::None)));
        assert_eq!(
            read_call(&call(6, b"", (0, b""))),
            refused(AuthStatus::BadCredential)
        );
        assert_eq!(
            read_call(&call(0, b"", (1, b""))),
            refused(AuthStatus::BadVerifier)
        );
        assert_eq!(
            read_call(&call(0, b"", (0, b"x"))),
            refused(AuthStatus::BadVerifier)
        );
    }

    #[test]
    fn one_that_asks_for_tls_says_nothing_else() {
        let asks = Ok(Err(NoCaller::AsksForTls));
        assert_eq!(read_call(&call(7, b"", (0, b""))), asks);
        assert_eq!(
            read_call(&call(7, b"x", (0, b""))),
            refused(AuthStatus::BadCredential)
        );
        for verifier in [(0, &b"x"[..]), (7, b"")] {
            assert_eq!(
                read_call(&call(7, b"", verifier)),
                refused(AuthStatus::BadVerifier)
            );
        }
    }

    #[test]
    fn a_body_beyond_four_hundred_bytes_is_malformed() {
        assert_eq!(read_call(&call(0, &[0; 401], (0, b""))), Err(Malformed));
        assert!(read_call(&call(0, &[0; 400], (0, b""))).is_ok());
    }

    #[test]
    fn every_cut_of_a_credential_is_refused() {
        let body = system(b"client", &[1, 2, 3]);
        for end in 0..body.len() {
            let read = read_call(&call(1, &body[..end], (0, b"")));
            assert_eq!(read, refused(AuthStatus::BadCredential), "cut at {end}");
        }
    }
}
