//! The status page and the metrics, as a server shows them: one program, so that it is linked once.
mod get;
mod page;
mod prompt;
mod stuck;
