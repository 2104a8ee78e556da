//! A headless Chromium, driven over its DevTools protocol through two pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A time limit longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAMS: [&str; 4] = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];

pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    /// Events of the page, oldest first.
    pub events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// Returns the browser's program; `None` if there is none.
pub fn program() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    PROGRAMS.into_iter().find(is_there)
}

impl Browser {
    /// Starts the browser with an empty page of this size. It ends after some minutes by itself.
    pub fn start(program: &str, (width, height): (u32, u32), scheme: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // Chromium reads the protocol from its file descriptor 3, and writes it to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec timeout 300 \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Self { child, input, output, session: None, last: 0, events: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        browser.call("Emulation.setDeviceMetricsOverride", &size);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.call("Emulation.setEmulatedMedia", &media);
        browser
    }

    /// Opens a page, and waits until its script has run.
    pub fn go(&mut self, address: &str) {
        self.call("Page.navigate", &json!({"url": address}));
        self.until(&format!("location.href === {address:?} && document.readyState !== 'loading'"));
    }

    /// Opens a link that leads on to another page.
    pub fn go_through(&mut self, link: &str, page: &str) {
        self.call("Page.navigate", &json!({"url": link}));
        self.until(&format!("location.href === {page:?} && document.readyState !== 'loading'"));
    }

    /// Returns the value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self
            .call("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true, "awaitPromise": true}));
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until the expression is true in the page.
    pub fn until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.evaluate(expression) != true {
            if begun.elapsed() > PATIENCE {
                panic!("{expression} is not true of: {}\n{:?}", self.text(), self.complaints());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses the Enter key.
    pub fn press_enter(&mut self) {
        for (kind, text) in [("keyDown", "\r"), ("keyUp", "")] {
            let event =
                json!({"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": text});
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Returns the text that a reader sees.
    pub fn text(&mut self) -> String {
        self.evaluate("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Returns errors, exceptions and violations of the page's policy.
    pub fn complaints(&self) -> Vec<&Value> {
        let is_complaint = |event: &&Value| {
            event["method"] == "Runtime.exceptionThrown"
                || event["method"] == "Log.entryAdded" && event["params"]["entry"]["level"] == "error"
                || event["method"] == "Runtime.consoleAPICalled" && event["params"]["type"] == "error"
        };
        self.events.iter().filter(is_complaint).collect()
    }

    /// Returns the addresses that the page has asked for.
    pub fn requests(&self) -> Vec<&str> {
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.filter_map(|event| event["params"]["request"]["url"].as_str()).collect()
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut text = Vec::new();
            self.output.read_until(0, &mut text).unwrap();
            assert_eq!(text.pop(), Some(0), "the browser has ended");
            let message: Value = serde_json::from_slice(&text).unwrap();
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}
