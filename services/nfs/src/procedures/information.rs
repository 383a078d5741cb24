//! FSSTAT, FSINFO, PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use flatpath_rpc::xdr::Reader;

use crate::limits::{DATA_BYTES_MAX, DIRECTORY_BYTES_MAX, NAME_BYTES_MAX};
use crate::node::Node;
use crate::request::{Outcome, Request, read_handle};
use crate::status::Status;

/// Hard links, symbolic links, the same answers everywhere, times can be set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;

/// Sizes are best multiples of a page.
const MULTIPLE_BYTES: u32 = 4096;

/// FSINFO and PATHCONF need of the file only that it is there.
const NOTHING: fn(&Request<'_>, &Node) -> Result<(), Status> = |_, _| Ok(());

pub(super) fn system(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let ask = |_: &Request<'_>, node: &Node| Ok(rustix::fs::fstatvfs(&node.path)?);
    request.answer_about(handle, ask, |writer, found| {
        writer.u64(found.f_blocks.saturating_mul(found.f_frsize));
        writer.u64(found.f_bfree.saturating_mul(found.f_frsize));
        writer.u64(found.f_bavail.saturating_mul(found.f_frsize));
        writer.u64(found.f_files);
        writer.u64(found.f_ffree);
        writer.u64(found.f_favail);
        // Seconds for which this is not expected to change: unknown.
        writer.u32(0);
    })
}

pub(super) fn fixed(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let data = u32::try_from(DATA_BYTES_MAX).expect("a bound of ours fits a word");
    let directory = u32::try_from(DIRECTORY_BYTES_MAX).expect("a bound of ours fits a word");
    request.answer_about(handle, NOTHING, |writer, ()| {
        // Most, best and multiple: of READ, then of WRITE.
        for word in [data, data, MULTIPLE_BYTES, data, data, MULTIPLE_BYTES] {
            writer.u32(word);
        }
        // Best of READDIR.
        writer.u32(directory);
        writer.u64(i64::MAX.cast_unsigned());
        // Times are kept to the nanosecond.
        writer.u32(0);
        writer.u32(1);
        writer.u32(PROPERTIES);
    })
}

pub(super) fn path(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let links_max = request.state.export.links_max;
    let handle = read_handle(reader)?;
    let name = u32::try_from(NAME_BYTES_MAX).expect("a bound of ours fits a word");
    request.answer_about(handle, NOTHING, |writer, ()| {
        writer.u32(links_max);
        writer.u32(name);
        // Longer names are refused; only root gives files away; case matters and is kept.
        for answer in [true, true, false, true] {
            writer.boolean(answer);
        }
    })
}
