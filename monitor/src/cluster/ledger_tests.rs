use super::*;
use crate::cluster::evictions::intent::tests::intent;
use crate::config::kubernetes_options::EvictionMethod;

fn asked() -> Progress {
    Progress { asked: true, ..Progress::default() }
}

fn unfinished(ledger: &Ledger) -> Vec<(String, Progress, bool)> {
    let of = |open: Unfinished| (open.intent.uid, open.progress, open.is_resumed);
    ledger.unfinished().into_iter().map(of).collect()
}

#[test]
fn unfinished_evictions_are_read_again() {
    let root = tempfile::tempdir().unwrap();
    let lock = root.path().join("lock");
    let path = root.path().join("lock.evictions");
    let ledger = Ledger::beside(&lock);
    assert_eq!((ledger.degradation(), ledger.is_empty()), (None, true));
    for uid in ["a", "b", "c"] {
        assert_eq!(ledger.begin(&intent(uid)), Ok(Begun::New));
    }
    ledger.note("b", asked());
    ledger.end(&intent("c"));
    drop(ledger);
    // Killed in the middle of a line.
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"is\":\"end\",\"uid\":\"a");
    std::fs::write(&path, text).unwrap();

    let next = Ledger::beside(&lock);
    let expected = [("a".to_owned(), Progress::default(), true), ("b".to_owned(), asked(), true)];
    assert_eq!(unfinished(&next), expected);
    assert_eq!(next.find("b").unwrap().intent, intent("b"), "as it was decided");
    next.end(&intent("a"));
    next.end(&intent("b"));
    assert!(Ledger::beside(&lock).is_empty());
    next.tidy();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "nothing is left to say");
}

#[test]
fn a_file_cut_anywhere_is_a_ledger() {
    let root = tempfile::tempdir().unwrap();
    let lock = root.path().join("lock");
    let path = root.path().join("lock.evictions");
    let ledger = Ledger::beside(&lock);
    ledger.begin(&intent("a")).unwrap();
    ledger.note("a", asked());
    ledger.end(&intent("a"));
    let text = std::fs::read(&path).unwrap();
    let lines: Vec<usize> = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    assert_eq!(lines.len(), 3);
    for end in 0..=text.len() {
        std::fs::write(&path, &text[..end]).unwrap();
        let next = Ledger::beside(&lock);
        // The end of a line may be missing: the line is whole.
        let expected = match end {
            end if end < lines[0] => Vec::new(),
            end if end < lines[1] => vec![("a".to_owned(), Progress::default(), true)],
            end if end < lines[2] => vec![("a".to_owned(), asked(), true)],
            _ => Vec::new(),
        };
        assert_eq!(unfinished(&next), expected, "{end}");
        next.begin(&intent("b")).unwrap();
        assert!(Ledger::beside(&lock).find("b").is_some(), "{end}: what follows is not lost");
    }
}

#[test]
fn other_boots_and_foreign_lines_are_ignored() {
    let root = tempfile::tempdir().unwrap();
    let lock = root.path().join("lock");
    let path = root.path().join("lock.evictions");
    let line = |boot: &str, intent: Intent| Record::Intent { boot: boot.to_owned(), intent }.line();
    let outside = Intent { name: "../../nodes/n".to_owned(), ..intent("c") };
    let lines = [
        line("another", intent("a")),
        line(&boot_id(), intent("b")).replacen('{', "{\"unknown\":{\"field\":[1]},", 1),
        line(&boot_id(), outside),
        "{\"is\":\"news\",\"uid\":\"b\"}".to_owned(),
        "\u{0}\u{0}".to_owned(),
    ];
    std::fs::write(&path, lines.join("\n")).unwrap();
    assert_eq!(unfinished(&Ledger::beside(&lock)), [("b".to_owned(), Progress::default(), true)]);
}

#[test]
fn an_asked_eviction_is_replaced_but_not_a_certain_one() {
    let ledger = Ledger::default();
    let soft = Intent { method: EvictionMethod::Evict, is_certain: false, ..intent("a") };
    assert_eq!(ledger.begin(&soft), Ok(Begun::New));
    ledger.note("a", asked());
    let again = Intent { decided_mono_ns: 5, ..soft.clone() };
    assert_eq!(ledger.begin(&again), Ok(Begun::New), "asked anew");
    ledger.end(&soft);
    assert_eq!(ledger.len(), 1, "the end of the first is not that of the second");
    assert_eq!(ledger.begin(&intent("a")), Ok(Begun::New));
    assert_eq!(ledger.begin(&soft), Ok(Begun::Already));
    assert_eq!(unfinished(&ledger), [("a".to_owned(), asked(), false)]);
    assert!(ledger.find("a").unwrap().intent.is_certain);
}

#[test]
fn a_second_kill_replaces_the_first_unless_the_pod_has_ended() {
    let later = |seconds: u64| Intent { decided_mono_ns: seconds * 1_000_000_000, ..intent("a") };
    let ledger = Ledger::default();
    assert_eq!(ledger.begin(&later(0)), Ok(Begun::New));
    assert_eq!(ledger.begin(&later(4)), Ok(Begun::Already), "the same kill");
    assert_eq!(ledger.begin(&later(5)), Ok(Begun::New), "the kubelet had restarted it");
    ledger.note("a", Progress { removed: true, ..asked() });
    assert_eq!(ledger.begin(&later(60)), Ok(Begun::Already));
}

#[test]
fn an_outage_of_the_api_server_does_not_fill_the_ledger() {
    use crate::cluster::evictions::eviction_plan::OLDEST_REMOVAL;
    use crate::config::EvictionLimits;
    use crate::eviction::budget::{Budget, Class};
    use crate::units::Monotonic;
    let root = tempfile::tempdir().unwrap();
    let lock = root.path().join("lock");
    let (limits, budget) = (EvictionLimits::default(), Budget::default());
    let classes = [Class::HardMemory, Class::OtherHard, Class::Soft, Class::Limit];
    let per_minute: usize = classes.map(|class| budget.figures(&limits, (class, 1000), Monotonic(0)).1).iter().sum();
    let minutes = usize::try_from(OLDEST_REMOVAL.as_secs() / 60).unwrap();
    let ledger = Ledger::beside(&lock);
    for index in 0..per_minute * minutes {
        let intent = Intent { message: "m".repeat(1024), ..intent(&index.to_string()) };
        assert_eq!(ledger.begin(&intent), Ok(Begun::New), "{index}");
    }
    assert_eq!(Ledger::beside(&lock).len(), per_minute * minutes, "the next agent reads them all");
}

#[test]
fn the_ledger_is_bounded() {
    let ledger = Ledger::default();
    for index in 0..MOST {
        assert_eq!(ledger.begin(&intent(&index.to_string())), Ok(Begun::New));
    }
    assert_eq!(ledger.begin(&intent("more")), Err(Full));
    assert_eq!(ledger.begin(&intent("0")), Ok(Begun::Already));
    ledger.end(&intent("0"));
    assert_eq!(ledger.begin(&intent("more")), Ok(Begun::New));
}

#[test]
fn an_eviction_that_never_ends_does_not_grow_the_file() {
    let root = tempfile::tempdir().unwrap();
    let lock = root.path().join("lock");
    let path = root.path().join("lock.evictions");
    let ledger = Ledger::beside(&lock);
    ledger.begin(&intent("forever")).unwrap();
    ledger.note("forever", asked());
    for index in 0..2000 {
        let uid = index.to_string();
        ledger.begin(&intent(&uid)).unwrap();
        ledger.end(&intent(&uid));
        ledger.tidy();
        assert!(std::fs::metadata(&path).unwrap().len() < LARGE + 4096);
    }
    assert_eq!(unfinished(&Ledger::beside(&lock)), [("forever".to_owned(), asked(), true)]);
}

#[test]
fn a_failed_write_is_reported_and_memory_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let ledger = Ledger::beside(&root.path().join("absent/lock"));
    assert!(ledger.degradation().unwrap().contains("absent/lock.evictions"), "{ledger:?}");
    assert_eq!(ledger.begin(&intent("a")), Ok(Begun::New));
    assert_eq!(ledger.len(), 1);
    std::fs::create_dir(root.path().join("absent")).unwrap();
    ledger.tidy();
    assert_eq!(ledger.degradation(), None);
    assert_eq!(Ledger::beside(&root.path().join("absent/lock")).len(), 1, "and is written once it can be");
}

#[test]
fn a_write_after_a_short_one_starts_a_new_line() {
    let root = tempfile::tempdir().unwrap();
    let lock = root.path().join("lock");
    let path = root.path().join("lock.evictions");
    let ledger = Ledger::beside(&lock);
    // As a full filesystem leaves it.
    (&*super::lock(&ledger.file).clone().unwrap()).write_all(b"{\"is\":\"int").unwrap();
    ledger.is_torn.store(true, Ordering::Relaxed);
    ledger.begin(&intent("a")).unwrap();
    ledger.note("a", asked());
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
    assert_eq!(unfinished(&Ledger::beside(&lock)), [("a".to_owned(), asked(), true)]);
}
