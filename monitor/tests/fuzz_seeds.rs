//! Replays the committed seeds of every fuzz target, including findings of earlier searches. It needs no fuzzer.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[path = "../fuzz/src/lib.rs"]
mod targets;

/// The time limit of a seed, because a hang is a finding too. The slowest seed takes a few milliseconds without optimization.
const LONGEST: Duration = Duration::from_secs(2);
const FEWEST_SEEDS: usize = 5;

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn seeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds")
}

#[test]
fn every_seed_satisfies_its_target() {
    for (target, _) in targets::TARGETS {
        let mut seeds = files(&seeds().join(target));
        assert!(seeds.len() >= FEWEST_SEEDS, "{target} has {} seeds", seeds.len());
        if target == "config_monitor" {
            seeds.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/monitor.yaml"));
        }
        for seed in seeds {
            // A failure shows this line, which names the seed.
            println!("{target}: {}", seed.display());
            let data = fs::read(&seed).unwrap();
            let start = Instant::now();
            targets::run(target, &data);
            assert!(start.elapsed() < LONGEST, "{target}: {} took {:?}", seed.display(), start.elapsed());
        }
    }
}

#[test]
fn targets_programs_and_seeds_correspond() {
    let mut names: Vec<_> = targets::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.sort();
    let stems = |directory: &Path| -> Vec<String> {
        files(directory).iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stems(&seeds()), names);
    assert_eq!(stems(&seeds().join("../fuzz_targets")), names);
}
