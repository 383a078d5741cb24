//! The same service with axum on tokio, as axum's README begins one.

use axum::Router;
use axum::http::Uri;
use axum::routing::get;

async fn hello(uri: Uri) -> String {
    format!("hello, {}\n", uri.path())
}

#[tokio::main]
async fn main() {
    let routes = Router::new()
        .route("/", get(hello))
        .route("/{*rest}", get(hello));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080")
        .await
        .expect("a free port");
    axum::serve(listener, routes).await.expect("it serves");
}
