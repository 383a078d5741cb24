//! Why a file is not served.

use http::StatusCode;
use rustix::io::Errno;

/// Why a request gets no file. Each case has one status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesError {
    /// The target is no path at all: bad escapes, NUL, dot segments. 400.
    MalformedTarget,
    /// Nothing that is served has this name. Also for hidden names, of links that lead out of
    /// the root, of FIFOs, sockets and devices: whether they exist is not revealed. 404.
    NotFound,
    /// A name, or the whole path, is longer than any can be. 404, as nothing has it; of a write
    /// 414.
    TooLong,
    /// A link leads to another mount, or out of the root; only where the reach excludes it.
    /// 404.
    OtherMount,
    /// The kernel would have to wait for it, or for its name; only where the reach is what is at
    /// hand. A worker answers.
    NotAtHand,
    /// The file is there, and this process may not read it. 403.
    Forbidden,
    /// It belongs to another service, the one with this number, which has not been asked yet.
    Unasked(u16),
    /// That one has refused the request: with the status of its own.
    Refused(u16),
    /// The same, for now.
    Delayed(u16),
    /// No descriptor or no memory is left for now. 503.
    Overloaded,
    /// The file changed in the middle of an answer that had promised something else. 500 when
    /// nothing was sent yet.
    Changed,
    /// The kernel could not read it. 500.
    Unreadable(Errno),
}

flatpath::impl_error! {
    FilesError {
        Self::MalformedTarget => "the request's target is not a path",
        Self::NotFound => "no such file",
        Self::TooLong => "the name is too long",
        Self::OtherMount => "a link leads to another mount",
        Self::NotAtHand => "finding or reading it would wait",
        Self::Forbidden => "this process may not read the file",
        Self::Unasked(_) => "it belongs to another service",
        Self::Refused(_) => "the service that it belongs to refuses the request",
        Self::Delayed(_) => "the service that it belongs to refuses the request for now",
        Self::Overloaded => "no descriptor or memory is left",
        Self::Changed => "the file changed while it was read",
        Self::Unreadable(cause) => "the file cannot be read: {cause}",
    }
}

impl FilesError {
    /// Whether an answer has to be made again, with another reach or after an owner was asked: no
    /// step may take it for a file that is not there.
    pub(crate) fn is_to_continue(self) -> bool {
        matches!(self, Self::OtherMount | Self::NotAtHand | Self::Unasked(_))
    }

    /// The same within a listing or an archive, which leave out what is refused, but wait for what
    /// is refused for now.
    pub(crate) fn stops_a_list(self) -> bool {
        matches!(self, Self::OtherMount | Self::Unasked(_) | Self::Delayed(_))
    }

    /// Whether the service that the file belongs to decides what is answered.
    pub(crate) fn is_of_owner(self) -> bool {
        matches!(self, Self::Unasked(_) | Self::Refused(_) | Self::Delayed(_))
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::MalformedTarget => StatusCode::BAD_REQUEST,
            Self::NotFound | Self::OtherMount | Self::TooLong => StatusCode::NOT_FOUND,
            Self::Forbidden | Self::Refused(_) => StatusCode::FORBIDDEN,
            Self::Overloaded | Self::NotAtHand | Self::Unasked(_) | Self::Delayed(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Changed | Self::Unreadable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<Errno> for FilesError {
    fn from(errno: Errno) -> Self {
        match errno {
            // XDEV: the path leads out of the root. NXIO: a socket, or a device without a driver.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::NAMETOOLONG
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NXIO
            | Errno::NODEV
            | Errno::INVAL
            | Errno::ILSEQ => Self::NotFound,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Self::Overloaded,
            other => Self::Unreadable(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_outside_looks_like_what_is_not_there() {
        assert_eq!(
            FilesError::from(Errno::XDEV),
            FilesError::from(Errno::NOENT)
        );
        assert_eq!(
            FilesError::from(Errno::LOOP).status(),
            StatusCode::NOT_FOUND
        );
    }

    #[test]
    fn running_out_of_descriptors_is_a_503() {
        assert_eq!(
            FilesError::from(Errno::MFILE).status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(
            FilesError::from(Errno::IO).status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
}
