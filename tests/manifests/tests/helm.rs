//! Compares the Helm chart with the kustomizations: what Helm renders for the values of a variant is what its directory applies.

#![expect(clippy::unwrap_used, reason = "a chart or a directory that cannot be read fails its test")]

use std::collections::BTreeSet;
use std::path::Path;

use node_pressure_manifests::chart::{ADDITIONS, Addition, CHART, REMOVALS, VARIANTS};
use node_pressure_manifests::{capabilities, chart, documents, kustomizations, kustomize, program, rbac, root, schema};
use serde_json::Value;

#[path = "support/helm_program.rs"]
mod helm_program;

use helm_program::skip;

/// Directories that are parts of others, or that the chart leaves to kustomize.
const NO_VARIANT: [&str; 2] = ["kubernetes/own-node", "openshift/journal-hook"];

/// Returns what Helm renders with these values, sorted; `None` without Helm.
fn rendered(values: &str) -> Option<Vec<Value>> {
    helm_program::rendered(&["--set", values])
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(documents::name);
    objects
}

fn built(directories: &[&str]) -> Vec<Value> {
    let build = |directory: &&str| kustomize::build(&root().join("config").join(directory)).unwrap();
    sorted(directories.iter().flat_map(build).collect())
}

/// The directories, and the values that select the same in the chart.
fn pairs() -> Vec<(Vec<&'static str>, String)> {
    let default = VARIANTS[0].directory;
    let mut pairs: Vec<(Vec<&str>, String)> =
        VARIANTS.iter().map(|variant| (vec![variant.directory], variant.values.to_owned())).collect();
    for Addition { directory, values, changed, .. } in ADDITIONS {
        pairs.push((vec![default, directory], values.to_owned()));
        let changed = changed.map(|(changed, _)| (vec!["kubernetes/tls", changed], format!("{values},tls=true")));
        pairs.extend(changed);
    }
    pairs.extend(REMOVALS.iter().map(|(directory, _, values)| (vec![*directory], (*values).to_owned())));
    pairs
}

#[test]
fn helm_renders_what_kustomize_builds() {
    let mut compared = 0;
    for (directories, values) in pairs() {
        let Some(theirs) = rendered(&values) else {
            skip("helm_renders_what_kustomize_builds");
            return;
        };
        let ours = built(&directories);
        let names = |objects: &[Value]| objects.iter().map(documents::name).collect::<Vec<_>>();
        assert_eq!(names(&theirs), names(&ours), "{directories:?} with {values:?}");
        for (theirs, ours) in theirs.iter().zip(&ours) {
            assert_eq!(theirs, ours, "{directories:?} with {values:?}: {}", documents::name(ours));
        }
        println!("{directories:?} = {values:?}: {} objects", ours.len());
        compared += ours.len();
    }
    assert!(compared > 100, "{compared}");
}

/// Values that no directory combines: the result has to fit the schemas and the code all the same.
#[test]
fn combined_values_render_objects_that_fit() {
    for values in [
        "evict=first,tls=true,prometheus=true",
        "evict=instead,tls=true,openshift=true",
        "privileged=true,tls=true",
        "evict=first,openshift=true,prometheus=true",
    ] {
        let Some(objects) = rendered(values) else {
            skip("combined_values_render_objects_that_fit");
            return;
        };
        let mut problems: Vec<String> = objects.iter().flat_map(schema::check).collect();
        problems.extend(program::check(&objects).unwrap());
        problems.extend(capabilities::check(&objects));
        problems.extend(rbac::check(&objects));
        assert!(problems.is_empty(), "{values}: {problems:#?}");
    }
}

#[test]
fn values_replace_image_and_configuration() {
    let values =
        "image.repository=r.example/x,image.tag=v7,image.pullPolicy=Always,configuration=mode: enforce\nlockFile: /l\n";
    let Some(objects) = rendered(values) else {
        skip("values_replace_image_and_configuration");
        return;
    };
    let find = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let container = &find("DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["imagePullPolicy"]), (&"r.example/x:v7".into(), &"Always".into()));
    assert_eq!(find("ConfigMap")["data"]["monitor.yaml"], "mode: enforce\nlockFile: /l\n");
}

#[test]
fn the_chart_is_the_generated_one() {
    let directory = root().join(CHART);
    let generated = chart::files(&root()).unwrap();
    for (path, content) in &generated {
        let written = std::fs::read_to_string(directory.join(path)).unwrap_or_default();
        assert!(written == *content, "{} is not up to date: run `cargo xtask manifests --chart`", path.display());
    }
    for entry in std::fs::read_dir(directory.join("templates")).unwrap() {
        let name = entry.unwrap().file_name();
        let path = Path::new("templates").join(&name);
        let is_expected = generated.contains_key(&path) || name == "NOTES.txt";
        assert!(
            is_expected,
            "{}: no kustomization has this object: run `cargo xtask manifests --chart`",
            path.display()
        );
    }
}

#[test]
fn the_notes_wait_for_the_job_in_its_namespace() {
    let objects = kustomize::build(&root().join("config/kubernetes/removal")).unwrap();
    let job = objects.iter().find(|object| object["kind"] == "Job").unwrap();
    let [name, namespace] = ["name", "namespace"].map(|field| job["metadata"][field].as_str().unwrap());
    let notes = std::fs::read_to_string(root().join(CHART).join("templates/NOTES.txt")).unwrap();
    let command = format!("kubectl -n {namespace} wait --for=condition=complete job/{name} ");
    assert!(notes.contains(&command), "NOTES.txt does not have: {command}");
}

#[test]
fn every_kustomization_is_a_variant_of_the_chart() {
    let compared: BTreeSet<&str> = pairs().into_iter().flat_map(|(directories, _)| directories).collect();
    for directory in kustomizations(&root()).unwrap() {
        let directory = directory.strip_prefix(root().join("config")).unwrap().to_str().unwrap().to_owned();
        let is_known = compared.contains(directory.as_str()) || NO_VARIANT.contains(&directory.as_str());
        assert!(is_known, "{directory}: add it to VARIANTS of tests/manifests/src/chart.rs");
    }
}

#[test]
fn images_chart_and_packages_have_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let component = std::fs::read_to_string(root().join("config/kubernetes/image/kustomization.yaml")).unwrap();
    assert!(
        component.contains(&format!("newTag: {version}\n")),
        "config/kubernetes/image has another version than Cargo.toml"
    );
    let chart = std::fs::read_to_string(root().join(CHART).join("Chart.yaml")).unwrap();
    assert!(chart.contains(&format!("version: {version}\n")), "{chart}");
}
