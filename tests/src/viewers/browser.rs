//! A client of the browser on the host: its DevTools protocol over one connection.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::catalogue::Viewer;

/// The time limit of one answer. The host may be busy with the emulation of the guest.
const ANSWER: Duration = Duration::from_secs(60);
/// The time limit of what has to come true in the page.
const SOON: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Browser {
    connection: BufReader<TcpStream>,
    session: Option<String>,
    last: u64,
    /// Errors, exceptions and violations of the page's policy.
    pub complaints: Vec<Value>,
}

impl Browser {
    /// Starts a browser with an empty page. It ends with the connection.
    pub fn start() -> Result<Self> {
        let connection = TcpStream::connect(super::address(Viewer::Browser)?).context("connect to the host")?;
        connection.set_read_timeout(Some(ANSWER)).context("set read timeout")?;
        let connection = BufReader::new(connection);
        let mut browser = Self { connection, session: None, last: 0, complaints: Vec::new() };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// Opens a page, and waits until its script has run.
    pub fn go(&mut self, address: &str) -> Result<()> {
        self.call("Page.navigate", &json!({"url": address}))?;
        self.until(&format!("location.href === {address:?} && document.readyState !== 'loading'"))
    }

    /// Returns the value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let mut answer = self.call("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true}))?;
        if answer.get("exceptionDetails").is_some() {
            bail!("{expression}: {answer}");
        }
        Ok(answer["result"]["value"].take())
    }

    /// Waits until the expression is true in the page.
    pub fn until(&mut self, expression: &str) -> Result<()> {
        let deadline = Instant::now() + SOON;
        while self.evaluate(expression)? != true {
            if Instant::now() > deadline {
                bail!("after {SOON:?} not true in the page: {expression}; it shows {:?}", self.text()?);
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Returns the text that a reader sees.
    pub fn text(&mut self) -> Result<String> {
        Ok(self.evaluate("document.body.innerText")?.as_str().unwrap_or_default().to_owned())
    }

    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = format!("{message}\0");
        self.connection.get_mut().write_all(text.as_bytes()).with_context(|| format!("send {method}"))?;
        loop {
            let mut text = Vec::new();
            self.connection.read_until(0, &mut text).with_context(|| format!("read the answer to {method}"))?;
            if text.pop() != Some(0) {
                bail!("the browser ended before it answered {method}");
            }
            let mut message: Value =
                serde_json::from_slice(&text).with_context(|| format!("the answer to {method} is no JSON"))?;
            if message["id"] == self.last {
                if let Some(error) = message.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(message["result"].take());
            }
            if is_complaint(&message) {
                self.complaints.push(message);
            }
        }
    }
}

fn is_complaint(event: &Value) -> bool {
    event["method"] == "Runtime.exceptionThrown"
        || event["method"] == "Log.entryAdded" && event["params"]["entry"]["level"] == "error"
        || event["method"] == "Runtime.consoleAPICalled" && event["params"]["type"] == "error"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_exceptions_are_complaints() {
        let entry = |level: &str| json!({"method": "Log.entryAdded", "params": {"entry": {"level": level}}});
        assert!(is_complaint(&entry("error")) && !is_complaint(&entry("info")));
        assert!(is_complaint(&json!({"method": "Runtime.exceptionThrown"})));
        assert!(!is_complaint(&json!({"method": "Page.loadEventFired"})));
    }
}
