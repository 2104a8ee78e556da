//! Everything under `config/`, as it is.

use node_pressure_manifests::{check, root, units};

#[test]
fn every_manifest_fits_the_schemas_and_the_code() {
    let report = check(&root()).unwrap();
    assert!(report.problems.is_empty(), "\n{}", report.problems.join("\n"));
    let objects: usize = report.kustomizations.iter().map(|(_, objects)| objects).sum();
    assert!(objects > 20 && !report.units.is_empty(), "checked {objects} objects: {report:?}");
}

#[test]
fn systemd_knows_every_directive() {
    for unit in check(&root()).unwrap().units {
        match units::said_by_systemd(&unit) {
            None => println!("SKIPPED what systemd says of {}: there is no systemd-analyze here", unit.display()),
            Some(said) => assert!(said.is_empty(), "{said:?}"),
        }
    }
}
