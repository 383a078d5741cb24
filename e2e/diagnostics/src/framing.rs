//! Values that are no framings, and that do not answer messages: `flatpath::framing`.

use flatpath::framing::{Framed, Lines, Next};

struct Commands;

pub(crate) fn a_number_as_a_framing() {
    let _ = Framed::pooled("numbers", 4u32, |_, _| Next::Message);
}

pub(crate) fn a_type_as_a_handler() {
    let _ = Framed::new("commands", Lines::new(100), Commands);
}
