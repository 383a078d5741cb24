//! Serves a dashboard of this machine on port 8080; open <http://127.0.0.1:8080/>.

use std::time::Duration;

use flatpath::Server;
use flatpath_example_dashboard::Dashboard;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dashboard = Dashboard::new(Duration::from_secs(1));
    // Measures until it is dropped, which is after the server's end.
    let _meter = dashboard.start_meter()?;
    let service = dashboard.service();
    Server::new().listen("127.0.0.1:8080", service).run()?;
    Ok(())
}
