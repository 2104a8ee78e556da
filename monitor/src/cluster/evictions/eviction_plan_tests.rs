use super::*;
use crate::cluster::evictions::intent::tests::intent;

const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(11);
const TERMINATING: Answer = Answer::Found { is_same: true, is_terminating: true, life: Life::AsBefore };
const THERE: Answer = found(Life::AsBefore);
const ANOTHER: Answer = Answer::Found { is_same: false, is_terminating: false, life: Life::AsBefore };

const fn found(life: Life) -> Answer {
    Answer::Found { is_same: true, is_terminating: false, life }
}

fn failing() -> Plan {
    Plan::of(&Intent { method: EvictionMethod::Fail, ..intent("u") }, Progress::default(), false)
}

fn hard() -> Plan {
    Plan::of(&intent("u"), Progress::default(), false)
}

fn asking() -> Intent {
    Intent { method: EvictionMethod::Evict, is_certain: false, grace_seconds: 30, ..intent("u") }
}

fn soft() -> Plan {
    Plan::of(&asking(), Progress::default(), false)
}

fn unknown() -> Answer {
    Answer::Unknown("connection reset".to_owned())
}

fn refused() -> Answer {
    Answer::Refused("forbidden".to_owned())
}

/// The steps asked, and what was heard, for these answers.
fn run(plan: &mut Plan, answers: &[(Answer, Duration)]) -> (Vec<Step>, Vec<Verdict>) {
    let (mut steps, mut verdicts) = (Vec::new(), Vec::new());
    for (answer, age) in answers {
        let Some(step) = plan.step() else { panic!("ended before {answer:?}") };
        steps.push(step);
        plan.asks();
        verdicts.extend(plan.take(answer.clone(), *age).verdict);
    }
    steps.extend(plan.step());
    (steps, verdicts)
}

fn soon(answers: &[Answer]) -> Vec<(Answer, Duration)> {
    answers.iter().map(|answer| (answer.clone(), SOON)).collect()
}

#[test]
fn a_certain_eviction_marks_deletes_and_sends_an_event() {
    let (steps, verdicts) = run(&mut hard(), &soon(&[Answer::Done, Answer::Done, Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::SendEvent]);
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Done(None)]);
}

#[test]
fn the_eviction_api_sets_the_mark_of_an_asked_eviction() {
    let (steps, verdicts) = run(&mut soft(), &soon(&[Answer::Done, Answer::AlreadyExists]));
    assert_eq!(steps, [Step::Remove, Step::SendEvent]);
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Done(None)]);
}

#[test]
fn an_eviction_begun_elsewhere_is_asked_for_once() {
    let begun = Begun { reason: "migrates".to_owned(), is_explicit: true };
    let (steps, verdicts) = run(&mut soft(), &soon(&[Answer::Begun(begun.clone())]));
    assert_eq!((steps, verdicts), (vec![Step::Remove], vec![Verdict::Begun(begun.clone())]));
    // The agent kills the pod itself: there is nothing left to migrate.
    let (steps, verdicts) = run(&mut hard(), &soon(&[Answer::Done, Answer::Begun(begun), Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::Remove, Step::SendEvent]);
    assert_eq!(verdicts, [Verdict::Delayed("migrates".to_owned()), Verdict::Accepted]);
}

#[test]
fn a_failed_mark_does_not_stop_the_removal() {
    let answers = soon(&[unknown(), unknown(), Answer::Done, Answer::Done, Answer::Done]);
    let (steps, _) = run(&mut hard(), &answers);
    assert_eq!(steps, [Step::Mark, Step::Mark, Step::Remove, Step::Mark, Step::SendEvent], "marked afterwards");
    let (steps, verdicts) = run(&mut hard(), &soon(&[refused(), Answer::Done, Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::SendEvent], "a refused mark is not retried");
    let note = "the pod does not carry the condition DisruptionTarget: forbidden".to_owned();
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Done(Some(note))]);
}

#[test]
fn a_certain_eviction_is_retried_without_an_answer() {
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done]));
    for _ in 0..100 {
        let (steps, verdicts) = run(&mut plan, &[(unknown(), Duration::from_secs(86_400))]);
        assert_eq!(steps, [Step::Remove, Step::Remove]);
        assert!(verdicts.iter().all(|verdicts| matches!(verdicts, Verdict::Delayed(_))), "{verdicts:?}");
    }
    let (steps, verdicts) = run(&mut plan, &soon(&[Answer::NotFound]));
    assert_eq!((steps, verdicts), (vec![Step::Remove, Step::SendEvent], vec![Verdict::Gone]));
}

#[test]
fn a_delay_is_reported_once_and_a_refusal_ends() {
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done]));
    let (_, verdicts) = run(&mut plan, &soon(&[refused(), refused(), unknown()]));
    assert_eq!(verdicts, [Verdict::Delayed("forbidden".to_owned())]);
    let (steps, verdicts) = run(&mut plan, &soon(&vec![refused(); 117]));
    assert_eq!((steps.last(), verdicts), (Some(&Step::Remove), vec![Verdict::GivenUp("forbidden".to_owned())]));
    assert_eq!(plan.step(), None);
}

#[test]
fn a_budget_or_a_refusal_ends_an_asked_eviction() {
    let no = "would violate the budget".to_owned();
    for (answer, verdicts) in [
        (Answer::Budget(no.clone()), Verdict::Refused(no)),
        (refused(), Verdict::Refused("forbidden".to_owned())),
        (Answer::NotFound, Verdict::Gone),
    ] {
        assert_eq!(run(&mut soft(), &soon(&[answer])), (vec![Step::Remove], vec![verdicts]), "no further request");
    }
}

#[test]
fn a_budget_ends_a_certain_eviction_too() {
    let by_api = Intent { method: EvictionMethod::Evict, ..intent("u") };
    let mut plan = Plan::of(&by_api, Progress::default(), false);
    let (steps, verdicts) = run(&mut plan, &soon(&[Answer::Budget("no".to_owned())]));
    assert_eq!((steps, verdicts), (vec![Step::Remove], vec![Verdict::Refused("no".to_owned())]));
}

#[test]
fn another_pod_of_the_name_is_never_touched() {
    let (steps, verdicts) = run(&mut hard(), &soon(&[Answer::Conflict, Answer::Conflict, ANOTHER, Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::Get, Step::SendEvent]);
    assert_eq!(verdicts, [Verdict::Gone, Verdict::Done(None)]);
    let (steps, verdicts) = run(&mut soft(), &soon(&[Answer::Conflict, ANOTHER]));
    assert_eq!((steps, verdicts), (vec![Step::Remove, Step::Get], vec![Verdict::Gone]), "no event");
}

#[test]
fn a_conflict_with_another_client_is_retried() {
    let (steps, _) = run(&mut soft(), &soon(&[Answer::Conflict, THERE, Answer::Done]));
    assert_eq!(steps, [Step::Remove, Step::Get, Step::Remove, Step::SendEvent]);
    let answers = [(Answer::Conflict, LATE), (THERE, LATE)];
    let (steps, verdicts) = run(&mut soft(), &answers);
    assert_eq!(steps, [Step::Remove, Step::Get]);
    assert!(matches!(verdicts[..], [Verdict::NoAnswer(_)]), "{verdicts:?}");
}

#[test]
fn a_removal_without_an_answer_is_checked() {
    for (found, steps, last) in [
        (THERE, vec![Step::Get], None),
        (TERMINATING, vec![Step::Get, Step::SendEvent], Some(Verdict::Accepted)),
        (Answer::NotFound, vec![Step::Get, Step::SendEvent], Some(Verdict::Gone)),
        (ANOTHER, vec![Step::Get, Step::SendEvent], Some(Verdict::Gone)),
    ] {
        let mut plan = soft();
        let (_, verdicts) = run(&mut plan, &[(unknown(), SOON), (unknown(), LATE)]);
        assert_eq!(verdicts, [Verdict::NoAnswer("connection reset".to_owned())]);
        let (asked, verdicts) = run(&mut plan, &[(found.clone(), LATE)]);
        assert_eq!(asked, steps, "{found:?}");
        if let Some(last) = last {
            assert_eq!(verdicts, [last]);
        }
    }
}

#[test]
fn a_removal_that_was_only_deferred_is_not_checked() {
    let busy = |seconds| Answer::Busy { after: Some(Duration::from_secs(seconds)), reason: "later".to_owned() };
    let mut plan = soft();
    plan.asks();
    let outcome = plan.take(busy(2), SOON);
    assert_eq!(outcome, Outcome { wait: Wait::For(Duration::from_secs(2)), verdict: None });
    let outcome = plan.take(busy(30), SOON);
    assert_eq!(outcome.verdict, Some(Verdict::NoAnswer("later".to_owned())), "the wait would end too late");
    assert_eq!(plan.step(), None);
}

#[test]
fn a_restarted_agent_resumes_at_the_progress() {
    let of = |intent: &Intent, progress| Plan::of(intent, progress, true).step();
    let (none, asked) = (Progress::default(), Progress { asked: true, ..Progress::default() });
    let marked = Progress { marked: true, ..asked };
    let removed = Progress { removed: true, ..asked };
    assert_eq!(of(&intent("u"), none), Some(Step::Mark));
    assert_eq!(of(&intent("u"), marked), Some(Step::Remove));
    assert_eq!(of(&intent("u"), Progress { removed: true, ..marked }), Some(Step::SendEvent));
    assert_eq!(of(&intent("u"), removed), Some(Step::Mark));
    assert_eq!(of(&asking(), none), None, "never requested, and the pressure may be over");
    assert_eq!(of(&asking(), asked), Some(Step::Get), "not requested again");
    assert_eq!(of(&asking(), removed), Some(Step::SendEvent));
    let quiet = Intent { wants_mark: false, wants_event: false, ..intent("u") };
    assert_eq!(of(&quiet, removed), None);
    let mut plan = Plan::of(&asking(), asked, true);
    let (steps, _) = run(&mut plan, &soon(&[Answer::NotFound]));
    assert_eq!(steps, [Step::Get, Step::SendEvent]);
}

#[test]
fn an_event_is_retried_until_it_exists() {
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done, Answer::Done]));
    let (steps, verdicts) = run(&mut plan, &soon(&[unknown(), unknown(), Answer::AlreadyExists]));
    assert_eq!((steps.len(), verdicts), (3, vec![Verdict::Done(None)]));
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done, Answer::Done]));
    let (_, verdicts) = run(&mut plan, &soon(&vec![refused(); 5]));
    assert_eq!(verdicts, [Verdict::Done(Some("the event could not be sent: forbidden".to_owned()))]);
}

#[test]
fn the_first_removal_is_noted_once() {
    let mut plan = soft();
    assert!(plan.asks());
    plan.take(unknown(), SOON);
    assert!(!plan.asks());
    let mut plan = hard();
    assert!(!plan.asks(), "a mark does no harm");
}

#[test]
fn a_lasting_conflict_ends() {
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done]));
    for _ in 1..20 {
        let (steps, _) = run(&mut plan, &soon(&[Answer::Conflict]));
        assert_eq!(steps, [Step::Remove, Step::Get]);
        let outcome = plan.take(THERE, SOON);
        assert_eq!(outcome.wait, Wait::Backoff);
    }
    let (_, verdicts) = run(&mut plan, &soon(&[Answer::Conflict, THERE]));
    assert!(matches!(verdicts[..], [Verdict::GivenUp(_)]), "{verdicts:?}");
    assert_eq!(plan.step(), None);
}

#[test]
fn an_old_decision_is_given_up() {
    let mut plan = hard();
    assert_eq!(plan.expire(OLDEST_REMOVAL - SOON), None);
    assert_eq!(plan.step(), Some(Step::Get));
    let verdict = plan.expire(OLDEST_REMOVAL);
    assert!(matches!(verdict, Some(Verdict::GivenUp(ref reason)) if reason.contains("600 s ago")), "{verdict:?}");
    assert_eq!((plan.step(), plan.expire(OLDEST_REMOVAL)), (None, None));
    let removed = Progress { asked: true, marked: true, removed: true };
    let mut resumed = Plan::of(&intent("u"), removed, true);
    assert_eq!(resumed.expire(OLDEST_REMOVAL), None, "removed: its event is still sent");
    assert_eq!(resumed.step(), Some(Step::SendEvent));
    assert!(matches!(resumed.expire(OLDEST_EVENT), Some(Verdict::Done(Some(_)))));
    let mut asked = Plan::of(&asking(), Progress { asked: true, ..Progress::default() }, true);
    assert!(asked.expire(OLDEST_REMOVAL).is_some(), "nor is it looked for");
}

#[test]
fn a_soft_eviction_marks_once_before_the_removal() {
    let soft = Intent { grace_seconds: 30, ..intent("u") };
    let mut plan = Plan::of(&soft, Progress::default(), false);
    let (steps, _) = run(&mut plan, &soon(&[unknown(), Answer::Done, Answer::Done, Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::Mark, Step::SendEvent]);
}

const EVICTED: Answer = found(Life::Evicted { is_over: true });

#[test]
fn a_failed_status_has_the_mark_in_it_and_is_watched() {
    let answers = soon(&[Answer::Done, Answer::Done, found(Life::Ended), EVICTED, EVICTED, EVICTED]);
    let mut plan = failing();
    let (steps, verdicts) = run(&mut plan, &answers);
    assert!(plan.has_ended());
    assert_eq!(steps, [vec![Step::Remove, Step::SendEvent], vec![Step::Get; 4]].concat());
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Done(None)]);
    let reverted = soon(&[Answer::Done, Answer::Done, THERE, Answer::Done, EVICTED, EVICTED, EVICTED, EVICTED]);
    let (steps, _) = run(&mut failing(), &reverted);
    assert_eq!(steps[2..], [Step::Get, Step::Remove, Step::Get, Step::Get, Step::Get, Step::Get], "written again");
    let mut plan = failing();
    let (steps, verdicts) = run(&mut plan, &soon(&[Answer::Done, Answer::Done, Answer::NotFound]));
    assert_eq!((steps.len(), verdicts.last()), (3, Some(&Verdict::Done(None))), "deleted meanwhile");
    assert!(!plan.has_ended());
    let removed = Progress { asked: true, marked: true, removed: true };
    let mut resumed = Plan::of(&Intent { method: EvictionMethod::Fail, ..intent("u") }, removed, true);
    let (steps, _) = run(&mut resumed, &soon(&[Answer::AlreadyExists, EVICTED]));
    assert_eq!(steps, [Step::SendEvent, Step::Get, Step::Get]);
}

#[test]
fn a_watch_ends_and_says_how() {
    let late = Duration::from_secs(150);
    let unknown_to_kubelet = found(Life::Evicted { is_over: false });
    for (answer, expected) in [
        (found(Life::Restarted), "Restarted"),
        (unknown_to_kubelet, "Done(Some(\"it may not be seen as evicted: the kubelet has not said that it knows"),
    ] {
        let mut plan = failing();
        let (_, verdicts) = run(&mut plan, &soon(&[Answer::Done, Answer::Done]));
        assert_eq!(verdicts, [Verdict::Accepted]);
        assert_eq!(plan.take(answer.clone(), SOON).wait, Wait::WhileFailed(LOOK_EVERY));
        let verdict = format!("{:?}", plan.take(answer, late).verdict.unwrap());
        assert!(verdict.starts_with(expected), "{verdict}");
        assert!(!plan.has_ended(), "{verdict}");
    }
}

/// Asks for the next step at this age of the decision.
fn at(plan: &mut Plan, age: Duration) -> Option<Step> {
    assert_eq!(plan.expire(age), None);
    plan.step()
}

#[test]
fn a_late_removal_leaves_what_runs_again_alone() {
    let late = Duration::from_secs(4);
    for intent in [intent("u"), Intent { method: EvictionMethod::Fail, ..intent("u") }] {
        let plan = || Plan::of(&intent, Progress::default(), false);
        assert_ne!(at(&mut plan(), SOON), Some(Step::Get));
        let mut restarted = plan();
        assert_eq!(at(&mut restarted, late), Some(Step::Get));
        let outcome = restarted.take(found(Life::Restarted), late);
        assert_eq!((outcome.verdict, restarted.step()), (Some(Verdict::Restarted), None));

        let mut stopped = plan();
        assert_eq!(at(&mut stopped, late), Some(Step::Get));
        stopped.take(found(Life::Stopped), late);
        assert_eq!(at(&mut stopped, late), Some(Step::Remove));
        stopped.take(unknown(), late);
        assert_eq!(at(&mut stopped, late), Some(Step::Get), "looked at again after an attempt without an answer");

        let mut unreported = plan();
        for _ in 0..LOOKS_FOR_REPORT {
            assert_eq!(at(&mut unreported, late), Some(Step::Get));
            assert_eq!(unreported.take(THERE, late).wait, Wait::Pause(LOOK_EVERY));
        }
        unreported.take(THERE, late);
        assert_eq!(at(&mut unreported, late), Some(Step::Remove), "there is no kubelet that would report");

        let mut refused_status = plan();
        for _ in 0..LOOKS_FOR_REPORT {
            assert_eq!(at(&mut refused_status, late), Some(Step::Get), "an API server that has just started");
            assert_eq!(refused_status.take(refused(), late).wait, Wait::Pause(LOOK_EVERY));
        }
        at(&mut refused_status, late);
        let outcome = refused_status.take(refused(), late);
        assert!(matches!(outcome.verdict, Some(Verdict::GivenUp(_))), "nothing is done blindly: {outcome:?}");

        let mut started = plan();
        for answer in [refused(), refused(), found(Life::Restarted)] {
            assert_eq!(at(&mut started, late), Some(Step::Get));
            let verdict = started.take(answer, late).verdict;
            assert_eq!(verdict == Some(Verdict::Restarted), started.step().is_none(), "{verdict:?}");
        }
        assert_eq!(started.step(), None, "left alone");

        let mut ended = plan();
        at(&mut ended, late);
        assert_eq!(ended.take(EVICTED, late).verdict, Some(Verdict::Accepted), "an earlier request was carried out");
    }
    let mut asked = soft();
    assert_eq!(at(&mut asked, LATE), Some(Step::Remove), "nothing was killed");
    let insisting = Intent { grace_seconds: 30, ..intent("u") };
    let mut in_grace = Plan::of(&insisting, Progress::default(), false);
    assert_eq!(at(&mut in_grace, late), Some(Step::Get));
    in_grace.take(THERE, late);
    assert_eq!(at(&mut in_grace, late), Some(Step::Remove), "it may still run");
    let mut conflicting = hard();
    run(&mut conflicting, &soon(&[Answer::Done, Answer::Conflict]));
    assert_eq!(conflicting.take(found(Life::Restarted), SOON).verdict, Some(Verdict::Restarted));
}

#[test]
fn a_refused_removal_is_looked_at_before_each_attempt() {
    let late = Duration::from_secs(4);
    let mut plan = hard();
    for _ in 0..3 {
        assert_eq!(at(&mut plan, late), Some(Step::Get));
        plan.take(found(Life::Stopped), late);
        assert_eq!(at(&mut plan, late), Some(Step::Remove));
        plan.take(refused(), late);
    }
    assert_eq!(at(&mut plan, late), Some(Step::Get));
    assert_eq!(plan.take(found(Life::Restarted), late).verdict, Some(Verdict::Restarted));
}

#[test]
fn without_the_right_no_other_method_bypasses_budgets() {
    let forbidden = || Answer::NotPermitted("forbidden".to_owned());
    for method in [EvictionMethod::Evict, EvictionMethod::Fail, EvictionMethod::Delete] {
        let asking = Intent { method, wants_mark: false, ..asking() };
        let mut plan = Plan::of(&asking, Progress::default(), false);
        let (steps, verdicts) = run(&mut plan, &soon(&vec![forbidden(); REFUSED_FOR_RIGHT as usize]));
        assert_eq!(steps, [Step::Remove; REFUSED_FOR_RIGHT as usize], "{method:?}");
        assert_eq!((verdicts, plan.removal().method), (vec![Verdict::Refused("forbidden".to_owned())], method));

        let mut certain = Plan::of(&Intent { is_certain: true, ..asking }, Progress::default(), false);
        let refusals = REFUSED_REMOVALS as usize;
        let (steps, verdicts) = run(&mut certain, &soon(&vec![forbidden(); refusals]));
        assert_eq!((steps.len(), certain.removal().method), (refusals, method), "{method:?}");
        let [delayed, given_up] = [Verdict::Delayed, Verdict::GivenUp].map(|verdict| verdict("forbidden".to_owned()));
        assert_eq!(verdicts, [delayed, given_up]);
    }
    let mut started = soft();
    let (_, verdicts) = run(&mut started, &soon(&[forbidden(), Answer::Budget("no".to_owned())]));
    assert_eq!(verdicts, [Verdict::Refused("no".to_owned())], "an API server that has just started");
}

#[test]
fn where_the_annotation_is_denied_it_is_left_out() {
    let denied = || Answer::Denied("no annotations".to_owned());
    let at_once = Outcome { wait: Wait::None, verdict: None };
    let mut plan = failing();
    plan.take(refused(), SOON);
    assert!(plan.removal().wakes_kubelet, "refused for another reason");
    assert_eq!(plan.take(denied(), SOON), at_once);
    assert_eq!((plan.step(), plan.removal().wakes_kubelet), (Some(Step::Remove), false));
    assert_ne!(plan.take(denied(), SOON), at_once, "it is not the annotation");
    let mut written = failing();
    run(&mut written, &soon(&[Answer::Done, Answer::Done, found(Life::Stopped)]));
    assert_eq!(written.take(denied(), SOON), at_once);
    assert_eq!((written.step(), written.removal().wakes_kubelet), (Some(Step::Remove), false));
    let mut asked = soft();
    assert_eq!(asked.take(denied(), SOON).verdict, Some(Verdict::Refused("no annotations".to_owned())));
}
