//! Tasks over HTTP and JSON, and a description of that which programs read: OpenAPI, by the crate
//! `utoipa`.
//!
//! | request              | answer                                                    |
//! |----------------------|-----------------------------------------------------------|
//! | `GET /openapi.json`  | the description                                           |
//! | `GET /tasks`         | all tasks; `?done=true` those that are done               |
//! | `POST /tasks`        | 201 and the task                                          |
//! | `GET /tasks/{id}`    | the task                                                  |
//! | `DELETE /tasks/{id}` | 204                                                       |
//!
//! Each handler and each type has its own description. All errors are problems (RFC 9457). A test
//! sends every documented request, and checks that every answer is documented.
#![forbid(unsafe_code)]
#![allow(
    unused_qualifications,
    reason = "the macros of utoipa write paths as they need them"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use flatpath::lock::Lock;
use flatpath_http::http::StatusCode;
use flatpath_http::{Json, Path, Problem, Query, Router, State, routing};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};

/// Something to do.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Task {
    id: u64,
    text: String,
    done: bool,
}

/// A task that is to be added.
#[derive(Debug, Deserialize, ToSchema)]
struct NewTask {
    text: String,
}

/// Which tasks are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Filter {
    /// Those that are done, or that are not.
    done: Option<bool>,
}

/// What a problem looks like, for the description.
#[derive(ToSchema)]
#[expect(dead_code, reason = "problems are made by `Problem`")]
struct ProblemDetails {
    status: u16,
    title: String,
    detail: Option<String>,
}

/// The tasks, by their numbers.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Lock<BTreeMap<u64, Task>>>);

/// The description: what its handlers say.
#[derive(Debug, OpenApi)]
#[openapi(info(title = "Tasks"), paths(list, add, find, remove))]
pub struct Description;

/// The service, and its description.
pub fn tasks() -> Router {
    Router::new()
        .route("/tasks", routing::get(list).post(add))
        .route("/tasks/{id}", routing::get(find).delete(remove))
        .with_state(Tasks::default())
        .get("/openapi.json", || Json(Description::openapi()))
        .layer(Problem::layer)
}

fn unknown(id: u64) -> Problem {
    Problem::new(StatusCode::NOT_FOUND).detail(format!("no task has the number {id}"))
}

/// All tasks.
#[utoipa::path(get, path = "/tasks", params(Filter), responses(
    (status = 200, body = Vec<Task>),
    (status = 400, body = ProblemDetails, content_type = "application/problem+json"),
))]
fn list(State(tasks): State<Tasks>, Query(filter): Query<Filter>) -> Json<Vec<Task>> {
    let tasks = tasks.0.lock();
    let wanted = tasks
        .values()
        .filter(|task| filter.done.is_none_or(|done| done == task.done));
    Json(wanted.cloned().collect())
}

/// Adds a task.
#[utoipa::path(post, path = "/tasks", request_body = NewTask, responses(
    (status = 201, body = Task),
    (status = 400, body = ProblemDetails, content_type = "application/problem+json"),
    (status = 415, body = ProblemDetails, content_type = "application/problem+json"),
    (status = 422, body = ProblemDetails, content_type = "application/problem+json"),
))]
fn add(
    State(tasks): State<Tasks>,
    Json(NewTask { text }): Json<NewTask>,
) -> (StatusCode, Json<Task>) {
    let mut tasks = tasks.0.lock();
    let id = tasks.keys().next_back().map_or(1, |last| last + 1);
    let done = false;
    let task = Task { id, text, done };
    tasks.insert(id, task.clone());
    (StatusCode::CREATED, Json(task))
}

/// One task.
#[utoipa::path(get, path = "/tasks/{id}", params(("id" = u64, Path)), responses(
    (status = 200, body = Task),
    (status = 400, body = ProblemDetails, content_type = "application/problem+json"),
    (status = 404, body = ProblemDetails, content_type = "application/problem+json"),
))]
fn find(State(tasks): State<Tasks>, Path(id): Path<u64>) -> Result<Json<Task>, Problem> {
    let found = tasks.0.lock().get(&id).cloned();
    found.map(Json).ok_or_else(|| unknown(id))
}

/// Removes a task.
#[utoipa::path(delete, path = "/tasks/{id}", params(("id" = u64, Path)), responses(
    (status = 204),
    (status = 400, body = ProblemDetails, content_type = "application/problem+json"),
    (status = 404, body = ProblemDetails, content_type = "application/problem+json"),
))]
fn remove(State(tasks): State<Tasks>, Path(id): Path<u64>) -> Result<StatusCode, Problem> {
    let removed = tasks.0.lock().remove(&id);
    removed
        .map(|_| StatusCode::NO_CONTENT)
        .ok_or_else(|| unknown(id))
}
