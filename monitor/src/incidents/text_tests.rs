//! The expected post-mortems. `UPDATE_EXPECTED=1` overwrites them with the current output.

use std::path::Path;

use node_pressure_state::Identity;

use super::super::model::{RawJson, SwapWait, Trigger, Victim};
use super::gallery::{BATCH, MIB, falling, gallery, global, group, hard, memcg};
use super::*;

#[test]
fn the_gallery_renders_as_expected() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/incidents/expected");
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    for (name, incident) in gallery() {
        let text = render(&incident);
        let path = directory.join(format!("{name}.txt"));
        if update {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{name}");
        for line in text.lines() {
            assert!(line.chars().count() <= text_page::WIDTH, "{name}: {line}");
            assert_eq!(line, line.trim_end(), "{name}");
        }
        let json = serde_json::to_string(&incident).unwrap();
        assert_eq!(serde_json::from_str::<Incident>(&json).unwrap(), incident, "{name}");
        assert!(!json.contains("null"), "{name}: unknown is left out: {json}");
    }
}

/// The journal of the example in config/INCIDENTS.md.
#[test]
fn the_fixture_is_the_gallery() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/incidents/incidents-00000001.journal");
    let mut incidents = gallery().map(|(_, incident)| incident);
    for (incident, minutes) in incidents.iter_mut().zip([0, 4, 9, 12, 31]) {
        incident.time += jiff::SignedDuration::from_mins(minutes);
        let number = incident.id.rsplit_once('-').unwrap().1.to_owned();
        incident.id = super::super::model::name(incident.kind, incident.time, number);
    }
    let payloads = incidents.map(|incident| serde_json::to_vec(&incident).unwrap());
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        super::super::journal::write_fixture(&path, &payloads).unwrap();
    }
    let mut read = Vec::new();
    super::super::reader::Reader::new(path.parent().unwrap()).poll(|entry| read.push(entry.json)).unwrap();
    assert_eq!(read, payloads);
}

#[test]
fn pods_are_named_and_their_uid_is_shown_once() {
    for (kind, incident) in gallery() {
        let text = render(&incident);
        for uid in ["1b2c3d4e-5f60-4718-8293-a4b5c6d7e8f9", "9f8e7d6c-5b4a-4392-8180-716253443526"] {
            assert!(!text.contains(&format!("pod {uid}")) && text.matches(uid).count() <= 1, "{kind}: {text}");
        }
        let mut other = incident.clone();
        other.name_rows(|_, _| Some(Identity::default()));
        assert_eq!(other.ranking.first().map(|place| &place.name), incident.ranking.first().map(|place| &place.name));
    }
}

#[test]
fn unknown_fields_are_rendered_as_unknown() {
    for (kind, incident) in [
        ("nothing", Incident::default()),
        ("no victim", Incident { oom_kill: Some(OomKill::default()), ..Incident::default() }),
        ("an eviction without a victim", Incident { eviction: Some(Eviction::default()), ..Incident::default() }),
    ] {
        assert!(!render(&incident).is_empty(), "{kind}");
    }
    let victims = vec![Victim { pid: 7, ..Victim::default() }];
    let kill = OomKill { victims, source: "kmsg".to_owned(), ..OomKill::default() };
    let text = render(&Incident { oom_kill: Some(kill.clone()), ..Incident::default() });
    for part in [
        "process 7 of an unknown workload",
        "limit of   unknown",
        "trigger    unknown",
        "the OOM killer chose it; its exit was unknown",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert_eq!(
        summary_of_oom_kill(&kill),
        "process 7 of an unknown workload killed: the limit that was hit is unknown"
    );
}

#[test]
fn statements_need_a_reason_in_the_record() {
    let says = |incident: &Incident, part: &str| render(incident).replace("\n  ", " ").contains(part);
    // Stalls were not counted.
    let mut incident = memcg();
    (incident.stalls, incident.stalls_seconds) = (Vec::new(), None);
    assert!(!says(&incident, "stall"));
    // The kill itself frees memory.
    incident.signals.clear();
    assert!(!says(&incident, "short of memory") && says(&incident, "25 ms after the incident, 1.2"));
    incident.signals.insert("memory.available".to_owned(), falling(3));
    assert!(says(&incident, "The node was short of memory, too: 3.0"));
    // The assembler may have merged two invocations.
    let mut incident = group();
    let kill = incident.oom_kill.as_mut().unwrap();
    kill.group = false;
    kill.victims[1].workload = Some(BATCH.to_owned());
    assert!(!says(&incident, "at once") && !says(&incident, "memory.oom.group set"));
    assert!(says(&incident, "and 1 other workload") && !says(&incident, "its own memory limit"));
    // The trigger's workload is unknown.
    let kill = incident.oom_kill.as_mut().unwrap();
    kill.trigger = Some(Trigger { pid: Some(1), ..Trigger::default() });
    assert!(!says(&incident, "not of the victim's"));
    // The victim is missing from the usages.
    let mut incident = global();
    incident.top_consumers[0].working_set_bytes = 400 * MIB;
    assert!(!says(&incident, "used most,"));
    let mut incident = hard();
    incident.eviction.as_mut().unwrap().available_bytes = Some(110 << 20);
    assert!(says(&incident, "was 110.0 MiB, not yet far enough above") && !says(&incident, "incidents export"));
    incident.eviction.as_mut().unwrap().trace = vec![RawJson::of(&1).unwrap(); 2];
    assert!(says(&incident, "2 lines for simulate: "));
    assert!(!says(&incident, "for swap") && !says(&incident, "API server"));
    let eviction = incident.eviction.as_mut().unwrap();
    eviction.swap_wait = Some(SwapWait { waited_ms: 3000.0, limit: "tasks wait for memory".to_owned() });
    eviction.afterwards = Some("The eviction was reported late to the API server: it was down.".to_owned());
    assert!(says(&incident, "had waited 3.0 s while the kernel swapped out"), "{}", render(&incident));
    assert!(
        says(&incident, "because tasks wait for memory.") && says(&incident, "late to the API server: it was down.")
    );
}
