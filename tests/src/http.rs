//! An HTTP client for the agent's endpoints: GET over a socket, and the Prometheus text format.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// One time series of `/metrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl Series {
    /// Returns the value of a label, or "".
    pub fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// The series of one scrape.
#[derive(Debug, Default)]
pub struct Metrics {
    series: Vec<Series>,
}

const PREFIX: &str = "node_pressure_monitor_";

impl Metrics {
    /// Returns all series of a metric. `name` is without the agent's prefix.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Series> + 'a {
        self.series.iter().filter(move |series| series.name.strip_prefix(PREFIX) == Some(name))
    }

    /// Returns the sum of all series that have these labels, or `None` if there is no such series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let values: Vec<f64> = self
            .all(name)
            .filter(|series| labels.iter().all(|(key, value)| series.label(key) == *value))
            .map(|series| series.value)
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    fn parse(text: &str) -> Result<Self> {
        let series = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| parse_series(line).with_context(|| format!("malformed series: {line}")))
            .collect::<Result<_>>()?;
        Ok(Self { series })
    }
}

fn parse_series(line: &str) -> Option<Series> {
    let (name, labels, rest) = match line.find('{') {
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, Vec::new(), rest)
        }
        Some(open) => {
            let (labels, rest) = parse_labels(line.get(open + 1..)?)?;
            (line.get(..open)?, labels, rest)
        }
    };
    let value = rest.split_whitespace().next()?;
    Some(Series { name: name.to_owned(), labels, value: value.parse().ok()? })
}

/// Parses labels up to the closing brace; returns them and the text after the brace.
fn parse_labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((key.to_owned(), value));
        text = rest.get(end + 1..)?;
        text = text.strip_prefix(',').unwrap_or(text);
    }
}

/// Sends a GET; returns status code and body.
pub fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let limit = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&address, limit).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(limit)).context("set read timeout")?;
    // The request is one write: a server may answer and close after its first read.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).with_context(|| format!("send GET {path}"))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(|| format!("read the answer to GET {path}"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("no status in {head:?}"))?;
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        dechunk(body).context("malformed chunked body")?
    } else {
        body.to_owned()
    };
    Ok((status, body))
}

fn dechunk(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..size)?);
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

/// Scrapes `/metrics`.
pub fn metrics(address: SocketAddr) -> Result<Metrics> {
    let (status, body) = get(address, "/metrics")?;
    if status != 200 {
        bail!("GET /metrics: status {status}");
    }
    Metrics::parse(&body)
}

// This module has no `use`: the bench `pods`, which has no test harness, includes this file too.
#[cfg(test)]
mod tests {
    #[test]
    fn series_with_and_without_labels() {
        let text =
            "# HELP x y\nnode_pressure_monitor_a 3\nnode_pressure_monitor_b{k=\"v\",path=\"a\\\\x2d,}b\"} 1.5 99\n";
        let metrics = super::Metrics::parse(text).unwrap();
        assert_eq!(metrics.sum("a", &[]), Some(3.0));
        assert_eq!(metrics.sum("b", &[("k", "v")]), Some(1.5));
        assert_eq!(metrics.all("b").next().unwrap().label("path"), "a\\x2d,}b");
        assert_eq!(metrics.sum("b", &[("k", "w")]), None);
        assert!(super::Metrics::parse("nonsense\n").is_err());
    }

    #[test]
    fn chunks_are_joined() {
        assert_eq!(super::dechunk("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").as_deref(), Some("abcde"));
        assert_eq!(super::dechunk("zz\r\n"), None);
    }
}
