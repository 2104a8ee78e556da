//! Checks which candidate is evicted for memory, by the gains and growths of the candidates. All figures are in MiB and MiB per second.

use super::*;
use crate::workloads::AmongOwn;

const MIB: f64 = 1_048_576.0;

/// A candidate: its name, gain and growth. Candidates stand in the order of the ranking.
type Pod = (&'static str, u32, i64);

fn need(missing: u32, fall: Option<u32>) -> Need {
    Need {
        missing: f64::from(missing) * MIB,
        threshold: 100.0 * MIB,
        fall: fall.map(|fall| f64::from(fall) * MIB),
        fall_that_goes_on: fall.map(|fall| f64::from(fall) * MIB),
        minimum: Duration::from_secs(10),
        ..Need::default()
    }
}

fn benefit(need: Need, pods: &[Pod], change: impl Fn(&str, &mut Outlook)) -> MemoryBenefit {
    let row = |(place, (name, gain, growth)): (usize, &Pod)| {
        let mut outlook = Outlook { growth: growth << 20, is_growth_measured: true, ..Outlook::default() };
        change(name, &mut outlook);
        let gain = f64::from(*gain) * MIB;
        Row { place, gain, excess: if name.starts_with("guaranteed") { 0.0 } else { gain }, outlook }
    };
    MemoryBenefit::of(need, pods.iter().enumerate().map(row).collect())
}

fn pick(need: Need, pods: &[Pod]) -> Option<&'static str> {
    benefit(need, pods, |_, _| {}).pick().map(|place| pods[place].0)
}

#[test]
fn the_first_of_the_ranking_that_helps_is_evicted() {
    let dwarfs = [("a", 3, 0), ("b", 3, 0), ("c", 3, 0), ("d", 3, 0), ("e", 3, 0), ("f", 3, 0), ("leaker", 600, 80)];
    let show = [("small", 20, 0), ("medium", 50, 0), ("leaker", 700, 80)];
    let slow = [("small", 20, 0), ("medium", 50, 0), ("leaker", 700, 1)];
    let equal = [("bystander", 30, 0), ("one", 300, 40), ("other", 300, 40)];
    let many: Vec<Pod> = (0..20).map(|_| ("grower", 100, 150)).collect();
    let calm_many: Vec<Pod> = (0..200).map(|_| ("pod", 20, 0)).chain([("leaker", 500, 1)]).collect();
    let cliff = Need { is_cliff: true, ..need(1, Some(80)) };
    for (name, need, pods, expected) in [
        ("six dwarfs and a leaker", need(1, Some(80)), &dwarfs[..], Some("leaker")),
        ("pods that buy less than a second", need(1, Some(80)), &show, Some("leaker")),
        ("a slow leak: the ranking decides", need(1, Some(1)), &slow, Some("small")),
        ("two equal leakers", need(1, Some(80)), &equal, Some("one")),
        ("a burst of 3 GiB/s by many", need(1, Some(3_000)), &many, Some("grower")),
        ("a slow leak beside 200 pods", need(1, Some(1)), &calm_many, Some("pod")),
        (
            "no candidate leaks: the one that buys most",
            need(1, Some(80)),
            &[("a", 3, 0), ("b", 200, 0), ("c", 90, 0)],
            Some("b"),
        ),
        ("of equal ones the first", need(1, Some(80)), &[("a", 90, 0), ("b", 90, 0)], Some("a")),
        ("a pod full of clean cache", need(1, Some(80)), &[("cache", 0, 0), ("leaker", 400, 70)], Some("leaker")),
        ("cache alone", need(1, Some(80)), &[("cache", 0, 0)], None),
        ("a moment without fall", need(1, Some(0)), &[("a", 3, 0), ("b", 90, 0)], Some("a")),
        ("no fall known: what is missing counts", need(50, None), &[("a", 49, 0), ("b", 50, 0)], Some("b")),
        ("a leaker that is too small", need(50, Some(80)), &[("young", 1, 60), ("large", 900, 0)], Some("large")),
        ("no candidate", need(1, Some(80)), &[], None),
        (
            "a dwarf beside what is coming already",
            Need { expected: 90.0 * MIB, ..need(50, Some(80)) },
            &[("guaranteed", 1, 0)],
            None,
        ),
        (
            "a candidate that counts beside what is coming, at the cliff",
            Need { expected: 90.0 * MIB, is_cliff: true, ..need(50, Some(80)) },
            &[("a", 10, 0)],
            Some("a"),
        ),
        ("one that buys no second is not evicted away from the cliff", need(1, Some(80)), &[("a", 12, 0)], None),
        ("a pod within its request waits too", need(1, Some(80)), &[("a", 12, 0), ("guaranteed", 900, 0)], None),
        ("the kernel comes before the request", cliff, &[("a", 12, 0), ("guaranteed", 900, 0)], Some("guaranteed")),
        ("one that helps comes before it", cliff, &[("guaranteed", 900, 0), ("a", 300, 0)], Some("a")),
        (
            "growth up to the request is no leak",
            need(1, Some(80)),
            &[("guaranteed", 900, 70), ("a", 300, 0)],
            Some("a"),
        ),
        ("all together end no shortage", need(500, Some(80)), &[("a", 200, 0), ("b", 90, 0)], None),
        ("no other candidate is left", need(1, Some(80)), &[("guaranteed", 900, 0)], Some("guaranteed")),
    ] {
        assert_eq!(pick(need, pods), expected, "{name}");
    }
}

#[test]
fn culprits_go_first_or_alone_later_in_a_shortage() {
    let pods = [("small", 200, 0), ("leaker", 500, 1)];
    let with = |culprits| pick(Need { culprits, ..need(1, Some(1)) }, &pods);
    assert_eq!(with(Culprits::AsRanked), Some("small"));
    assert_eq!(with(Culprits::First), Some("leaker"));
    let no_leaker = [("small", 20, 0), ("large", 500, 0)];
    let with = |culprits| pick(Need { culprits, ..need(1, Some(80)) }, &no_leaker);
    assert_eq!(with(Culprits::First), Some("large"), "without a culprit the others stay candidates");
    assert_eq!(with(Culprits::Only), None);
    let cliff = Need { culprits: Culprits::Only, is_cliff: true, ..need(1, Some(80)) };
    assert_eq!(pick(cliff, &no_leaker), Some("large"), "no rule of effect holds at the cliff");
    // The smallest set that causes half of the fall, which may hardly show, since the kernel drops file pages.
    let only = |pods: &[Pod]| pick(Need { culprits: Culprits::Only, ..need(1, Some(6)) }, pods);
    assert_eq!(only(&[("forks", 34, 4), ("leaker", 240, 20)]), Some("leaker"));
    assert_eq!(only(&[("one", 100, 8), ("other", 240, 20)]), Some("other"));
    let unknown = |culprits| {
        let (need, pods) = (Need { culprits, ..need(100, Some(11)) }, [("bystander", 50, 8), ("leaker", 329, 55)]);
        benefit(need, &pods, |_, outlook| outlook.is_growth_measured = false).pick().map(|place| pods[place].0)
    };
    assert_eq!(unknown(Culprits::Only), None, "an unknown growth makes no culprit");
    // Twenty together leak: none of them grows by half of the fall.
    let twenty: Vec<Pod> = std::iter::once(("bystander", 400, 0)).chain((0..20).map(|_| ("grower", 50, 5))).collect();
    let only = |fall| Need { culprits: Culprits::Only, ..need(1, Some(fall)) };
    assert_eq!(pick(only(100), &twenty), Some("grower"));
    assert_eq!(pick(only(300), &twenty), None, "something else leaks, too");
    let protected = Need { protected_growth: 190.0 * MIB, ..only(200) };
    assert_eq!(pick(protected, &twenty), None, "a protected workload causes half of the fall");
}

#[test]
fn what_has_just_stopped_to_grow_hides_no_leaker() {
    let chosen = |fall, started_lately: Option<i64>| {
        let pods = [("bystander", 60, 0), ("leaker", 170, 120), ("started", 400, 350)];
        let need = Need { culprits: Culprits::First, is_cliff: true, ..need(4, Some(fall)) };
        let stopped = |name: &str, outlook: &mut Outlook| {
            outlook.growth_lately = started_lately.filter(|_| name == "started");
        };
        benefit(need, &pods, stopped).pick().map(|place| pods[place].0)
    };
    assert_eq!(chosen(150, Some(0)), Some("leaker"));
    assert_eq!(chosen(150, None), Some("started"), "it goes on");
    assert_eq!(chosen(600, Some(0)), Some("started"), "it has caused the fall, and nothing else has");
}

#[test]
fn what_a_victim_caused_hides_no_leaker() {
    let chosen = |since_kill: Option<f64>| {
        let pods = [("bystander", 900, 0), ("slow", 300, 10), ("leaker", 170, 70)];
        let fall_since_kill = since_kill.map(|fall| fall * MIB);
        let need = Need { culprits: Culprits::First, fall_since_kill, ..need(1, Some(200)) };
        pick(need, &pods)
    };
    assert_eq!(chosen(None), Some("bystander"), "half of the fall is not explained");
    assert_eq!(chosen(Some(100.0)), Some("leaker"));
    assert_eq!(chosen(Some(-500.0)), Some("leaker"), "memory that comes back hides the fall");
    assert_eq!(chosen(Some(400.0)), Some("bystander"), "something else falls, too");
}

#[test]
fn some_are_evicted_only_as_leakers() {
    let service = |name: &str, outlook: &mut Outlook| outlook.only_as_leaker = name == "service";
    let pods = [("service", 900, 0), ("pod", 300, 20)];
    let chosen = |growth| {
        let pods = [("service", 900, growth), pods[1]];
        benefit(need(1, Some(80)), &pods, service).pick().map(|place| pods[place].0)
    };
    assert_eq!(chosen(0), Some("pod"), "a large service that does not leak is no candidate");
    assert_eq!(chosen(60), Some("service"));
    assert_eq!(benefit(need(1, Some(80)), &pods, service).worth_at(0), Some(Worth::NotALeaker));
}

#[test]
fn no_dwarf_goes_for_a_daemon_sets_pod() {
    let daemon = |name: &str, outlook: &mut Outlook| {
        (outlook.is_daemon, outlook.only_as_leaker) = (name == "daemon", name == "daemon");
        // Growth of -1 stands for one that is not known.
        outlook.is_growth_measured = outlook.growth >= 0;
    };
    for (name, need, growth, pods, expected) in [
        ("it made up for a pause", need(14, Some(500)), 60, &[("pod", 1, 0)][..], None),
        ("its growth is not known", need(14, Some(80)), -1, &[("pod", 1, 0)], None),
        ("the threshold was just crossed", need(1, Some(80)), 20, &[("pod", 1, 0)], None),
        ("it leaks", need(14, Some(80)), 70, &[("pod", 1, 0)], Some("daemon")),
        ("it is idle", need(14, Some(80)), 0, &[("pod", 15, 0)], None),
        ("a pod helps", need(14, Some(1)), -1, &[("pod", 100, 0)], Some("pod")),
        ("a pod is large enough", need(14, Some(80)), -1, &[("pod", 300, 0)], Some("pod")),
        ("another leaks", need(14, Some(80)), -1, &[("pod", 1, 0), ("leaker", 100, 70)], Some("leaker")),
    ] {
        let pods: Vec<Pod> = std::iter::once(("daemon", 1_900, growth)).chain(pods.iter().copied()).collect();
        let found = benefit(need, &pods, daemon).pick().map(|place| pods[place].0);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_terminating_pod_that_helps_is_first() {
    let terminating = |name: &str, outlook: &mut Outlook| outlook.is_terminating = name == "leaving";
    for (gain, fall, hard, expected) in
        [(300, 1, true, "leaving"), (300, 1, false, "first"), (2, 1, true, "first"), (300, 80, true, "large")]
    {
        let pods = [("first", 100, 0), ("leaving", gain, 0), ("large", 900, 0)];
        let need = Need { terminating_first: hard, ..need(1, Some(fall)) };
        let place = benefit(need, &pods, terminating).pick().unwrap();
        assert_eq!(pods[place].0, expected, "{gain} MiB, {fall} MiB/s, {hard}");
    }
}

#[test]
fn who_is_passed_over_has_a_reason() {
    let pods = [("dwarf", 3, 0), ("small", 80, 0), ("leaker", 600, 70), ("large", 900, 0)];
    let benefit = benefit(need(40, Some(80)), &pods, |_, _| {});
    let worths: Vec<_> = (0..4).filter_map(|place| benefit.worth_at(place)).collect();
    assert_eq!(
        worths,
        [
            Worth::Dwarf(Duration::from_micros(37_500)),
            Worth::TooLittle(Duration::from_secs(1)),
            Worth::Leaks,
            Worth::Helps(Duration::from_micros(11_250_000)),
        ]
    );
}

#[test]
fn a_user_loses_other_own_workloads_before_those_that_serve_the_session() {
    // The compositor alone helps. It goes for the leak of a program that is exempt.
    let pods = [("other", 60, 0), ("kept", 900, 0), ("tab", 30, 0), ("browser", 700, 0), ("dwarf", 2, 0)];
    let picked = |need: Need, kept: OwnPlace, pods: &[Pod]| {
        let own = |name: &str, outlook: &mut Outlook| {
            let place = if name == "kept" { kept } else { OwnPlace::Ordinary };
            outlook.among_own = (name != "other").then_some(AmongOwn { user: 7, place });
        };
        benefit(need, pods, own).pick().map(|place| pods[place].0)
    };
    let (away, cliff) = (need(50, Some(80)), Need { is_cliff: true, ..need(50, Some(80)) });
    assert_eq!(picked(away, OwnPlace::Ordinary, &pods), Some("kept"));
    for place in [OwnPlace::Avoid, OwnPlace::Serving, OwnPlace::Omit] {
        assert_eq!(picked(away, place, &pods), Some("browser"), "{place:?}");
        assert_eq!(picked(cliff, place, &pods), Some("browser"), "{place:?}");
        assert_eq!(picked(away, place, &pods[..2]), Some("kept"), "nothing else is the user's");
        let small = [("kept", 900, 0), ("tab", 90, 0)];
        assert_eq!(picked(away, place, &small), Some("tab"), "it buys a second");
        let tab = [("kept", 900, 0), ("tab", 45, 0)];
        assert_eq!(picked(cliff, place, &tab), Some("kept"), "the kernel would kill");
        assert_eq!(picked(away, place, &[("kept", 900, 70), ("tab", 90, 0)]), Some("kept"), "it leaks");
    }
}
