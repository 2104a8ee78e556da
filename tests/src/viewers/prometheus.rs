//! A client of the Prometheus on the host.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::catalogue::Viewer;
use crate::http;

#[derive(Debug)]
pub struct Prometheus(SocketAddr);

/// A rule as the Prometheus evaluates it.
#[derive(Debug)]
pub struct Rule {
    pub name: String,
    pub query: String,
    pub is_alert: bool,
    /// `ok`, or what went wrong.
    pub health: String,
    /// Whether an alert fires.
    pub is_firing: bool,
}

impl Prometheus {
    pub fn of_host() -> Result<Self> {
        super::address(Viewer::Prometheus).map(Self)
    }

    /// Returns the values of the series that a query returns now.
    pub fn ask(&self, query: &str) -> Result<Vec<f64>> {
        let data = self.get(&format!("/api/v1/query?query={}", encoded(query)))?;
        let result = data["result"].as_array().context("the answer has no result")?;
        if data["resultType"] == "scalar" {
            bail!("a scalar, and not series");
        }
        let value = |series: &Value| series["value"][1].as_str()?.parse().ok();
        result.iter().map(|series| value(series).with_context(|| format!("no value: {series}"))).collect()
    }

    /// Returns every rule.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        let data = self.get("/api/v1/rules")?;
        let groups = data["groups"].as_array().context("the answer has no groups")?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        let text = |rule: &Value, field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        Ok(rules
            .map(|rule| Rule {
                name: text(rule, "name"),
                query: text(rule, "query"),
                is_alert: rule["type"] == "alerting",
                health: format!("{} {}", text(rule, "health"), text(rule, "lastError")).trim().to_owned(),
                is_firing: rule["state"] == "firing",
            })
            .collect())
    }

    /// Returns the names of the alerts that fire.
    pub fn firing(&self) -> Result<BTreeSet<String>> {
        Ok(self.rules()?.into_iter().filter(|rule| rule.is_firing).map(|rule| rule.name).collect())
    }

    fn get(&self, path: &str) -> Result<Value> {
        let (status, body) = http::get(self.0, path)?;
        let mut answer: Value = serde_json::from_str(&body).with_context(|| format!("status {status}: {body:.200}"))?;
        if answer["status"] != "success" {
            bail!("{}", answer["error"].as_str().unwrap_or(&body));
        }
        Ok(answer["data"].take())
    }
}

/// Encodes a query for a URL.
fn encoded(query: &str) -> String {
    let mut text = String::new();
    for byte in query.bytes() {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(encoded("up{a=~\"b\"}"), "up%7Ba%3D%7E%22b%22%7D");
    }
}
