//! Worlds that broke an invariant once. Each file has the world, and how the name of its first victim begins.

use std::fs;
use std::path::Path;

use node_pressure_worlds::checkers::CHECKERS;
use node_pressure_worlds::judge::{judge, played};
use node_pressure_worlds::plan::Plan;
use node_pressure_worlds::story;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Saved {
    first: String,
    world: Plan,
}

#[test]
fn no_saved_world_breaks_an_invariant() {
    let mut count = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("saved")).unwrap() {
        let path = entry.unwrap().path();
        let saved: Saved = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for (checker, verdict) in CHECKERS.iter().zip(judge(&saved.world).verdicts) {
            let story = || story::tell(&saved.world, *checker, &verdict.findings);
            assert!(verdict.findings.is_empty(), "{}: {}", path.display(), story());
        }
        let world = played(&saved.world);
        let first = world.history.decisions.first().expect("a kill");
        let name = &saved.world.pods[first.victim].name;
        assert!(name.starts_with(&saved.first), "{}: {name}, at {:.2} s", path.display(), first.at);
        count += 1;
    }
    assert!(count >= 8, "{count} worlds");
}

#[test]
fn a_seed_gives_the_same_world_and_the_same_kills() {
    let kills = || {
        let plan = node_pressure_worlds::generate::world(7, 3);
        played(&plan).history.decisions.iter().map(|decision| (decision.victim, decision.at)).collect::<Vec<_>>()
    };
    assert_eq!(kills(), kills());
    assert!((0..20).any(|number| {
        let plan = node_pressure_worlds::generate::world(7, number);
        !played(&plan).history.decisions.is_empty()
    }));
}
