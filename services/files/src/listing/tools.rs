//! The forms of a listing: to filter it, to store files in it, to make a directory.
//!
//! Each works without a script: the filter is a query of the same address ([`View`]), the others
//! are taken by [`form`](crate::form). What the page's script adds is in `page.js`.

use std::fmt::Write;

use super::Entries;
use super::view::View;
use crate::form::{DIRECTORY, FILE, REPLACE};
use crate::limits::NAME_BYTES_MAX;
use crate::page::escape;

/// The form that filters; none for an empty directory.
pub(crate) fn write_filter(entries: &Entries, view: &View, page: &mut String) {
    if entries.total == 0 && !view.filter.is_set() {
        return;
    }
    let (text, column) = (escape(view.filter.text()), view.order.column.word());
    let _ = write!(
        page,
        "<form role=\"search\" id=\"filter\"><label>Filter <input type=\"search\" \
         name=\"filter\" value=\"{text}\" maxlength=\"{NAME_BYTES_MAX}\" autocomplete=\"off\">\
         </label><input type=\"hidden\" name=\"sort\" value=\"{column}\">"
    );
    if view.order.is_reversed {
        page.push_str("<input type=\"hidden\" name=\"order\" value=\"desc\">");
    }
    page.push_str("<button>Filter</button></form>\n");
}

/// The forms that write.
pub(crate) fn write_forms(page: &mut String) {
    const FORM: &str = "method=\"post\" enctype=\"multipart/form-data\" action=\"./\"";
    let _ = write!(
        page,
        "<form id=\"upload\" {FORM}><label>Files <input type=\"file\" name=\"{FILE}\" multiple \
         required></label><label><input type=\"checkbox\" name=\"{REPLACE}\" value=\"yes\"> \
         Replace</label><button>Store</button> <output id=\"told\"></output></form>\n\
         <form {FORM}><label>Directory <input type=\"text\" name=\"{DIRECTORY}\" \
         maxlength=\"{NAME_BYTES_MAX}\" autocomplete=\"off\" required></label>\
         <button>Make</button></form>\n"
    );
}
