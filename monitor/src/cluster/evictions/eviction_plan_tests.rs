use super::*;
use crate::cluster::evictions::intent::tests::intent;

const SOON: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(11);
const LEAVING: Answer = Answer::Found { is_same: true, is_leaving: true };
const THERE: Answer = Answer::Found { is_same: true, is_leaving: false };
const ANOTHER: Answer = Answer::Found { is_same: false, is_leaving: false };

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
    let (mut steps, mut news) = (Vec::new(), Vec::new());
    for (answer, age) in answers {
        let Some(step) = plan.step() else { panic!("ended before {answer:?}") };
        steps.push(step);
        plan.asks();
        news.extend(plan.take(answer.clone(), *age).news);
    }
    steps.extend(plan.step());
    (steps, news)
}

fn soon(answers: &[Answer]) -> Vec<(Answer, Duration)> {
    answers.iter().map(|answer| (answer.clone(), SOON)).collect()
}

#[test]
fn what_the_agent_ends_itself_is_marked_deleted_and_told() {
    let (steps, news) = run(&mut hard(), &soon(&[Answer::Done, Answer::Done, Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::Tell]);
    assert_eq!(news, [Verdict::Accepted, Verdict::Done(None)]);
}

#[test]
fn what_is_asked_first_is_marked_once_it_is_accepted() {
    let (steps, news) = run(&mut soft(), &soon(&[Answer::Done, Answer::Done, Answer::Exists]));
    assert_eq!(steps, [Step::Remove, Step::Mark, Step::Tell]);
    assert_eq!(news, [Verdict::Accepted, Verdict::Done(None)]);
}

#[test]
fn a_removal_does_not_wait_for_a_mark() {
    let answers = soon(&[unknown(), unknown(), Answer::Done, Answer::Done, Answer::Done]);
    let (steps, _) = run(&mut hard(), &answers);
    assert_eq!(steps, [Step::Mark, Step::Mark, Step::Remove, Step::Mark, Step::Tell], "and it is marked afterwards");
    let (steps, news) = run(&mut hard(), &soon(&[refused(), Answer::Done, Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::Tell], "what is not allowed is not tried again");
    let note = "the pod does not carry the condition DisruptionTarget: forbidden".to_owned();
    assert_eq!(news, [Verdict::Accepted, Verdict::Done(Some(note))]);
}

#[test]
fn what_the_agent_has_ended_is_never_given_up_for_want_of_an_answer() {
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done]));
    for _ in 0..100 {
        let (steps, news) = run(&mut plan, &[(unknown(), Duration::from_secs(86_400))]);
        assert_eq!(steps, [Step::Remove, Step::Remove]);
        assert!(news.iter().all(|news| matches!(news, Verdict::Delayed(_))), "{news:?}");
    }
    let (steps, news) = run(&mut plan, &soon(&[Answer::Gone]));
    assert_eq!((steps, news), (vec![Step::Remove, Step::Tell], vec![Verdict::Gone]));
}

#[test]
fn trouble_is_said_once_and_a_refusal_ends_at_last() {
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done]));
    let (_, news) = run(&mut plan, &soon(&[refused(), refused(), unknown()]));
    assert_eq!(news, [Verdict::Delayed("forbidden".to_owned())]);
    let (steps, news) = run(&mut plan, &soon(&vec![refused(); 117]));
    assert_eq!((steps.last(), news), (Some(&Step::Remove), vec![Verdict::GivenUp("forbidden".to_owned())]));
    assert_eq!(plan.step(), None);
}

#[test]
fn a_budget_and_a_refusal_are_answers() {
    let no = "would violate the budget".to_owned();
    for (answer, news) in [
        (Answer::Budget(no.clone()), Verdict::Refused(no)),
        (refused(), Verdict::Refused("forbidden".to_owned())),
        (Answer::Gone, Verdict::Gone),
    ] {
        assert_eq!(run(&mut soft(), &soon(&[answer])), (vec![Step::Remove], vec![news]), "and nothing follows");
    }
}

#[test]
fn a_budget_stops_the_rest_of_what_the_agent_has_ended_too() {
    let by_api = Intent { method: EvictionMethod::Evict, ..intent("u") };
    let mut plan = Plan::of(&by_api, Progress::default(), false);
    let (steps, news) = run(&mut plan, &soon(&[Answer::Budget("no".to_owned())]));
    assert_eq!((steps, news), (vec![Step::Remove], vec![Verdict::Refused("no".to_owned())]));
}

#[test]
fn another_pod_of_that_name_is_never_touched() {
    let (steps, news) = run(&mut hard(), &soon(&[Answer::Conflict, Answer::Conflict, ANOTHER, Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::Look, Step::Tell]);
    assert_eq!(news, [Verdict::Gone, Verdict::Done(None)]);
    let (steps, news) = run(&mut soft(), &soon(&[Answer::Conflict, ANOTHER]));
    assert_eq!((steps, news), (vec![Step::Remove, Step::Look], vec![Verdict::Gone]), "nothing to tell of");
}

#[test]
fn a_conflict_with_somebody_else_is_tried_again() {
    let (steps, _) = run(&mut soft(), &soon(&[Answer::Conflict, THERE, Answer::Done]));
    assert_eq!(steps, [Step::Remove, Step::Look, Step::Remove, Step::Mark]);
    let answers = [(Answer::Conflict, LATE), (THERE, LATE)];
    let (steps, news) = run(&mut soft(), &answers);
    assert_eq!(steps, [Step::Remove, Step::Look]);
    assert!(matches!(news[..], [Verdict::NoAnswer(_)]), "{news:?}");
}

#[test]
fn who_is_not_answered_in_time_finds_out_what_came_of_it() {
    for (found, steps, last) in [
        (THERE, vec![Step::Look], None),
        (LEAVING, vec![Step::Look, Step::Mark], Some(Verdict::Accepted)),
        (Answer::Gone, vec![Step::Look, Step::Tell], Some(Verdict::Gone)),
        (ANOTHER, vec![Step::Look, Step::Tell], Some(Verdict::Gone)),
    ] {
        let mut plan = soft();
        let (_, news) = run(&mut plan, &[(unknown(), SOON), (unknown(), LATE)]);
        assert_eq!(news, [Verdict::NoAnswer("connection reset".to_owned())]);
        let (asked, news) = run(&mut plan, &[(found.clone(), LATE)]);
        assert_eq!(asked, steps, "{found:?}");
        if let Some(last) = last {
            assert_eq!(news, [last]);
        }
    }
}

#[test]
fn who_was_only_told_to_come_again_has_nothing_to_find_out() {
    let busy = |seconds| Answer::Busy { after: Some(Duration::from_secs(seconds)), reason: "later".to_owned() };
    let mut plan = soft();
    plan.asks();
    let outcome = plan.take(busy(2), SOON);
    assert_eq!(outcome, Outcome { wait: Wait::For(Duration::from_secs(2)), news: None });
    let outcome = plan.take(busy(30), SOON);
    assert_eq!(outcome.news, Some(Verdict::NoAnswer("later".to_owned())), "that would be too late");
    assert_eq!(plan.step(), None);
}

#[test]
fn an_agent_that_is_started_again_goes_on_where_the_last_one_ended() {
    let of = |intent: &Intent, progress| Plan::of(intent, progress, true).step();
    let (none, asked) = (Progress::default(), Progress { asked: true, ..Progress::default() });
    let marked = Progress { marked: true, ..asked };
    let removed = Progress { removed: true, ..asked };
    assert_eq!(of(&intent("u"), none), Some(Step::Mark));
    assert_eq!(of(&intent("u"), marked), Some(Step::Remove));
    assert_eq!(of(&intent("u"), Progress { removed: true, ..marked }), Some(Step::Tell));
    assert_eq!(of(&intent("u"), removed), Some(Step::Mark));
    assert_eq!(of(&asking(), none), None, "nobody asked, and why is forgotten");
    assert_eq!(of(&asking(), asked), Some(Step::Look), "it is not asked for again");
    assert_eq!(of(&asking(), removed), Some(Step::Mark));
    let quiet = Intent { wants_mark: false, wants_event: false, ..intent("u") };
    assert_eq!(of(&quiet, removed), None);
    let mut plan = Plan::of(&asking(), asked, true);
    let (steps, _) = run(&mut plan, &soon(&[Answer::Gone]));
    assert_eq!(steps, [Step::Look, Step::Tell]);
}

#[test]
fn an_event_is_sent_until_it_is_there() {
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done, Answer::Done]));
    let (steps, news) = run(&mut plan, &soon(&[unknown(), unknown(), Answer::Exists]));
    assert_eq!((steps.len(), news), (3, vec![Verdict::Done(None)]));
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done, Answer::Done]));
    let (_, news) = run(&mut plan, &soon(&vec![refused(); 5]));
    assert_eq!(news, [Verdict::Done(Some("the event could not be sent: forbidden".to_owned()))]);
}

#[test]
fn what_is_asked_is_written_down_once() {
    let mut plan = soft();
    assert!(plan.asks());
    plan.take(unknown(), SOON);
    assert!(!plan.asks());
    let mut plan = hard();
    assert!(!plan.asks(), "a mark does no harm");
}

#[test]
fn a_conflict_that_lasts_ends_at_last() {
    let mut plan = hard();
    run(&mut plan, &soon(&[Answer::Done]));
    for _ in 1..20 {
        let (steps, _) = run(&mut plan, &soon(&[Answer::Conflict]));
        assert_eq!(steps, [Step::Remove, Step::Look]);
        let outcome = plan.take(THERE, SOON);
        assert_eq!(outcome.wait, Wait::Backoff);
    }
    let (_, news) = run(&mut plan, &soon(&[Answer::Conflict, THERE]));
    assert!(matches!(news[..], [Verdict::GivenUp(_)]), "{news:?}");
    assert_eq!(plan.step(), None);
}

#[test]
fn what_was_decided_long_ago_is_left_alone() {
    let mut plan = hard();
    assert_eq!(plan.expire(OLDEST_REMOVAL - SOON), None);
    assert_eq!(plan.step(), Some(Step::Mark));
    let verdict = plan.expire(OLDEST_REMOVAL);
    assert!(matches!(verdict, Some(Verdict::GivenUp(ref reason)) if reason.contains("600 s ago")), "{verdict:?}");
    assert_eq!((plan.step(), plan.expire(OLDEST_REMOVAL)), (None, None));
    let removed = Progress { asked: true, marked: true, removed: true };
    let mut resumed = Plan::of(&intent("u"), removed, true);
    assert_eq!(resumed.expire(OLDEST_REMOVAL), None, "it went: that is still told");
    assert_eq!(resumed.step(), Some(Step::Tell));
    assert!(matches!(resumed.expire(OLDEST_NEWS), Some(Verdict::Done(Some(_)))));
    let mut asked = Plan::of(&asking(), Progress { asked: true, ..Progress::default() }, true);
    assert!(asked.expire(OLDEST_REMOVAL).is_some(), "nor is it looked for");
}

#[test]
fn who_waits_for_the_removal_does_not_wait_for_marks() {
    let soft = Intent { grace_seconds: 30, ..intent("u") };
    let mut plan = Plan::of(&soft, Progress::default(), false);
    let (steps, _) = run(&mut plan, &soon(&[unknown(), Answer::Done, Answer::Done, Answer::Done]));
    assert_eq!(steps, [Step::Mark, Step::Remove, Step::Mark, Step::Tell]);
}
