//! Runs the script of `config/openshift/journal-hook` with an `oc` that answers as a cluster with one drained machine.

#![expect(clippy::unwrap_used, reason = "a failed preparation fails its test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use node_pressure_manifests::{documents, root};

/// Answers by a part of the request. Notes the requests that change something.
const OC: &str = r#"#!/bin/sh
case "$*" in
    *patch*) echo released >>"$DIRECTORY/changes" ;;
    *"get nodes"*) echo True ;;
    *"get pods"*) echo agent ;;
    *"incidents?limit"*) cat "$DIRECTORY/list" ;;
    *"proxy/incidents/"*) echo "{}" ;;
    *nodeRef*) cat "$DIRECTORY/node" ;;
    *lifecycleHooks*) echo 0 ;;
    *Deleting*) echo "Deleting Drained=True " ;;
    *) echo machine-a ;;
esac
"#;

struct Hook {
    directory: tempfile::TempDir,
}

impl Hook {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let maps = documents::read(&root().join("config/openshift/journal-hook/config-map.yaml")).unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("deliver.sh"), documents::text(&maps[0], &["data", "deliver.sh"])).unwrap();
        fs::write(path("oc"), OC).unwrap();
        fs::set_permissions(path("oc"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(path("journals")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the script for a node with this name and this list of incidents. Returns whether it succeeded, and what it complained of.
    fn deliver(&self, node: &str, list: &str) -> (bool, String) {
        fs::write(self.path("node"), node).unwrap();
        fs::write(self.path("list"), list).unwrap();
        let programs = format!("{}:{}", self.directory.path().display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-e", self.path("deliver.sh").to_str().unwrap()])
            .env("PATH", programs)
            .env("DIRECTORY", self.directory.path())
            .env("JOURNALS", self.path("journals"))
            .envs([("NAMESPACE", "machines"), ("HOOK", "Hook"), ("POINT", "preTerminate")])
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }

    fn is_released(&self) -> bool {
        self.path("changes").exists()
    }
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn the_incidents_of_a_machine_are_stored_before_its_release() {
    let hook = Hook::new();
    let list = r#"[{"id":"20260102-030405-oom-7","summary":"{\"id\":\"../x\"}, \"id\": \"y\""},
        {"kind": "Eviction", "id": "20260102-030406-eviction-18446744073709551615"}]"#;
    assert_eq!(hook.deliver("worker-1.example", list), (true, String::new()));
    let stored = ["20260102-030405-oom-7.json", "20260102-030406-eviction-18446744073709551615.json", "incidents.json"];
    assert_eq!(names(&hook.path("journals/worker-1.example")), stored);
    assert!(hook.is_released());
    let hook = Hook::new();
    assert_eq!(hook.deliver("worker-1", "[]"), (true, String::new()));
    assert!(hook.is_released() && names(&hook.path("journals/worker-1")) == ["incidents.json"]);
}

#[test]
fn an_id_that_is_none_is_refused_by_its_field() {
    for id in ["../../outside", "*", "a b", "$(touch outside)", "a\\u001b[2J", "20260102-030405-oom-", "-rf"] {
        let hook = Hook::new();
        let list = format!(r#"[{{"id":"20260102-030405-oom-7"}},{{"id":"{id}"}}]"#);
        let before = names(hook.directory.path());
        let (is_done, complaint) = hook.deliver("worker-1", &list);
        assert!(!is_done && !hook.is_released(), "{id}: {complaint}");
        assert!(complaint.contains("id of an incident is not of the form"), "{id}: {complaint}");
        assert!(!complaint.contains(id), "{id}: {complaint}");
        assert_eq!(names(&hook.path("journals")), ["worker-1"], "{id}");
        let after = names(hook.directory.path()).into_iter().filter(|name| !["list", "node"].contains(&name.as_str()));
        assert_eq!(after.collect::<Vec<_>>(), before, "{id}");
    }
}

#[test]
fn a_node_whose_name_is_a_path_is_refused_by_its_field() {
    for node in ["../outside", "a/b", "a b", "-o", "a\nb"] {
        let hook = Hook::new();
        let (is_done, complaint) = hook.deliver(node, "[]");
        assert!(!is_done && !hook.is_released(), "{node}: {complaint}");
        assert!(complaint.contains("status.nodeRef.name is not of the form"), "{node}: {complaint}");
        assert!(names(&hook.path("journals")).is_empty(), "{node}");
    }
}
