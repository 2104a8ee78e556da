//! Evictions at the API server. Each is a task of its own that follows a plan of few requests and notes its progress in the ledger.

pub mod eviction_plan;
pub mod eviction_requests;
pub mod exchange;
mod failed_status;
pub mod intent;
pub(super) mod overwritten;
mod right_to_evict;
pub(super) mod taint_first;

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::client::Body;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::config::kubernetes_options::EvictionMethod;
use crate::units::{Monotonic, error_chain};

use super::api_answer::AnswerBody;
use super::api_client::Context;
use super::api_state::Event;
use super::backoff::{Backoff, jittered};
use super::ledger::Unfinished;

use eviction_plan::Plan;
use exchange::{Answer, EvictionUpdate, Removal, Step, Verdict, Wait};
use intent::Intent;
use right_to_evict::RightToEvict;
use taint_first::TaintFirst;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait while the loop waits for the answer.
const LONGEST_WAIT_ASKING: Duration = Duration::from_secs(1);
/// Time that a stopping agent gives to evictions under way; the ledger keeps the rest.
const STOP_TIME: Duration = Duration::from_secs(2);
/// For the mark before the removal, which must not wait long for it.
const MARK_TIMEOUT: Duration = Duration::from_secs(1);
/// For the mark while the loop waits for the removal: after two seconds without an answer the loop sends SIGTERM itself.
const BRIEF_MARK_TIMEOUT: Duration = Duration::from_millis(500);
/// For other requests: an API server behind a slow link takes seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// For a removal that the loop waits for.
const ASKED_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes; a pod is far smaller.
const LARGEST_ANSWER: usize = 4 << 20;

/// Carries out the ledger's unfinished evictions, then those of `intents`, until the sender is dropped.
pub(super) async fn carry_out(context: &Context, mut intents: mpsc::Receiver<Intent>, taints: TaintFirst) {
    let right = RightToEvict::default();
    let mut tasks = Tasks { context, taints, right, tasks: JoinSet::new(), running: HashMap::new() };
    for open in context.ledger.unfinished() {
        tasks.start(open);
    }
    loop {
        tokio::select! {
            intent = intents.recv() => match intent {
                // An intent that is not in the ledger was called off meanwhile.
                Some(intent) => if let Some(open) = context.ledger.find(&intent.uid) { tasks.start(open) },
                None => break,
            },
            Some(ended) = tasks.tasks.join_next() => {
                if let Ok(uid) = ended {
                    tasks.running.retain(|of, task| *of != uid || !task.is_finished());
                }
            }
        }
    }
    let rest = async { while tasks.tasks.join_next().await.is_some() {} };
    let _rest_in_ledger = tokio::time::timeout(STOP_TIME, rest).await;
}

/// The evictions under way, one task for each pod.
struct Tasks<'c> {
    context: &'c Context,
    taints: TaintFirst,
    right: RightToEvict,
    tasks: JoinSet<String>,
    running: HashMap<String, AbortHandle>,
}

impl Tasks<'_> {
    /// Starts an eviction. It replaces an earlier one of the same pod, whose last request may have been carried out; the new plan
    /// finds that out.
    fn start(&mut self, open: Unfinished) {
        let uid = open.intent.uid.clone();
        let task = self.tasks.spawn(carry_out_one(self.context.clone(), open, self.taints.clone(), self.right.clone()));
        if let Some(earlier) = self.running.insert(uid, task) {
            earlier.abort();
        }
    }
}

/// Sends all requests that are left; returns the UID.
async fn carry_out_one(context: Context, open: Unfinished, taints: TaintFirst, right: RightToEvict) -> String {
    let Unfinished { intent, progress, is_resumed } = &open;
    if !is_resumed {
        taints.wait(intent).await;
    }
    let mut plan = Plan::of(intent, *progress, *is_resumed);
    let mut backoff = Backoff::new(FIRST_WAIT, if intent.is_certain { LONGEST_WAIT } else { LONGEST_WAIT_ASKING });
    let mut requests = 0_u32;
    let mut last = None;
    let mut removed = None;
    let mut overwritten = None;
    loop {
        if is_called_off(&context, intent) {
            return intent.uid.clone();
        }
        if let Some(verdict) = plan.expire(intent.age()) {
            last = Some(verdict.clone());
            report(&context, &open, &plan, verdict);
            break;
        }
        let Some(step) = plan.step() else { break };
        if plan.asks() {
            context.ledger.note(&intent.uid, plan.progress());
        }
        let before = plan.progress();
        requests += 1;
        if plan.removal().method == EvictionMethod::Fail && matches!(step, Step::Remove | Step::Get) {
            // This request supersedes, or finds, what was written over the status before.
            overwritten = Some(context.overwritten.of(&intent.uid));
        }
        let answer = send(&context, (step, plan.removal()), intent, before.removed).await;
        tracing::debug!(event = "eviction_step", pod = intent.pod(), ?step, ?answer, "request of an eviction sent");
        if step == Step::Remove {
            right.note(&answer, &context.reporter);
        }
        let outcome = plan.take(answer, intent.age());
        // Only progress resets the backoff: an answer that changes nothing may repeat for ever.
        if plan.progress() != before {
            backoff.reset();
            context.ledger.note(&intent.uid, plan.progress());
        }
        if plan.progress().removed && removed.is_none() {
            removed = Some(Monotonic::now());
        }
        if let Some(verdict) = outcome.verdict {
            if let Verdict::NoAnswer(_) = verdict {
                backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
            }
            last = Some(verdict.clone());
            report(&context, &open, &plan, verdict);
        }
        match outcome.wait {
            Wait::None => {}
            Wait::Backoff => tokio::time::sleep(backoff.next_wait(None)).await,
            Wait::Pause(span) => {
                backoff.reset();
                tokio::time::sleep(span).await;
            }
            Wait::WhileFailed(span) => {
                backoff.reset();
                let overwritten = overwritten.get_or_insert_with(|| context.overwritten.of(&intent.uid));
                if tokio::time::timeout(span, overwritten.seen()).await.is_ok() {
                    plan.note_overwritten();
                }
            }
            // `Retry-After: 0` must not cause a busy loop, and nodes must not return in step.
            Wait::For(retry_after) => {
                let wait = backoff.next_wait(None).max(retry_after);
                tokio::time::sleep(wait + jittered(wait / 8)).await;
            }
        }
    }
    context.ledger.end(intent);
    if matches!(last, None | Some(Verdict::Accepted | Verdict::Delayed(_))) {
        let done = Verdict::Done(plan.take_note());
        report(&context, &open, &plan, done);
    }
    tracing::info!(
        event = "eviction_told",
        pod = intent.pod(),
        pod_uid = intent.uid,
        cause = intent.cause,
        marked = plan.progress().marked,
        removed = plan.progress().removed,
        resumed = is_resumed,
        requests,
        decided_mono_ns = intent.decided_mono_ns,
        removed_mono_ns = removed.map(|at| at.0),
        ended_mono_ns = Monotonic::now().0,
        "all requests of an eviction to the API server are done"
    );
    intent.uid.clone()
}

/// Sends the request and reads the whole answer. `is_removed`: the pod is terminating already, so a mark has more time.
async fn send(context: &Context, (step, removal): (Step, Removal), intent: &Intent, is_removed: bool) -> Answer {
    let timeout = match step {
        Step::Mark if !is_removed && !intent.is_hard() => BRIEF_MARK_TIMEOUT,
        Step::Mark => MARK_TIMEOUT,
        Step::Remove if !intent.is_certain => ASKED_TIMEOUT,
        Step::Remove | Step::Get | Step::SendEvent => REQUEST_TIMEOUT,
    };
    let request = match eviction_requests::build((step, removal), intent, &context.node_name, Timestamp::now()) {
        Ok(request) => request,
        Err(error) => return Answer::Refused(format!("no valid request: {error}")),
    };
    let exchange = async {
        let response = context.client.send(request.map(Body::from)).await.map_err(|error| error_chain(&error))?;
        let code = response.status();
        let retry_after = response.headers().get(http::header::RETRY_AFTER).cloned();
        let mut body = Vec::new();
        AnswerBody(response.into_body()).read(&mut body, LARGEST_ANSWER).await?;
        let retry_after = retry_after.as_ref().and_then(|value| value.to_str().ok());
        Ok::<Answer, String>(eviction_requests::interpret(step, intent, code, retry_after, &body))
    };
    match tokio::time::timeout(timeout, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(reason)) => Answer::Unknown(reason),
        Err(_) => Answer::Unknown(format!("no answer within {} s", timeout.as_secs_f64())),
    }
}

/// Returns whether the loop has removed this decision from the ledger: it has changed to observe mode, and reports that itself.
fn is_called_off(context: &Context, intent: &Intent) -> bool {
    let open = context.ledger.find(&intent.uid);
    open.is_none_or(|open| open.intent.decided_mono_ns != intent.decided_mono_ns)
}

fn report(context: &Context, open: &Unfinished, plan: &Plan, verdict: Verdict) {
    let Unfinished { intent, is_resumed, .. } = open;
    let leaves_rest = *is_resumed && intent.frees_disk && plan.has_ended();
    context.reporter.report(Event::Eviction(EvictionUpdate { uid: intent.uid.clone(), verdict, leaves_rest }));
}
