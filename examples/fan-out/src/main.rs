//! Serves on port 8080 what other services say: `flatpath-example-fan-out NAME=URL...`.

use std::time::Duration;

use flatpath::Server;
use flatpath_example_fan_out::{Service, router};
use flatpath_http::Http;
use tokio::runtime::Runtime;

/// For each service.
const TIME_MAX: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = |argument: String| {
        let (name, url) = argument.split_once('=').ok_or("NAME=URL is expected")?;
        let (name, url, time_max) = (name.to_owned(), url.to_owned(), TIME_MAX);
        Ok::<_, &str>(Service {
            name,
            url,
            time_max,
        })
    };
    let services: Vec<Service> = std::env::args()
        .skip(1)
        .map(service)
        .collect::<Result<_, _>>()?;
    // It ends after the server.
    let runtime = Runtime::new()?;
    let service = Http::service(router(runtime.handle(), services)?);
    Server::new().listen("127.0.0.1:8080", service).run()?;
    Ok(())
}
