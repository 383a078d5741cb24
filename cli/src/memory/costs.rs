//! Which settings cost most: for the error of a `--memory` that is too little.

use std::cmp::Reverse;

use super::{Demands, MIB};

/// Settings that the error names.
const NAMED: usize = 5;

impl Demands {
    /// The settings that take most of the memory, each with what it takes.
    pub(super) fn most_costly(&self) -> String {
        let mut costs: Vec<(&str, usize)> = Vec::new();
        let terms = self.program_terms().into_iter().chain(self.other_terms());
        for (setting, bytes) in terms {
            match costs.iter_mut().find(|(other, _)| *other == setting) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => costs.push((setting, bytes)),
            }
        }
        costs.retain(|(setting, bytes)| *bytes >= MIB && !setting.is_empty());
        costs.sort_by_key(|(_, bytes)| Reverse(*bytes));
        let words = costs.iter().take(NAMED).map(|(setting, bytes)| {
            let mib = bytes.div_ceil(MIB);
            format!("{setting} {mib}M")
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// What further settings cost, in this memory.
    fn other_terms(&self) -> Vec<(&'static str, usize)> {
        let (_, connections) = self.connections();
        let receive = self.receive_terms(&self.driver(), self.nfs_page_bytes());
        let occasional = self.occasional.terms(self.bytes);
        let connections = connections.saturating_mul(self.connection_bytes());
        let others = [
            ("max-connections", connections),
            ("nfs", self.nfs_bytes(self.nfs_replies())),
        ];
        receive
            .into_iter()
            .chain(occasional)
            .chain(others)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{demands, four_sites};
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn too_little_names_the_settings_that_cost_most() {
        let words = |demands: Demands| match demands.divide() {
            Err(Failure::WrongUse(words)) => words,
            other => panic!("{other:?}"),
        };
        let sites = words(Demands {
            bytes: 64 * MIB,
            ..four_sites(64 * MIB)
        });
        assert!(sites.contains("is for auth-file 83M, "), "{sites}");
        for setting in ["max-connections", "archive", "compress"] {
            assert!(sites.contains(setting), "{sites}");
        }
        let connections = words(Demands {
            connections: Some(1 << 20),
            ..demands(256)
        });
        assert!(
            connections.contains("is for max-connections 640M, "),
            "{connections}"
        );
        let workers = words(Demands {
            workers: 20_000,
            ..demands(256)
        });
        assert!(workers.contains("is for workers 625M, "), "{workers}");
        let nfs = words(Demands {
            nfs: 40,
            ..demands(64)
        });
        assert!(nfs.contains("is for nfs "), "{nfs}");
        for words in [sites, connections, workers, nfs] {
            assert_eq!(words.lines().count(), 1);
        }
    }
}
