//! The controls by HTTP, for who drives the server from another process.

use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::json;

use crate::answer::{Reply, text};
use crate::front::{Backend, Fault, FaultId, Shared, said};
use crate::route::Query;

/// Answers a request under `/control`.
pub(crate) fn answer(shared: &Shared, head: &Parts, body: &[u8]) -> Reply {
    let what: Vec<&str> = head.uri.path().trim_matches('/').split('/').skip(1).collect();
    let query = Query::of(head.uri.query());
    match (&head.method, what.as_slice()) {
        (&Method::GET, ["log"]) => said(&json!(shared.log.all())),
        (&Method::DELETE, ["log"]) => {
            shared.log.clear();
            said(&json!({}))
        }
        (&Method::POST, ["faults"]) => match serde_json::from_slice::<Fault>(body) {
            Ok(fault) => said(&json!({"id": shared.faults.add(fault)})),
            Err(error) => text(StatusCode::BAD_REQUEST, format!("this is no fault: {error}\n")),
        },
        (&Method::DELETE, ["faults"]) => {
            shared.faults.clear();
            said(&json!({}))
        }
        (&Method::GET, ["faults", id]) => {
            said(&json!({"struck": shared.faults.struck(FaultId(id.parse().unwrap_or_default()))}))
        }
        (&Method::DELETE, ["faults", id]) => {
            shared.faults.remove(FaultId(id.parse().unwrap_or_default()));
            said(&json!({}))
        }
        (&Method::POST, ["unknown-fields"]) => {
            shared.faults.set_unknown_fields(query.on("on"));
            said(&json!({}))
        }
        (&Method::POST, ["cut"]) => {
            shared.cut_connections();
            said(&json!({}))
        }
        (&Method::POST, [what]) => in_memory(shared, what),
        _ => text(StatusCode::NOT_FOUND, "no such control\n"),
    }
}

/// What only the server in memory can do.
fn in_memory(shared: &Shared, what: &str) -> Reply {
    let Backend::Memory(api) = &shared.backend else {
        return text(StatusCode::NOT_IMPLEMENTED, "a real server cannot be told to do that\n");
    };
    match what {
        "compact" => api.compact(),
        "expire-watches" => api.expire_watches(),
        "bookmark" => api.bookmark(),
        "forget-everything" => api.forget_everything(),
        _ => return text(StatusCode::NOT_FOUND, "no such control\n"),
    }
    said(&json!({}))
}
