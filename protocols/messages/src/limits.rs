//! Every bound of messages in one place.

/// The longest message that can be configured, in bytes: 1 GiB.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// The longest message unless something else is configured, in bytes.
pub const MESSAGE_BYTES_DEFAULT: u32 = 16 << 20;

/// Returns of what it does not hold after which a consumer is detached. An honest one makes none;
/// a faulty one should be seen in the statistics before it is gone.
pub const REFUSALS_MAX: u32 = 1024;

/// Bytes of a doorbell that one read takes: a page, which is more than an honest peer has waiting.
pub const DOORBELL_BYTES_MAX: usize = 4096;
