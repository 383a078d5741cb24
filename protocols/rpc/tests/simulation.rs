//! Replies on the simulated driver: a client that reads none gets few of its calls executed.

use flatpath::Limits;
use flatpath::memory::PoolHandle;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_rpc::limits::{CALLS_MAX, REPLY_HEAD_BYTES};
use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{Arguments, Call, CallOutcome, Programs, Reply, Route, Rpc};

/// Data of each reply, in bytes.
const DATA_BYTES: usize = 256 * 1024;
/// A reply as it is sent: a record marker, the head and the data.
const SENT_BYTES: usize = 4 + 24 + DATA_BYTES;

/// Every call reads [`DATA_BYTES`], on a worker.
struct Reads;

impl Programs for Reads {
    fn name(&self) -> &'static str {
        "reads"
    }

    fn route(&self, _: &Call) -> Route {
        Route::Pooled
    }

    fn reply_bytes_max(&self, _: &Call, _: Arguments<'_>) -> usize {
        REPLY_HEAD_BYTES + DATA_BYTES
    }

    fn inline(&self, _: &Call, _: Arguments<'_>, _: &mut Writer<'_>) -> CallOutcome {
        CallOutcome::SystemError
    }

    fn pooled(
        &self,
        _: &Call,
        _: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let room = reply.data(0, DATA_BYTES, pool).expect("room");
        assert_eq!(
            room.iter().map(|slice| slice.len()).sum::<usize>(),
            DATA_BYTES
        );
        reply.commit(0, DATA_BYTES, |_| ());
        CallOutcome::Results
    }
}

/// A call without arguments (RFC 5531, section 9), in a record of its own.
fn call(xid: u32) -> Vec<u8> {
    let words = [xid, 0, 2, 1, 1, 1, 0, 0, 0, 0];
    let marker = 1 << 31 | u32::try_from(4 * words.len()).expect("short");
    let words = [marker].into_iter().chain(words);
    words.flat_map(u32::to_be_bytes).collect()
}

#[test]
fn sim_calls_wait_while_replies_are_not_read() {
    let mut conditions = Conditions::calm(7);
    conditions.limits = Limits {
        buffer_bytes_max: 256 << 20,
        ..Limits::default()
    };
    let unsent_max = conditions.limits.unsent_bytes_max();
    let mut server = SimulatedServer::new(conditions, Rpc::new(Reads));
    let client = server.connect();
    server.world().set_window_bytes(1);
    let calls: Vec<u8> = (0..CALLS_MAX).flat_map(call).collect();
    client.write(&calls);
    (0..200).for_each(|_| server.turn());
    let executed = usize::try_from(server.statistics().dispatched).expect("few");
    assert!(executed > 0, "the first replies are on their way");
    assert!(
        executed * DATA_BYTES <= unsent_max,
        "{executed} replies of {DATA_BYTES} bytes are more than {unsent_max}"
    );

    // All of them are executed when the client reads.
    server.world().set_window_bytes(1 << 20);
    let mut read_bytes = 0;
    for _ in 0..10_000 {
        server.turn();
        read_bytes += client.read().len();
        if read_bytes == CALLS_MAX as usize * SENT_BYTES {
            return;
        }
    }
    panic!("{read_bytes} bytes of replies came");
}
