//! Conditions of a run drawn from its seed: what a driver and its limits may be, and deadlines that
//! no run reaches.

use std::time::Duration;

use flatpath::simulation::Conditions;
use flatpath::{DriverConfig, Limits, OperationMode};
use flatpath_driver::simulation::{Faults, Random};

pub(crate) fn conditions(seed: u64, dice: &mut Random, faults: Faults) -> Conditions {
    let long = Duration::from_secs(100_000);
    Conditions {
        faults,
        driver: DriverConfig {
            completion_entries: [4, 64, 4096][dice.below(3)],
            receive_buffers: [1, 4, 64][dice.below(3)],
            receive_buffer_bytes: [16, 256, 8192][dice.below(3)],
            ..DriverConfig::default()
        },
        limits: Limits {
            in_flight_max: [1, 4, 256][dice.below(3)],
            head_timeout: long,
            write_timeout: long,
            stall_timeout: long,
            drain_timeout: long,
            ..Limits::default()
        },
        accept: [OperationMode::Single, OperationMode::Multishot][dice.below(2)],
        ..Conditions::calm(seed)
    }
}
