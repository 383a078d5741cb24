//! Values that are used once, on their way in the extensions of a request or a response, which have
//! clones.

use std::sync::Arc;

use flatpath::lock::Lock;
use http::Extensions;

/// See the module.
pub(crate) struct Carried<T>(Arc<Lock<Option<T>>>);

impl<T> Clone for Carried<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> Carried<T> {
    /// Puts a value into extensions.
    pub(crate) fn put(extensions: &mut Extensions, value: T) {
        extensions.insert(Self(Arc::new(Lock::new(Some(value)))));
    }

    /// Takes the value of this type out again, if it is there.
    pub(crate) fn take(extensions: &mut Extensions) -> Option<T> {
        let Self(carried) = extensions.remove()?;
        let mut value = carried.lock();
        value.take()
    }
}
