//! `/stats/summary`.

use std::sync::{Arc, Mutex};

use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use crate::report::publications::Needs;

use super::turns::Turns;
use super::{JSON, Shared, busy, failed, parameter};
use crate::report::publications::Publication;
use crate::report::stats::{CpuHistory, Extent, document};
use crate::units::lock;

const UNMADE: &str = "the document cannot be made";

/// State of the handler. A document takes some system calls per pod, so it is made on a separate thread, one at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct SummaryState {
    turns: Turns,
    history: Arc<Mutex<CpuHistory>>,
}

/// Returns the document of a young publication. `?only_cpu_and_memory=true` works as in the kubelet.
pub(super) async fn summary(
    State((shared, state)): State<(Shared, SummaryState)>,
    RawQuery(query): RawQuery,
) -> Response {
    let extent = match parameter(query.as_deref(), "only_cpu_and_memory") {
        Some("true") => Extent::CpuAndMemory,
        Some(_) | None => Extent::Whole,
    };
    let Ok(turn) = state.turns.next().await else { return busy() };
    let Some(publication) = shared.publications.take(Needs::Known).await else { return busy() };
    match turn.spend(move || render(&publication, extent, &state.history)).await {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Ok(Err(error)) => failed(UNMADE, &error),
        Err(error) => failed(UNMADE, &error),
    }
}

fn render(publication: &Publication, extent: Extent, history: &Mutex<CpuHistory>) -> serde_json::Result<Vec<u8>> {
    let Some(known) = &publication.known else { return Ok(b"{}".to_vec()) };
    let mut history = lock(history);
    serde_json::to_vec(&document(known, extent, &mut history))
}
