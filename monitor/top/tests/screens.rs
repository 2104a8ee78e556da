//! Screens are as committed. `UPDATE_SCREENS=1 cargo test -p node-pressure-top --test screens` rewrites them.

use std::path::{Path, PathBuf};

use node_pressure_top::{Event, Link, Measured, Model, screen, update};

mod scenes;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn is_updated() -> bool {
    std::env::var_os("UPDATE_SCREENS").is_some()
}

#[test]
fn the_screens_are_the_committed_ones() {
    for (name, model) in scenes::all() {
        let smallest = Some((30, 8)).filter(|_| matches!(name, "quiet" | "near" | "evicting"));
        for (width, height) in [(80, 24), (160, 50)].into_iter().chain(smallest) {
            let screen = screen(&model, width, height);
            let path = here(&format!("tests/screens/{name}-{width}x{height}.txt"));
            if is_updated() {
                std::fs::create_dir_all(here("tests/screens")).unwrap();
                std::fs::write(&path, &screen).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), screen, "{}", path.display());
        }
    }
}

/// The document shows the screen `near-80x24.txt` after this line.
const SHOWN_AFTER: &str = "This is the screen of a node whose memory runs out:\n\n```\n";

#[test]
fn the_document_shows_a_committed_screen() {
    let path = here("../COMMANDS.md");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let screen = screen(&scenes::shown(scenes::document("near")), 80, 24);
    let begin = text.find(SHOWN_AFTER).unwrap() + SHOWN_AFTER.len();
    let end = begin + text[begin..].find("```").unwrap();
    if is_updated() {
        text.replace_range(begin..end, &screen);
        std::fs::write(&path, &text).unwrap();
    } else {
        assert_eq!(&text[begin..end], screen, "{}: see the top of this file", path.display());
    }
}

/// The scenario `status-page` has printed this screen, and the README shows it.
const OF_A_RUN: &str = "../../config/screens/top.txt";

#[test]
fn the_readme_shows_the_screen_of_a_run() {
    let shown = std::fs::read_to_string(here(OF_A_RUN)).unwrap();
    let readme = std::fs::read_to_string(here("../../README.md")).unwrap();
    assert!(readme.contains(&format!("```\n{shown}```\n")), "README.md shows another screen than {OF_A_RUN}");
    let heads = |screen: &str| {
        let line = screen.lines().find(|line| line.contains("▼")).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let now = screen(&scenes::shown(scenes::document("near")), 118, 18);
    assert!(!heads(&now).is_empty());
    assert_eq!(heads(&shown), heads(&now), "print it anew: SCREENS=$PWD/config/screens cargo xtask vm status-page");
}

/// Returns the model of `near` after these keys.
fn after(keys: &str) -> Model {
    scenes::press(scenes::shown(scenes::document("near")), &scenes::typed(keys)).0
}

#[test]
fn what_differs_from_the_plain_present_is_said() {
    let lost = Event::Link(Link::Lost("127.0.0.1:9946: Connection refused".to_owned()));
    let waiting = Model { measured: Measured::ByTop { missing: Some("not root".to_owned()) }, ..Model::default() };
    let measured = Model { measured: waiting.measured.clone(), ..after("") };
    for (model, said) in [
        (update(after(""), lost.clone()).0, "no connection: 127.0.0.1:9946: Connection refused"),
        (update(Model::default(), lost).0, "no connection: 127.0.0.1:9946: Connection refused"),
        (Model::default(), "waiting for the first document"),
        (waiting.clone(), "top starts to measure this node itself"),
        (waiting, "not root"),
        (measured.clone(), "worker-1  measured by top itself, without an agent"),
        (measured, "not root"),
        (after("["), "paused at 1 of 1 recorded states, 0.4 s ago"),
        (after("/etl"), "filter by name: etl_"),
        (after("/etl\n"), "1 with \"etl\""),
        (after("/none\n"), "no name has this in it"),
        (after("w12"), "what if the threshold were: 12_"),
        (after("w12Mj\n"), "write for example 500Mi or 10%"),
        (after("w1Gi\n"), "what if: memory.available<1Gi is met now; batch/report-5d4f8c-x7k2p would be evicted"),
        (after("ss"), "change▼"),
        (after("i"), ">03-14 09:24:12Z batch/report"),
        (after("i\n"), "20260314-092412-evict-3 is being read"),
    ] {
        let screen = screen(&model, 80, 24);
        let text = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&said), "{said:?} is not in:\n{screen}");
    }
}

#[test]
fn every_size_is_drawn() {
    for (name, model) in scenes::all().into_iter().chain([("empty", Model::default())]) {
        for width in [1, 2, 10, 39, 40, 59, 60, 79, 80, 119, 120, 400] {
            for height in [1, 2, 8, 15, 16, 23, 24, 31, 32, 100] {
                let screen = screen(&model, width, height);
                assert_eq!(screen.lines().count(), usize::from(height), "{name} {width}x{height}");
            }
        }
    }
}
