//! Compares the table "Reach of a stolen token" of SECURITY.md with the roles and policies that each kustomization applies.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a file or a row that cannot be read fails its test")]

use std::collections::{BTreeMap, BTreeSet};

use node_pressure_manifests::{documents, kustomizations, kustomize, rbac::Rights, root};
use serde_json::Value;

/// An account with its rights and the admission policies that name it.
type Account = (String, String, String);

/// Returns the admission policies for requests of this user.
fn policies(objects: &[Value], user: &str) -> String {
    let is_for = |policy: &&Value| {
        let conditions = documents::list(policy, &["spec", "matchConditions"]);
        policy["kind"] == "ValidatingAdmissionPolicy"
            && conditions.iter().any(|it| documents::text(it, &["expression"]).contains(&format!("\"{user}\"")))
    };
    let names =
        objects.iter().filter(is_for).map(|policy| format!("`{}`", documents::text(policy, &["metadata", "name"])));
    let names: Vec<String> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns every account that the kustomizations create, with the directories that give it the same rights under the same policies.
fn rendered() -> BTreeMap<Account, BTreeSet<String>> {
    let mut accounts: BTreeMap<Account, BTreeSet<String>> = BTreeMap::new();
    for directory in kustomizations(&root()).unwrap() {
        let objects = kustomize::build(&directory).unwrap();
        let shown = directory.strip_prefix(root().join("config")).unwrap().to_str().unwrap().to_owned();
        for account in objects.iter().filter(|object| object["kind"] == "ServiceAccount") {
            let [name, namespace] = ["name", "namespace"].map(|key| documents::text(account, &["metadata", key]));
            let rights = Rights::of(name, &objects).describe();
            let policies = policies(&objects, &format!("system:serviceaccount:{namespace}:{name}"));
            accounts.entry((name.to_owned(), rights, policies)).or_default().insert(shown.clone());
        }
    }
    accounts
}

/// Returns the rows of the table: the accounts with their directories, and what a token can do.
fn written() -> Vec<(Account, BTreeSet<String>, String)> {
    let document = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (_, section) = document.split_once("\n## Reach of a stolen token\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [account, directories, rights, policies, harm] = cells[..] else { panic!("{row}") };
        let directories = directories.split(", ").map(|directory| directory.trim_matches('`').to_owned()).collect();
        ((account.trim_matches('`').to_owned(), rights.to_owned(), policies.to_owned()), directories, harm.to_owned())
    })
    .collect()
}

#[test]
fn the_table_has_the_rendered_rights_of_every_account() {
    let (rendered, written) = (rendered(), written());
    for ((account, rights, policies), directories) in &rendered {
        let directories: Vec<String> = directories.iter().map(|it| format!("`{it}`")).collect();
        println!("| `{account}` | {} | {rights} | {policies} | … |", directories.join(", "));
    }
    assert!(rendered.len() > 5, "{rendered:?}");
    assert!(written.iter().all(|(.., harm)| !harm.is_empty()), "a row does not say what a token can do");
    let written: BTreeMap<Account, BTreeSet<String>> = written.into_iter().map(|(it, at, _)| (it, at)).collect();
    assert_eq!(written, rendered, "left: SECURITY.md; right: the rows printed above");
}

/// The right to end a pod, or to taint a node, comes with the mode that needs it.
#[test]
fn only_the_enforcing_set_ups_may_evict_and_taint() {
    let destructive = ["pods: get, list, watch, delete", "pods/status: patch", "pods/eviction: create", "watch, patch"];
    for ((account, rights, _), directories) in rendered() {
        let may = destructive.iter().filter(|right| rights.contains(**right)).count();
        let is_enforcing = directories.iter().all(|it| it.ends_with("first") || it.ends_with("instead"));
        let expected = if account == "node-pressure-monitor" && is_enforcing { destructive.len() } else { 0 };
        assert_eq!(may, expected, "{account} of {directories:?}: {rights}");
    }
}
