//! What a server is asked for, beside what this machine offers.
//!
//! Asked for is what the options and a configuration say, as `serve` would read them, and what
//! every server needs. What of it this machine does not offer is a mismatch: `serve` would not
//! start, would do with less, or would be killed. What it finds by itself, such as epoll where
//! io_uring is refused, is none.

use std::path::PathBuf;

use clap::builder::Resettable;
use clap::{Arg, ArgMatches, value_parser};
use flatpath::DriverChoice;
use flatpath::limits::{DESCRIPTORS_MIN, DESCRIPTORS_RESERVED};

use super::limits::MachineLimits;
use crate::config::Configuration;
use crate::control_group;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::listeners;
use crate::memory::machine_bytes;
use crate::reach;
use crate::serve::demands;
use crate::settings::{Driver, Setting, Settings};
use crate::tls;
use crate::units::size_text;

/// The options of `serve` that are compared, each with its help here, or that of `serve`.
const OPTIONS: [(&str, Option<&str>); 7] = [
    ("driver", None),
    ("max-connections", None),
    ("memory", None),
    (
        "tls-cert",
        Some("Report on this certificate too; may be repeated"),
    ),
    ("tls-key", Some("The key of the certificate, as for serve")),
    (
        "tls-client-ca",
        Some("Report on these authorities of clients too"),
    ),
    (
        "tls-client-crl",
        Some("What they have revoked, as for serve"),
    ),
];

/// The arguments that say what is asked for.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    let config = Arg::new("config").long("config").value_name("FILE");
    let config = config
        .value_parser(value_parser!(PathBuf))
        .help("Compare with the settings of this file, too, as for serve");
    let options = OPTIONS.iter().map(|(name, help)| {
        let setting = Setting::named(name).expect("serve has it");
        let argument = setting.argument().help_heading(Resettable::Reset);
        let argument = argument.hide_short_help(false);
        match help {
            Some(help) => argument.help(*help),
            None => argument,
        }
    });
    [config].into_iter().chain(options)
}

/// What a server is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) settings: Settings,
    pub(super) listeners: Vec<Listener>,
    file: Configuration,
}

impl Asked {
    /// # Errors
    /// `serve` would refuse the options or the file.
    pub(super) fn of(arguments: &ArgMatches) -> Result<Self, Failure> {
        let file = match arguments.get_one::<PathBuf>("config") {
            Some(path) => Configuration::from_file(path)?,
            None => Configuration::default(),
        };
        let settings = file.settings.clone().replaced_by(arguments);
        // What only the report is about needs no listener.
        let of_file = &file.settings;
        let served = Settings {
            tls_cert: of_file.tls_cert.clone(),
            tls_key: of_file.tls_key.clone(),
            tls_client_ca: of_file.tls_client_ca.clone(),
            tls_client_crl: of_file.tls_client_crl.clone(),
            ..settings.clone()
        };
        let listeners = listeners::named_in(&served, &file)?;
        Ok(Self {
            settings,
            listeners,
            file,
        })
    }

    /// Which driver a server is to have.
    pub(super) fn driver(&self) -> DriverChoice {
        match self.settings.driver {
            None | Some(Driver::Auto) => DriverChoice::Auto,
            Some(Driver::Uring) => DriverChoice::Uring,
            Some(Driver::Epoll) => DriverChoice::Epoll,
        }
    }

    /// The memory for buffers, if there is enough for anything.
    pub(super) fn buffers(&self) -> usize {
        let parts = demands(&self.settings, &self.listeners).divide();
        parts.map_or(0, |parts| parts.buffers)
    }

    /// What this machine does not offer of it. `refusal`: why it does not have the driver.
    pub(super) fn mismatches(
        &self,
        limits: &MachineLimits,
        refusal: Option<&str>,
        memory_bytes: usize,
    ) -> Vec<String> {
        let mut mismatches = Vec::new();
        if let Some(refusal) = refusal {
            mismatches.push(format!("driver uring is asked for: {refusal}"));
        }
        self.compare_descriptors(limits, &mut mismatches);
        let demands = demands(&self.settings, &self.listeners);
        let asked = demands.bytes;
        if let Err(why) = demands.divide() {
            mismatches.push(why.to_string());
        }
        if asked > memory_bytes {
            mismatches.push(format!(
                "memory {} is asked for, and a process may have {} here: a full server would be \
                 killed",
                size_text(asked),
                size_text(memory_bytes - memory_bytes % (1 << 20))
            ));
        }
        mismatches
    }

    fn compare_descriptors(&self, limits: &MachineLimits, mismatches: &mut Vec<String>) {
        let Some(now) = limits.descriptors.now else {
            return;
        };
        let cure = limits.descriptors.cure();
        if now < DESCRIPTORS_MIN {
            mismatches.push(format!(
                "{now} descriptors are less than the {DESCRIPTORS_MIN} that a server needs: {cure}"
            ));
        }
        let room = now - DESCRIPTORS_RESERVED.min(now / 2);
        let tables = self.file.listeners.iter().map(|it| &it.own);
        let asked = [&self.settings].into_iter().chain(tables);
        let most = asked.filter_map(|it| it.max_connections).max();
        if let Some(most) = most
            && most as u64 > room
        {
            mismatches.push(format!(
                "max-connections {most} is asked for, and {now} descriptors allow {room}: {cure}"
            ));
        }
    }

    /// What all certificates that are named are.
    pub(super) fn certificates(&self) -> Result<tls::Findings, Failure> {
        let secured = self.listeners.iter().filter_map(|it| it.tls.as_ref());
        let mut findings = tls::findings(&self.settings, secured)?;
        findings.warnings.extend(reach::warning(&self.listeners));
        Ok(findings)
    }
}

/// Memory that this process may have, in bytes: of the machine, or what its control groups allow.
pub(super) fn memory_bytes() -> usize {
    machine_bytes().min(control_group::memory_bytes().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::limits::Bounds;
    use super::*;
    use crate::units::size;

    fn limits(descriptors: u64) -> MachineLimits {
        MachineLimits {
            descriptors: Bounds {
                now: Some(descriptors),
                at_most: Some(1 << 20),
            },
            locked_memory_bytes: Bounds {
                now: None,
                at_most: None,
            },
            io_uring_disabled: None,
            io_uring_group: None,
            backlog_max: None,
            local_ports: None,
        }
    }

    fn asked(text: &str) -> Asked {
        let file = Configuration::from_text(text).expect("a good file");
        let listeners = listeners::of(&file.settings, &file).expect("listeners");
        Asked {
            settings: file.settings.clone(),
            listeners,
            file,
        }
    }

    #[test]
    fn what_the_machine_does_not_offer_is_named_with_its_cure() {
        let memory = size::<usize>("1G").expect("a size");
        let few = DESCRIPTORS_MIN - 1;
        for (text, descriptors, refusal, expected) in [
            ("", 1 << 16, None, &[][..]),
            ("driver = \"epoll\"", 1 << 16, None, &[]),
            (
                "driver = \"uring\"",
                1 << 16,
                Some("it is forbidden"),
                &["driver uring is asked for: it is forbidden"],
            ),
            ("max-connections = 960", 1_024, None, &[]),
            (
                "max-connections = 1000",
                1_024,
                None,
                &["max-connections 1000 is asked for, and 1024 descriptors allow 960: run ulimit"],
            ),
            (
                "[[listener]]\nprotocol = \"echo\"\naddress = 1\nmax-connections = 2000",
                1_024,
                None,
                &["max-connections 2000 is asked for"],
            ),
            ("", few, None, &["23 descriptors are less than the 24 that"]),
            ("memory = \"1G\"", 1 << 16, None, &[]),
            (
                "memory = \"2G\"",
                1 << 16,
                None,
                &["memory 2G is asked for, and a process may have 1G here"],
            ),
            ("memory = \"2M\"", 1 << 16, None, &["--memory"]),
        ] {
            let found = asked(text).mismatches(&limits(descriptors), refusal, memory);
            assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
            for (found, part) in found.iter().zip(expected) {
                assert!(found.contains(part), "{part}: {found}");
            }
        }
    }
}
