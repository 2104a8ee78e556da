//! The notes of `simulate` besides the answer, and its protection of the terminal.

use super::*;

#[test]
fn a_clock_that_goes_back_is_accepted_with_a_note() {
    let place = Place::new(KUBELET);
    let lines: Vec<Value> = (0..20).map(|index| line(if index % 2 == 0 { 100 } else { 50 }, 2 << 30)).collect();
    let output = place.simulate(trace(&lines), &["--stats"]);
    let notes: Vec<&str> = text(&output.stderr).lines().collect();
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(0), 20));
    assert!(notes[0].ends_with("trace.jsonl:2: the clock goes back here, to 2026-01-01T00:00:50Z"), "{notes:?}");
    assert_eq!(notes[5], "node-pressure-monitor: and 5 more such notes");
    assert!(notes[6].starts_with("20 lines in ") && notes[6].ends_with(" lines/s)"), "{notes:?}");
    assert_eq!(notes.len(), 7, "{notes:?}");
}

#[test]
fn an_unwritable_stderr_keeps_the_answer() {
    let place = Place::new(&format!("{KUBELET}failSwapOn: false\n"));
    let trace = place.write("trace.jsonl", trace(&[line(100, 2 << 30), line(50, 2 << 30)]));
    let run = |trace: &Path| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        place.command(&["--stats"]).arg(trace).stdout(Stdio::piped()).stderr(full).output().unwrap()
    };
    let output = run(&trace);
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(0), 2));
    assert_eq!(run(Path::new("/nonexistent")).status.code(), Some(2));
}

#[test]
fn names_cannot_send_control_characters_to_the_terminal() {
    let place = Place::new(KUBELET);
    let odd = "a\u{1b}[2Jb\nc\u{9b}d";
    let named = |mut line: Value| {
        for pod in 0..2 {
            line["pods"][pod]["metadata"]["name"] = format!("{odd}{pod}").into();
            line["pods"][pod]["spec"]["containers"][0]["name"] = odd.into();
        }
        line["summary"]["pods"][0]["containers"][0]["name"] = odd.into();
        line
    };
    let mut limited = named(line(10, 2 << 30));
    limited["pods"][1]["spec"]["volumes"] = json!([{"name": odd, "emptyDir": {"sizeLimit": "1Mi"}}]);
    limited["summary"]["pods"][0]["volume"] = json!([{"name": odd, "usedBytes": 2 << 20}]);
    let mut same = named(line(20, 2 << 30));
    same["pods"][0]["metadata"]["name"] = same["pods"][1]["metadata"]["name"].clone();
    let output = place.simulate(trace(&[named(line(0, 50 << 20)), limited, same]), &["--output", "table"]);
    assert_eq!(output.status.code(), Some(0));
    for told in [text(&output.stdout), text(&output.stderr)] {
        assert!(told.chars().all(|letter| letter == '\n' || !letter.is_control()), "{told:?}");
    }
    let shown = "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d";
    for words in
        [format!("evicts shop/{shown}1 within"), format!("Container {shown} was using"), format!("rest  shop/{shown}0")]
    {
        assert!(text(&output.stdout).contains(&words), "{words}\n{}", text(&output.stdout));
    }
    let lines = text(&output.stdout).lines().filter(|line| !line.contains(shown)).count();
    assert!(lines <= 3, "a name has no lines of its own\n{}", text(&output.stdout));
}

#[test]
fn policy_warnings_are_counted_and_swap_is_reported() {
    let forgetful = KUBELET.replace(", imagefs.available: 0%", "");
    let place = Place::new(&format!("{forgetful}failSwapOn: false\n"));
    let output = place.simulate("", &[]);
    let told = text(&output.stderr);
    let file = place.path("policy.yaml").display().to_string();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.starts_with(&format!("warning: {file}:")) && told.contains("failSwapOn: \"false\": swap may be"),
        "{told}"
    );
    assert!(told.ends_with(&format!("{file}: 1 warning; see `check-config {file}`\n")), "{told}");
}

#[test]
fn swap_of_the_node_is_reported_once() {
    let place = Place::new(KUBELET);
    let with_swap = |second: u64, swap: u64| {
        let mut line = line(second, 2 << 30);
        line["summary"]["node"]["swap"] = json!({"swapAvailableBytes": swap, "swapUsageBytes": 0});
        line
    };
    let output = place.simulate(trace(&[with_swap(0, 0), with_swap(10, 1 << 30), with_swap(20, 1 << 30)]), &[]);
    let told = text(&output.stderr);
    assert!(told.contains("trace.jsonl:2: swap is on (0 B of 1.0 GiB used)"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn of_pods_with_one_name_the_last_counts_with_a_note() {
    let place = Place::new(KUBELET);
    let twice = |second: u64| {
        let mut line = line(second, 2 << 30);
        line["pods"][0]["metadata"]["name"] = "web".into();
        line
    };
    let output = place.simulate(trace(&[line(0, 2 << 30), twice(10), twice(20)]), &[]);
    let told = text(&output.stderr);
    assert!(
        told.contains("trace.jsonl:2: pods: two are shop/web; of pods with the same name the last counts"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn the_policy_may_be_standard_input_but_not_the_trace_too() {
    let place = Place::new(KUBELET);
    let trace = place.write("trace.jsonl", trace(&[line(0, 2 << 30)]));
    let run = |trace: Option<&Path>| {
        let policy = fs::File::open(place.path("policy.yaml")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["simulate", "--config", "-"]).args(trace).stdin(policy).output().unwrap()
    };
    assert_eq!(text(&run(Some(&trace)).stdout).lines().count(), 1);
    for trace in [None, Some(Path::new("-"))] {
        let output = run(trace);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("the trace is standard input already"), "{}", text(&output.stderr));
    }
}
