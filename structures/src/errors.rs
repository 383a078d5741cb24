//! Words for errors: what `#[derive(thiserror::Error)]` would write, without a derive.
//!
//! It is here because each layer has errors, and this is the lowest that all of them use. A derive
//! would build six crates for them.

use std::fmt;

/// `write!` for each case of [`impl_error`](crate::impl_error): inlined there, it would be a
/// hundred lines for the compiler's back end each time.
#[cold]
#[inline(never)]
#[doc(hidden)]
pub fn write(formatter: &mut fmt::Formatter<'_>, words: fmt::Arguments<'_>) -> fmt::Result {
    formatter.write_fmt(words)
}

/// Makes a type an error: for each case the words of its `Display`, as in `format!`, with their
/// values in parentheses where a name is not enough; and after `source` the cases that have a
/// cause.
///
/// ```
/// use std::error::Error;
/// use std::{fs, io};
///
/// #[derive(Debug)]
/// enum ReadError {
///     TooLong(u64),
///     File { name: String, cause: io::Error },
/// }
///
/// flatpath_structures::impl_error! {
///     ReadError {
///         Self::TooLong(bytes) => "{bytes} bytes are too many",
///         Self::File { name, cause } => "cannot read {name}: {cause}",
///     }
///     source { Self::File { cause, .. } => cause }
/// }
///
/// let cause = fs::read("/missing/file").unwrap_err();
/// let error = ReadError::File { name: "file".into(), cause };
/// assert!(error.to_string().starts_with("cannot read file: No such file"));
/// assert!(error.source().is_some());
/// let error = ReadError::TooLong(9);
/// assert_eq!(error.to_string(), "9 bytes are too many");
/// assert!(error.source().is_none());
/// ```
#[macro_export]
macro_rules! impl_error {
    (
        $error:ident $(<$parameter:ident>)? {
            $($case:pat => $words:literal $(($($value:expr),+))?,)+
        }
        $(source { $caused:pat => $cause:expr })?
    ) => {
        impl $(<$parameter: ::std::fmt::Display>)? ::std::fmt::Display for $error $(<$parameter>)? {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $($case => $crate::errors::write(
                        formatter,
                        ::std::format_args!($words $(, $($value),+)?),
                    ),)+
                }
            }
        }

        impl $(<$parameter: ::std::fmt::Debug + ::std::fmt::Display>)? ::std::error::Error
            for $error $(<$parameter>)?
        {
            $(fn source(&self) -> Option<&(dyn ::std::error::Error + 'static)> {
                match self {
                    $caused => Some($cause),
                    _ => None,
                }
            })?
        }
    };
}

/// `Debug` for types whose insides are of no use to a reader: their name.
///
/// ```
/// struct Engine<T>(T);
///
/// flatpath_structures::opaque_debug! {
///     impl[T] Engine<T> as "Engine";
/// }
///
/// assert_eq!(format!("{:?}", Engine(7)), "Engine { .. }");
/// ```
#[macro_export]
macro_rules! opaque_debug {
    ($(impl[$($parameters:tt)*] $type:ty as $name:literal;)+) => {
        $(
            impl<$($parameters)*> ::std::fmt::Debug for $type {
                fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    formatter.debug_struct($name).finish_non_exhaustive()
                }
            }
        )+
    };
}
