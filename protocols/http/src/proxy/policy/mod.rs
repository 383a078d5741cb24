//! What a proxy decides, as values: which server has a request, whether one is left out, whether a
//! request is sent again, who waits. No socket, no clock, no lock is in here: times are handed in.
//!
//! | file      | decides                                                            |
//! |-----------|--------------------------------------------------------------------|
//! | `choice`  | which of the servers that may have a request gets it               |
//! | `health`  | which may: failures, pauses that grow, the slow start after one    |
//! | `retry`   | whether a request that failed is sent again                        |
//! | `waiting` | who waits for room, in the order in which they came                |
//! | `idle`    | which idle connection is taken                                     |
//! | `group`   | all of it for one upstream: what a request gets, and what is freed |

pub(crate) mod choice;
pub(crate) mod group;
pub(crate) mod health;
pub(crate) mod idle;
pub(crate) mod retry;
pub(crate) mod waiting;
