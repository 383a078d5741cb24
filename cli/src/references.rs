//! Files that the rules of sites name and that are not there: a line in the log for each, when the
//! file of the configuration is read, by `check`, `serve` and a reload.

use std::collections::HashSet;

use flatpath_files::Hidden;

use crate::listener::Listener;
use crate::settings::is_on;
use crate::sites;

/// Warns of each.
pub(crate) fn warn(listeners: &[Listener]) {
    for line in missing(listeners) {
        log::warn!("{line}");
    }
}

/// A line for each, once for all listeners. A directory that cannot be opened has none: that is
/// an error of its own.
fn missing(listeners: &[Listener]) -> Vec<String> {
    let (mut lines, mut seen) = (Vec::new(), HashSet::new());
    for listener in listeners.iter().filter(|it| it.serves_over_http()) {
        for site in listener.directories() {
            if !seen.insert((site.label.clone(), site.settings.dir.clone())) {
                continue;
            }
            let Ok(files) = sites::open(&site.settings) else {
                continue;
            };
            let files = files.hidden(match is_on(site.settings.hidden) {
                true => Hidden::Served,
                false => Hidden::Refused,
            });
            for missing in files.rules(site.rules.clone()).missing_files() {
                let dir = site.settings.dir.as_deref().unwrap_or(".".as_ref());
                lines.push(format!(
                    "[[site]] {}: {missing} in {}",
                    site.label,
                    dir.display()
                ));
            }
        }
    }
    lines
}
