use super::*;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Monotonic {
    Monotonic(1_000 * MS + ms * MS)
}

fn wall() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn trigger(pid: i32) -> Trigger {
    Trigger { pid: Some(pid), ..Trigger::default() }
}

fn mark(pid: i32, ms: u64, invoked: Option<u64>, by: i32) -> Mark {
    Mark { at: at(ms), invoked: invoked.map(at), victim_pid: pid, trigger: trigger(by) }
}

fn kill(pid: i32, marked: u64, exited: u64, invoked: Option<u64>, by: i32) -> Kill {
    Kill {
        at: at(exited),
        marked: at(marked),
        invoked: invoked.map(at),
        victim: Victim { pid, uid: Some(1000), ..Victim::default() },
        kill: OomKill { trigger: Some(trigger(by)), constraint: Some("memcg".to_owned()), ..OomKill::default() },
    }
}

/// An input of the assembler; `Due` asks for the reports due at that time.
enum Input {
    Mark(Box<Mark>),
    Kill(Box<Kill>),
    Due(u64),
}

/// The time of the report, the incident's id, and its victims: process id, whether its exit is known.
type Report = (u64, String, Vec<(i32, bool)>);

fn reports(inputs: Vec<Input>) -> Vec<Report> {
    let mut assembler = Assembler::default();
    let mut reports = Vec::new();
    for input in inputs {
        match input {
            Input::Mark(mark) => assembler.mark(*mark, wall()),
            Input::Kill(kill) => drop(assembler.kill(*kill, wall()).to_owned()),
            Input::Due(ms) => {
                for Assembled { id, kill, .. } in assembler.due(at(ms)) {
                    reports.push((ms, id, kill.victims.iter().map(|it| (it.pid, it.uid.is_some())).collect()));
                }
            }
        }
    }
    reports
}

fn one(ms: u64, pid: i32, victims: &[(i32, bool)]) -> Report {
    (ms, format!("20260102-030405-oom-{pid}"), victims.to_vec())
}

#[test]
fn one_incident_for_each_invocation() {
    use Input::{Due, Kill, Mark};
    let mark = |pid, ms, invoked, by| Box::new(mark(pid, ms, invoked, by));
    let kill = |pid, marked, gone, invoked, by| Kill(Box::new(kill(pid, marked, gone, invoked, by)));
    for (name, inputs, expected) in [
        (
            "one victim is reported after its exit and after the marks have settled",
            vec![Mark(mark(7, 1, Some(0), 9)), Due(5), kill(7, 1, 6, Some(0), 9), Due(7), Due(21), Due(5000)],
            vec![one(21, 7, &[(7, true)])],
        ),
        (
            "a group: a mark arrives after the first exit",
            vec![
                Mark(mark(7, 1, Some(0), 9)),
                kill(7, 1, 2, Some(0), 9),
                Due(3),
                Mark(mark(8, 4, Some(0), 9)),
                Due(30),
                kill(8, 4, 40, Some(0), 9),
                Due(41),
            ],
            vec![one(41, 7, &[(7, true), (8, true)])],
        ),
        (
            "two invocations of one task are two incidents if their times are known",
            vec![
                Mark(mark(7, 1, Some(0), 9)),
                Mark(mark(8, 3, Some(2), 9)),
                kill(8, 3, 4, Some(2), 9),
                kill(7, 1, 5, Some(0), 9),
                Due(50),
            ],
            vec![one(50, 7, &[(7, true)]), one(50, 8, &[(8, true)])],
        ),
        (
            "without the time of the invocation, marks of one task within 100 ms are one incident",
            vec![
                Mark(mark(7, 1, None, 9)),
                Mark(mark(8, 3, None, 9)),
                kill(8, 3, 4, None, 9),
                kill(7, 1, 5, None, 9),
                Mark(mark(10, 4, None, 99)),
                kill(10, 4, 6, None, 99),
                Mark(mark(11, 150, None, 9)),
                kill(11, 150, 151, None, 9),
                Due(200),
            ],
            vec![one(200, 7, &[(8, true), (7, true)]), one(200, 10, &[(10, true)]), one(200, 11, &[(11, true)])],
        ),
        (
            "a victim that hangs is reported after two seconds, and again after its exit",
            vec![
                Mark(mark(7, 0, Some(0), 9)),
                Mark(mark(8, 0, Some(0), 9)),
                kill(7, 0, 3, Some(0), 9),
                Due(1999),
                Due(2000),
                Due(3000),
                kill(8, 0, 9000, Some(0), 9),
                Due(9000),
                Due(9500),
            ],
            vec![one(2000, 7, &[(7, true), (8, false)]), one(9000, 7, &[(7, true), (8, true)])],
        ),
        (
            "a process with several threads: the kernel marked another than its first",
            vec![Mark(mark(77, 1, Some(0), 9)), kill(7, 1, 6, Some(0), 9), Due(30), Due(5000)],
            vec![one(30, 77, &[(7, true)])],
        ),
        (
            "a mark that is lost, or arrives after its kill, changes nothing",
            vec![kill(7, 1, 2, Some(0), 9), Mark(mark(7, 1, Some(0), 9)), Due(30), Due(3000)],
            vec![one(30, 7, &[(7, true)])],
        ),
    ] {
        assert_eq!(reports(inputs), expected, "{name}");
    }
}

#[test]
fn next_due_is_the_time_of_the_next_report() {
    let mut assembler = Assembler::default();
    assert_eq!(assembler.next_due(at(0)), None);
    assembler.mark(mark(7, 0, Some(0), 9), wall());
    assert_eq!(assembler.next_due(at(500)), Some(Duration::from_millis(1500)));
    assembler.kill(kill(7, 0, 510, Some(0), 9), wall());
    assert_eq!(assembler.next_due(at(510)), Some(Duration::ZERO));
    assert_eq!(assembler.due(at(510)).len(), 1);
    assert_eq!(assembler.next_due(at(510)), None);
}

#[test]
fn steps_count_from_the_invocation() {
    let mut assembler = Assembler::default();
    assembler.mark(mark(7, 3, Some(0), 9), wall());
    assembler.kill(kill(7, 3, 5, Some(0), 9), wall());
    let [assembled] = &assembler.due(at(100))[..] else { panic!("one") };
    let steps: Vec<(&str, f64)> = assembled.steps.iter().map(|step| (step.step.as_str(), step.ms)).collect();
    assert_eq!(steps, [("invoked", 0.0), ("marked", 3.0), ("exited", 5.0)]);
    assert_eq!(assembled.at, at(0));
    assert!(!assembled.kill.group);
    assert_eq!(assembled.kill.constraint.as_deref(), Some("memcg"));
    assert_eq!(assembled.kill.trigger, Some(trigger(9)));
}

#[test]
fn a_storm_is_bounded_and_loses_nothing() {
    let mut assembler = Assembler::default();
    let mut reported = 0;
    for pid in 0..5000_i32 {
        let ms = u64::from(pid.unsigned_abs());
        // No victim exits.
        assembler.mark(mark(pid, ms / 100, Some(ms), pid), wall());
        reported += assembler.due(at(ms / 100)).len();
        assert!(assembler.open.len() <= OPEN + 1, "{}", assembler.open.len());
    }
    reported += assembler.due(at(60_000)).len();
    assert_eq!(reported, 5000);
    let mut assembler = Assembler::default();
    for pid in 0..300 {
        assembler.kill(kill(pid, 0, 1, Some(0), 9), wall());
    }
    let [assembled] = &assembler.due(at(100))[..] else { panic!("one") };
    assert_eq!((assembled.kill.victims.len(), assembled.kill.victims_omitted), (VICTIMS, 300 - VICTIMS));
    assert!(assembled.kill.group);
}

#[test]
fn a_large_group_is_reported_a_few_times() {
    let mut assembler = Assembler::default();
    let mut reported = Vec::new();
    for pid in 0..1000 {
        assembler.mark(mark(pid, 0, Some(0), 9), wall());
    }
    for pid in 0..1000_u32 {
        let now = u64::from(pid) * 20;
        assembler.kill(kill(i32::try_from(pid).unwrap(), 0, now, Some(0), 9), wall());
        reported.extend(assembler.due(at(now)).into_iter().map(|it| (now, it.complete)));
    }
    reported.extend(assembler.due(at(60_000)).into_iter().map(|it| (60_000, it.complete)));
    assert_eq!(reported, [(2_000, false), (4_000, false), (8_000, false), (16_000, false), (60_000, true)]);
}

#[test]
fn the_rest_is_reported_once() {
    let mut assembler = Assembler::default();
    assembler.mark(mark(7, 0, Some(0), 9), wall());
    assert_eq!(assembler.due(at(1)).len(), 0);
    assert_eq!(assembler.rest(at(1)).len(), 1);
    assert_eq!(assembler.rest(at(2)).len(), 0);
}
