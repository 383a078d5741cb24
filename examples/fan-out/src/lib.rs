//! One request asks several other services at once, and answers with what they have said in time.
//!
//! | request         | answer                                                          |
//! |-----------------|-----------------------------------------------------------------|
//! | `GET /overview` | an object with what each has answered, or its `{"error": ...}`; |
//! |                 | 502 if none has answered                                        |
//!
//! The requests are futures on a runtime of tokio, so no worker waits for them. Each has a time of
//! its own. A client that goes away drops those that are under way.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use flatpath_http::http::StatusCode;
use flatpath_http::{Deferred, Json, Router, State, routing};
use futures_util::future::join_all;
use reqwest::{Client, Error, Response};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

/// The longest answer of a service, in bytes. What others send has to be bounded as well.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// A service that is asked.
#[derive(Clone, Debug)]
pub struct Service {
    /// What its answer is called in ours.
    pub name: String,
    /// Where it is: `http://HOST:PORT/PATH`. It answers with JSON.
    pub url: String,
    /// How long it may take, to the end of its answer.
    pub time_max: Duration,
}

/// Asks all of some services.
#[derive(Clone)]
struct FanOut {
    runtime: Handle,
    /// It keeps connections to the services.
    client: Client,
    services: Arc<[Service]>,
}

/// The route that asks these services. The runtime has its time and its I/O enabled, and is there
/// for as long as the server runs.
///
/// # Errors
/// The client cannot be made.
pub fn router(runtime: &Handle, services: Vec<Service>) -> Result<Router, Error> {
    let fan_out = FanOut {
        runtime: runtime.clone(),
        client: Client::builder().build()?,
        services: services.into(),
    };
    // Nothing here blocks: the handler only starts what others run.
    let overview = routing::get(overview).inline();
    Ok(Router::new()
        .route("/overview", overview)
        .with_state(fan_out))
}

fn overview(State(fan_out): State<FanOut>) -> Deferred {
    let runtime = fan_out.runtime.clone();
    Deferred::spawn(&runtime, async move { fan_out.ask_all().await })
}

impl FanOut {
    async fn ask_all(&self) -> (StatusCode, Json<Map<String, Value>>) {
        let answers = self.services.iter().map(|service| self.ask(service));
        let mut all = Map::new();
        let mut status = StatusCode::BAD_GATEWAY;
        for (service, answer) in self.services.iter().zip(join_all(answers).await) {
            let answer = match answer {
                Ok(answer) => {
                    status = StatusCode::OK;
                    answer
                }
                Err(why) => {
                    log::warn!("{} at {}: {why}", service.name, service.url);
                    json!({ "error": why })
                }
            };
            all.insert(service.name.clone(), answer);
        }
        (status, Json(all))
    }

    /// What the service has answered, or why not: a text that shows no more than is good.
    async fn ask(&self, service: &Service) -> Result<Value, &'static str> {
        let request = self.client.get(&service.url).timeout(service.time_max);
        let answer = request.send().await.and_then(Response::error_for_status);
        let mut answer = answer.map_err(|error| said(&error))?;
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| said(&error))? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err("its answer is too long");
            }
            body.extend_from_slice(&piece);
        }
        serde_json::from_slice(&body).map_err(|_| "its answer is no JSON")
    }
}

fn said(error: &Error) -> &'static str {
    match () {
        () if error.is_timeout() => "it takes too long",
        () if error.is_status() => "it has failed",
        () => "it is not there",
    }
}
