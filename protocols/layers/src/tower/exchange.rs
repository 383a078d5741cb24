//! Between the service of tower and the handler: requests one way, responses the other.
//!
//! One thread at a time uses it: that which polls the service. The locks are for the compiler.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flatpath::lock::Lock;
use flatpath_http::{Request, Response};

use super::body::TowerBody;

/// The innermost service, which a layer of tower is put around: it stands for the handler. Of use
/// only inside of [`Tower`](super::Tower).
#[derive(Clone, Debug)]
pub struct TowerHandler(());

impl TowerHandler {
    pub(super) fn new() -> Self {
        Self(())
    }
}

/// An extension of a request on its way through the service.
#[derive(Clone, Default)]
pub(super) struct Exchange(Arc<Lock<VecDeque<Asked>>>);

/// A request for the handler, and where its response belongs.
pub(super) type Asked = (Request, ResponsePlace);

/// Where the response to one request is put.
#[derive(Clone, Default)]
pub(super) struct ResponsePlace(Arc<Lock<Option<Response>>>);

impl Exchange {
    pub(super) fn ask(&self, request: Request) -> HandlerFuture {
        let place = ResponsePlace::default();
        self.0.lock().push_back((request, place.clone()));
        HandlerFuture(place)
    }

    pub(super) fn take_request(&self) -> Option<Asked> {
        let mut requests = self.0.lock();
        requests.pop_front()
    }
}

impl ResponsePlace {
    pub(super) fn put(&self, response: Response) {
        let mut place = self.0.lock();
        debug_assert!(place.is_none(), "a request has one response");
        *place = Some(response);
    }

    fn take(&self) -> Option<Response> {
        let mut place = self.0.lock();
        place.take()
    }
}

/// The response of the handler, when it is there.
#[must_use = "futures do nothing unless they are polled"]
pub struct HandlerFuture(ResponsePlace);

impl HandlerFuture {
    pub(super) fn ready(response: Response) -> Self {
        let place = ResponsePlace::default();
        place.put(response);
        Self(place)
    }
}

impl Future for HandlerFuture {
    type Output = Result<http::Response<TowerBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.take() {
            Some(mut response) => {
                let trailers = response.extensions_mut().remove();
                let body = |body| TowerBody::of_response(body, trailers);
                Poll::Ready(Ok(response.map(body)))
            }
            None => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for HandlerFuture {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("HandlerFuture")
            .finish_non_exhaustive()
    }
}
