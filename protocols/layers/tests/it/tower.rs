//! Layers of tower-http and of tower around handlers.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use flatpath_http::{
    Body, Deferred, Http, Mount, Request, Response, Router, Trailers, Upload, routing, sse,
};
use flatpath_layers::{Tower, TowerBody, TowerHandler};
use flatpath_test::each_seed;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt;
use tower::{Layer, Service};
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::map_response_body::MapResponseBodyLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::propagate_header::PropagateHeaderLayer;
use tower_http::request_id::{
    MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::set_header::{SetRequestHeaderLayer, SetResponseHeaderLayer};
use tower_http::trace::TraceLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;

use crate::{Site, path, upload};

const MARK: HeaderName = HeaderName::from_static("x-mark");

fn mark() -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::appending(MARK, HeaderValue::from_static("tower"))
}

fn router() -> Router {
    Router::new()
        .get("/", path)
        .get("/fails", || -> &'static str {
            std::panic::panic_any("on purpose")
        })
        .get("/read", || Body::reader(&b"read"[..], None))
        .post("/echo", |text: String| text)
        .route("/inline", routing::get(path).inline())
        .route("/upload", routing::put(upload).streamed())
}

#[test]
fn sim_every_response_passes_a_layer_of_tower() {
    each_seed(5, |seed| {
        let mut site = Site::new(seed, router().layer(Tower::new(mark())));
        for (line, status, text) in [
            ("GET /", 200, "/"),
            ("GET /read", 200, "read"),
            ("POST /echo", 200, "a body"),
            ("GET /inline", 200, "/inline"),
            ("PUT /upload", 200, "6 bytes"),
            ("GET /none", 404, "there is nothing here\n"),
            ("POST /", 405, ""),
            ("GET /fails", 500, "The request could not be handled.\n"),
        ] {
            let body = if line.starts_with("GET ") {
                ""
            } else {
                "a body"
            };
            let reply = site.ask_from(None, line, &[], body);
            assert_eq!((reply.status, reply.text()), (status, text), "{line}");
            assert_eq!(reply.field("x-mark"), Some("tower"), "{line}");
        }
    });
}

#[derive(Clone)]
struct Same;

impl MakeRequestId for Same {
    fn make_request_id<B>(&mut self, _: &http::Request<B>) -> Option<RequestId> {
        Some(RequestId::new(HeaderValue::from_static("the-same")))
    }
}

#[test]
fn sim_several_layers_of_tower_http_do_what_they_do_elsewhere() {
    let id = HeaderName::from_static("x-request-id");
    let secret = HeaderName::from_static("x-secret");
    let shows = |request: Request| {
        let is_sensitive = |name| {
            request
                .headers()
                .get(name)
                .is_some_and(HeaderValue::is_sensitive)
        };
        let id = request.headers().get("x-request-id");
        let added = request.headers().get("x-added");
        format!("{} {id:?} {added:?}", is_sensitive("x-secret"))
    };
    let added = HeaderName::from_static("x-added");
    let router = Router::new()
        .get("/", shows)
        .layer(Tower::new(PropagateRequestIdLayer::new(id.clone())))
        .layer(Tower::new(PropagateHeaderLayer::new(
            HeaderName::from_static("x-asked"),
        )))
        .layer(Tower::new(SetRequestIdLayer::new(id, Same)))
        .layer(Tower::new(SetRequestHeaderLayer::overriding(
            added,
            HeaderValue::from_static("added"),
        )))
        .layer(Tower::new(SetSensitiveRequestHeadersLayer::new([secret])))
        .layer(Tower::new(ValidateRequestHeaderLayer::accept("text/plain")));
    let mut site = Site::new(1, router);
    let reply = site.ask("GET /", &["Accept: text/*", "X-Secret: s", "X-Asked: a"]);
    assert_eq!(reply.text(), "true Some(\"the-same\") Some(\"added\")");
    assert_eq!(reply.field("x-request-id"), Some("the-same"));
    assert_eq!(reply.field("x-asked"), Some("a"));
    let reply = site.ask("GET /", &["Accept: image/png"]);
    assert_eq!((reply.status, reply.body.len()), (406, 0));
}

#[test]
fn sim_cors_of_tower_http_answers_preflights_itself() {
    let cors = CorsLayer::new()
        .allow_origin(
            "https://app.example"
                .parse::<HeaderValue>()
                .expect("a value"),
        )
        .allow_methods([Method::PUT]);
    let mut site = Site::new(2, router().layer(Tower::new(cors)));
    let origin = "Origin: https://app.example";
    let reply = site.ask("OPTIONS /", &[origin, "Access-Control-Request-Method: PUT"]);
    assert_eq!(reply.field("access-control-allow-methods"), Some("PUT"));
    let reply = site.ask_from(None, "PUT /upload", &[origin], "four");
    assert_eq!(reply.text(), "4 bytes");
    assert_eq!(
        reply.field("access-control-allow-origin"),
        Some("https://app.example")
    );
}

#[test]
fn sim_a_path_is_normalised_before_a_mounted_router_sees_it() {
    let inner: Router = Router::new().get("/a/b", |request: Request| {
        format!("{} {:?}", request.uri(), Mount::of(&request).is_none())
    });
    let normalise = Tower::new(NormalizePathLayer::trim_trailing_slash());
    let router: Router = Router::new().fallback_service(inner).layer(normalise);
    let mut site = Site::new(3, router);
    assert_eq!(site.ask("GET /a/b///?q=1", &[]).text(), "/a/b?q=1 true");
}

#[test]
fn sim_a_body_that_a_layer_wraps_is_sent_whole() {
    let long = "0123456789".repeat(30_000);
    let expected = long.clone();
    let router = router()
        .get("/long", move || long.clone())
        .get("/events", || sse::channel().1)
        .route(
            "/fed",
            routing::put(|| Upload::to(io::sink(), |_| sse::channel().1)).streamed(),
        )
        .route(
            "/inline-read",
            routing::get(|| Body::reader(&b"read"[..], Some(4))).inline(),
        )
        .layer(Tower::new(TraceLayer::new_for_http()));
    let mut site = Site::new(4, router);
    let reply = site.ask("GET /long", &[]);
    assert!(reply.text() == expected);
    assert_eq!(
        reply.field("content-length"),
        Some("300000"),
        "it is known as before"
    );
    assert_eq!(site.ask("GET /read", &[]).text(), "read");
    assert_eq!(site.ask("GET /inline", &[]).text(), "/inline");
    assert_eq!(site.ask("GET /inline-read", &[]).text(), "read");
    assert_eq!(
        site.ask_from(None, "PUT /upload", &[], "four").text(),
        "4 bytes"
    );
    assert_eq!(
        site.ask("HEAD /long", &[]).field("content-length"),
        Some("300000")
    );
    assert_eq!(site.ask("PUT /fed", &[]).status, 500);
    let reply = site.ask("GET /events", &[]);
    assert_eq!(
        reply.status, 500,
        "a worker would wait for each of its clients"
    );
}

#[test]
fn sim_a_body_that_a_layer_passes_on_is_fed_as_without_it() {
    let fed = || {
        let (sender, body) = Body::channel(100);
        sender.send("fed").expect("room");
        body
    };
    let mut site = Site::new(5, Router::new().get("/", fed).layer(Tower::new(mark())));
    let reply = site.ask("GET /", &[]);
    assert_eq!(
        (reply.text(), reply.field("x-mark")),
        ("fed", Some("tower"))
    );
}

#[test]
fn sim_a_layer_may_change_bodies() {
    let reply = |body: TowerBody| -> TowerBody {
        let text = body.into_inner().into_bytes();
        [&b"<"[..], &text, b">"].concat().into()
    };
    let router = router()
        .layer(Tower::new(MapResponseBodyLayer::new(reply)))
        .layer(Tower::new(RequestBodyLimitLayer::new(10)));
    let mut site = Site::new(6, router);
    assert_eq!(site.ask("GET /", &[]).text(), "</>");
    assert_eq!(
        site.ask_from(None, "POST /echo", &[], "ten bytes.").text(),
        "<ten bytes.>"
    );
    assert_eq!(
        site.ask_from(None, "POST /echo", &[], "eleven byte").status,
        413
    );
    // The body of an upload goes past the layer, which sees its length.
    let mut upload = |body: &str| site.ask_from(None, "PUT /upload", &[], body);
    assert_eq!(upload("four").text(), "<4 bytes>");
    assert_eq!(upload("eleven byte").status, 413);
}

/// A layer of the test's own.
#[derive(Clone)]
struct With<F>(F);

#[derive(Clone)]
struct Around<S, F>(S, F);

impl<S, F: Clone> Layer<S> for With<F> {
    type Service = Around<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        Around(inner, self.0.clone())
    }
}

/// A body of several frames.
struct Pieces(Vec<&'static str>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        let piece = self.0.remove(0);
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}

type TowerRequest = http::Request<TowerBody>;
type TowerResponse = http::Response<TowerBody>;
type BoxFuture = Pin<Box<dyn Future<Output = Result<TowerResponse, String>> + Send>>;

impl<F> Service<TowerRequest> for Around<TowerHandler, F>
where
    F: Fn(TowerHandler, TowerRequest) -> BoxFuture,
{
    type Response = TowerResponse;
    type Error = String;
    type Future = BoxFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: TowerRequest) -> BoxFuture {
        (self.1)(self.0.clone(), request)
    }
}

fn never_fails<T>(result: Result<T, Infallible>) -> T {
    result.unwrap_or_else(|never| match never {})
}

/// What its query asks of the layer.
fn as_asked(mut handler: TowerHandler, request: TowerRequest) -> BoxFuture {
    Box::pin(async move {
        match request.uri().query() {
            Some("waits") => std::future::pending().await,
            Some("fails") => Err("on purpose".to_owned()),
            Some("without") => {
                let (mut parts, body) = request.into_parts();
                parts.extensions.clear();
                let request = http::Request::from_parts(parts, body);
                Ok(never_fails(handler.call(request).await))
            }
            Some("late") => {
                let response = never_fails(handler.call(request).await);
                let () = std::future::pending().await;
                Ok(response)
            }
            Some("drops") => {
                drop(handler.call(request));
                Ok(http::Response::new("itself".into()))
            }
            Some("frames") => {
                let request = request.map(|_| Pieces(vec!["a", "", "piece"]));
                Ok(never_fails(handler.call(request).await))
            }
            Some("collects") => {
                let response = never_fails(handler.call(request).await);
                let (parts, body) = response.into_parts();
                let body = body.collect().await.map_err(|error| error.to_string())?;
                Ok(http::Response::from_parts(parts, body.to_bytes().into()))
            }
            Some("itself") => Ok(http::Response::new("itself".into())),
            _ => Ok(never_fails(handler.call(request).await)),
        }
    })
}

#[test]
fn sim_a_layer_that_is_not_ready_fails_or_asks_twice_is_answered_for() {
    let layer = With(as_asked);
    let read = || Body::reader(&b"read"[..], None);
    let router = router()
        .route("/inline-read", routing::get(read).inline())
        .get("/fed", || sse::channel().1)
        .layer(Tower::new(layer));
    let mut site = Site::new(7, router);
    let reply = site.ask_from(None, "POST /echo?frames", &[], "body");
    assert_eq!(reply.text(), "apiece");
    for (line, status) in [
        ("GET /?waits", 500),
        ("GET /?fails", 500),
        ("GET /?without", 500),
        ("GET /?late", 500),
        ("PUT /upload?late", 500),
        ("PUT /upload?waits", 500),
        ("GET /?itself", 200),
        ("GET /read?collects", 200),
        ("GET /?collects", 200),
        ("GET /inline?collects", 200),
        // It would keep the network thread waiting.
        ("GET /inline-read?collects", 500),
        ("GET /fed?collects", 500),
        ("POST /echo?drops", 200),
        ("PUT /upload", 200),
        ("GET /", 200),
    ] {
        // With a body an inline route goes to a worker.
        let body = if line.starts_with("GET ") { "" } else { "body" };
        let reply = site.ask_from(None, line, &[], body);
        assert_eq!(reply.status, status, "{line}: {reply:?}");
        assert!(
            !reply.text().contains("on purpose"),
            "its client does not learn why"
        );
    }
}

#[test]
fn sim_a_layer_may_ask_the_handler_again() {
    let again = With(|mut handler: TowerHandler, request: TowerRequest| {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let again = http::Request::from_parts(parts.clone(), TowerBody::default());
            let request = http::Request::from_parts(parts, body);
            let first = never_fails(handler.call(request).await);
            match first.status().is_server_error() {
                true => Ok(never_fails(handler.call(again).await)),
                false => Ok(first),
            }
        }) as BoxFuture
    });
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let sometimes = move || match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Err(StatusCode::INTERNAL_SERVER_ERROR),
        _ => Ok("at last"),
    };
    // What is made later is answered for: the handler cannot be asked any more then.
    let busy = || StatusCode::SERVICE_UNAVAILABLE;
    let later = move || {
        let (responder, deferred) = Deferred::new();
        responder.send(busy()).expect("it is awaited");
        deferred
    };
    let upload = routing::put(move || Upload::to(io::sink(), move |_| busy()));
    let router = Router::new()
        .get("/", sometimes)
        .get("/later", later)
        .route("/upload", upload.streamed())
        .layer(Tower::new(again));
    let mut site = Site::new(8, router);
    assert_eq!(site.ask("GET /", &[]).text(), "at last");
    assert_eq!(site.ask("GET /later", &[]).status, 500);
    let upload = site.ask_from(None, "PUT /upload", &[], "body");
    assert_eq!(upload.status, 500);
}

#[test]
fn sim_a_layer_that_needs_a_runtime_is_a_500() {
    let status = StatusCode::GATEWAY_TIMEOUT;
    let slow = tower_http::timeout::TimeoutLayer::with_status_code(status, Duration::from_secs(9));
    let mut site = Site::new(
        9,
        router().layer(Tower::new(slow)).layer(Tower::new(mark())),
    );
    let reply = site.ask("GET /", &[]);
    assert_eq!((reply.status, reply.field("x-mark")), (500, Some("tower")));
}

#[test]
fn sim_a_service_keeps_its_state_between_requests() {
    // One request at a time, over all requests: a service made anew would know of none.
    let limit = tower::limit::GlobalConcurrencyLimitLayer::new(1);
    let mut site = Site::new(10, router().layer(Tower::new(limit)));
    for _ in 0..3 {
        assert_eq!(site.ask("GET /", &[]).status, 200);
        assert_eq!(
            site.ask_from(None, "PUT /upload", &[], "four").text(),
            "4 bytes"
        );
    }
}

#[test]
fn tower_and_our_layers_stand_around_each_other() {
    let cookie = (header::SET_COOKIE, HeaderValue::from_static("a"));
    let ours = move |request: Request, next: &flatpath_http::Next<'_>| {
        let cookie = cookie.clone();
        next.run(request).map(move |mut response: Response| {
            response.headers_mut().append(cookie.0, cookie.1);
            response
        })
    };
    let router: Router = router()
        .layer(Tower::new(mark()))
        .layer(ours)
        .layer(Tower::new(mark()));
    let _ = Http::service(router.get("/more", path));
}

const NUMBER: HeaderName = HeaderName::from_static("x-number");

/// The same body, with one more in each number of its trailers.
fn counted<B: http_body::Body<Data = Bytes>>(
    body: B,
) -> impl http_body::Body<Data = Bytes, Error = B::Error> {
    body.map_frame(|frame| match frame.into_trailers() {
        Ok(trailers) => {
            let more = trailers.into_iter().map(|(name, value)| {
                let number: u32 = value.to_str().expect("text").parse().expect("a number");
                (name.expect("each once"), HeaderValue::from(number + 1))
            });
            Frame::trailers(more.collect())
        }
        Err(frame) => frame,
    })
}

#[test]
fn sim_trailers_pass_layers_of_tower_both_ways() {
    let handler = |Trailers(trailers): Trailers, body: Bytes| Trailers(trailers).after(body);
    let sized = |Trailers(trailers): Trailers, body: Bytes| {
        let length = body.len() as u64;
        Trailers(trailers).after(Body::reader(io::Cursor::new(body), Some(length)))
    };
    let late = |Trailers(trailers): Trailers, body: Bytes| {
        let (end, late) = Trailers::later([NUMBER]);
        end.set(trailers);
        late.after(Body::reader(io::Cursor::new(body), None))
    };
    let asks = With(|mut handler: TowerHandler, request: TowerRequest| {
        Box::pin(async move { Ok(never_fails(handler.call(request.map(counted)).await)) })
            as BoxFuture
    });
    let router = || {
        Router::new()
            .post("/known", handler)
            .post("/sized", sized)
            .post("/late", late)
    };
    let ask = |site: &mut Site, path: &str, body: &str, headers: &str| {
        let chunk = match body.len() {
            0 => String::new(),
            bytes => format!("{bytes:x}\r\n{body}\r\n"),
        };
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\n{headers}Connection: close\r\n\
             Transfer-Encoding: chunked\r\n\r\n{chunk}0\r\nX-Number: 1\r\n\r\n"
        );
        String::from_utf8(site.exchange(None, request.as_bytes())).expect("text")
    };
    each_seed(5, |seed| {
        for path in ["/known", "/sized", "/late"] {
            for body in ["body", ""] {
                let mut passed = Site::new(seed, router().layer(Tower::new(mark())));
                let reply = ask(&mut passed, path, body, "TE: trailers\r\n");
                assert!(
                    reply.ends_with("\r\n0\r\nX-Number: 1\r\n\r\n"),
                    "{path}: {reply}"
                );

                let maps = MapResponseBodyLayer::new(counted::<TowerBody>);
                let layered = router()
                    .layer(Tower::new(asks.clone()))
                    .layer(Tower::new(maps));
                let mut wrapped = Site::new(seed, layered);
                let reply = ask(&mut wrapped, path, body, "TE: trailers\r\n");
                assert!(
                    reply.contains("\r\nTrailer: x-number\r\n"),
                    "{path}: {reply}"
                );
                assert!(
                    reply.ends_with("\r\n0\r\nX-Number: 3\r\n\r\n"),
                    "{path}: {reply}"
                );
                assert!(reply.contains(body), "{path}: {reply}");
                let reply = ask(&mut wrapped, path, body, "");
                assert!(!reply.contains("X-Number"), "{path}: {reply}");
            }
        }
    });
}
