//! The directories that are served by now, for `/readyz`: one that is gone from its path is a
//! reason to send clients elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use flatpath::lock::Lock;
use flatpath_nfs::Exports;

use crate::listener::Listener;
use crate::nfs_exports::Served;
use crate::sites;

/// Those of all listeners. A clone is the same.
#[derive(Clone, Default)]
pub(crate) struct Roots(Arc<Lock<Vec<PathBuf>>>);

impl Roots {
    /// Those of these listeners for HTTP, from now on.
    pub(crate) fn set(&self, listeners: &[Listener]) {
        let over_http = listeners.iter().filter(|it| it.serves_over_http());
        let served = over_http.flat_map(Listener::directories);
        let paths = served.filter_map(|site| {
            let path = sites::directory(&site.settings);
            std::path::absolute(path).ok()
        });
        *self.0.lock() = paths.collect();
    }

    /// Those that are gone, each with the reason, and exports of NFS whose directory was removed.
    pub(crate) fn missing(&self, exports: &[Served]) -> impl Fn() -> Vec<String> + use<> {
        let (roots, exports) = (self.clone(), exports.iter());
        let exports: Vec<Exports> = exports.map(|it| it.exports.clone()).collect();
        move || {
            let paths = roots.0.lock().clone();
            let gone = flatpath_files::missing_directories().into_iter();
            let gone = gone.filter(|(path, _)| paths.contains(path));
            let over_http = gone.map(|(path, cause)| {
                let path = path.display();
                format!("the directory {path} is gone: {cause}")
            });
            let removed = exports.iter().flat_map(Exports::gone);
            let over_nfs = removed.map(|path| {
                let path = path.display();
                format!("the directory of the NFS export {path} was removed")
            });
            over_http.chain(over_nfs).collect()
        }
    }
}
