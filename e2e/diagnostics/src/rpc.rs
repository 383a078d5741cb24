//! Values that are no programs: `flatpath_rpc::Programs`.

use flatpath_rpc::Rpc;

struct Mount;

pub(crate) fn a_type_of_the_program() {
    let _ = Rpc::new(Mount);
}
