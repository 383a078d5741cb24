//! What is known of the places for connections since the door was tended.

/// While it stays the same and is not full, nothing has to be closed, and accept stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Door {
    /// Connections that hold a descriptor.
    pub(super) open: usize,
    /// How many may, beside the files that are open.
    pub(super) beside_files: usize,
    /// Another connection finds a place.
    pub(super) has_room: bool,
}
