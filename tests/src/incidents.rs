//! Reads incidents as the command and the HTTP endpoint print them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::agent::PROGRAM;
use crate::http;

/// The journal's directory in the scenarios that check incidents.
pub const JOURNAL: &str = "/tmp/incidents";

/// Returns the configuration lines that set this directory.
pub fn configuration() -> String {
    format!("incidents:\n  directory: {JOURNAL}\n")
}

/// Removes the incidents of earlier scenarios.
pub fn forget() -> Result<()> {
    if Path::new(JOURNAL).exists() {
        fs::remove_dir_all(JOURNAL).with_context(|| format!("remove {JOURNAL}"))?;
    }
    Ok(())
}

/// One incident of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident(Value);

impl Incident {
    /// Returns the value at a JSON pointer such as `/oomKill/limit/cgroup`.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        self.0.pointer(pointer)
    }

    /// Returns the value at a pointer as text, or "".
    pub fn text(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or("")
    }

    /// Returns the value at a pointer as a number.
    pub fn number(&self, pointer: &str) -> Option<u64> {
        self.at(pointer)?.as_u64()
    }

    /// Returns the elements of the array at a pointer.
    pub fn list(&self, pointer: &str) -> Vec<Self> {
        self.at(pointer).and_then(Value::as_array).into_iter().flatten().cloned().map(Self).collect()
    }

    pub fn id(&self) -> &str {
        self.text("/id")
    }
}

/// Runs `node-pressure-monitor incidents` on the journal; an exit code other than 0 is an error.
fn run(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(PROGRAM);
    command.args(["incidents", "--directory", JOURNAL]).args(arguments);
    let output = command.output().with_context(|| format!("run {PROGRAM} incidents"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("`incidents {}` ended with {}: {}", arguments.join(" "), output.status, words.trim());
    }
    String::from_utf8(output.stdout).context("what `incidents` prints is not UTF-8")
}

/// Returns every record of the journal, oldest first.
pub fn journal() -> Result<Vec<Incident>> {
    let text = run(&["--limit", "100000", "--output", "json"])?;
    text.lines().map(|line| parse(line).with_context(|| format!("malformed record: {line:.200}"))).collect()
}

/// Returns one record by its id.
pub fn record(id: &str) -> Result<Incident> {
    parse(run(&["--output", "json", id])?.trim()).with_context(|| format!("incident {id}"))
}

/// Returns the text page of one record.
pub fn page(id: &str) -> Result<String> {
    run(&[id])
}

/// Returns one record over HTTP.
pub fn served(address: SocketAddr, id: &str) -> Result<Incident> {
    let path = format!("/incidents/{id}");
    let (status, body) = http::get(address, &path)?;
    if status != 200 {
        bail!("GET {path}: status {status}");
    }
    parse(&body).with_context(|| format!("GET {path}"))
}

/// Returns the ids that the HTTP endpoint lists.
pub fn listed(address: SocketAddr) -> Result<Vec<String>> {
    let (status, body) = http::get(address, "/incidents?limit=100000")?;
    if status != 200 {
        bail!("GET /incidents: status {status}");
    }
    let list: Vec<Value> = serde_json::from_str(&body).context("GET /incidents: not a JSON array")?;
    Ok(list.into_iter().map(|head| Incident(head).id().to_owned()).collect())
}

fn parse(text: &str) -> Result<Incident> {
    let value: Value = serde_json::from_str(text).context("not JSON")?;
    Ok(Incident(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_pointers() {
        let incident = parse(r#"{"id":"a","oomKill":{"victims":[{"pid":7},{"pid":8}]}}"#).unwrap();
        assert_eq!(incident.id(), "a");
        let victims = incident.list("/oomKill/victims");
        assert_eq!(victims.iter().filter_map(|victim| victim.number("/pid")).collect::<Vec<_>>(), [7, 8]);
        assert_eq!(incident.text("/oomKill/limit/cgroup"), "");
        assert!(parse("{").is_err());
    }
}
