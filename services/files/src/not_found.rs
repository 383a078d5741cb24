//! What answers a request for a name that nothing has.

/// What answers a GET or HEAD of a name that nothing has, beneath the directory.
///
/// The paths begin in the directory: `404.html`, `app/index.html`. Where there is no such file
/// either, the answer is as with [`NotFound::Refuse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotFound {
    /// 404, with a page that says so.
    #[default]
    Refuse,
    /// 404, with this file as the page. It has no validators: they would be taken for those of the
    /// name that was asked for.
    Page(String),
    /// 200, with this file: the page of an application that looks at the address itself
    /// (a single-page application). Every mistaken address is answered so, of scripts and images
    /// too.
    Serve(String),
}
