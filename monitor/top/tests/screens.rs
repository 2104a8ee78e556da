//! Screens are as committed. `UPDATE_SCREENS=1 cargo test -p node-pressure-top --test screens` rewrites them.

use std::path::Path;

#[test]
fn the_screens_are_the_committed_ones() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["quiet", "near"] {
        for (width, height) in [(80, 24), (160, 50), (30, 8)] {
            let json = std::fs::read(here.join(format!("../../tests/fixtures/state/{name}.json"))).unwrap();
            let screen = node_pressure_top::once(node_pressure_top::state(&json).unwrap(), width, height);
            let path = here.join(format!("tests/screens/{name}-{width}x{height}.txt"));
            if std::env::var_os("UPDATE_SCREENS").is_some() {
                std::fs::create_dir_all(here.join("tests/screens")).unwrap();
                std::fs::write(&path, &screen).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), screen, "{}", path.display());
        }
    }
}
