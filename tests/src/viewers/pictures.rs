//! Pictures of the status page, each with a text of what it shows, and the screen of `top`. The host keeps them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::browser::Browser;
use crate::catalogue::{HOST, PICTURES};
use crate::init;

/// The time limit of one file.
const KEPT: Duration = Duration::from_secs(60);
/// What a picture shows: the headings, and the columns of each table.
const SHOWN: &str = "(() => { const texts = list => [...list].filter(it => it.closest('section').checkVisibility()).map(it => it.textContent); \
    return { agent: document.getElementById('agent').textContent, title: document.title, headings: texts(document.querySelectorAll('h2')), \
    columns: Object.fromEntries([...document.querySelectorAll('table')].map(it => [it.id, texts(it.querySelectorAll('th'))])) }; })()";

/// Where the parts of the page end, with the gap after each.
const ENDS: &str = "[...document.querySelectorAll('section')].filter(it => it.checkVisibility()).map(it => Math.ceil(it.getBoundingClientRect().bottom) + 14)";

/// The screen of a reader.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub width: u32,
    /// A longer page is cut, at the end of the last part that fits.
    pub most_height: u64,
    /// `light` or `dark`.
    pub scheme: &'static str,
}

/// Returns whether the developer asked for pictures.
pub fn are_wanted() -> bool {
    init::option(PICTURES).is_some()
}

/// Takes a picture of the page, and sends it to the host with a text of what it shows. Nothing happens if no pictures are wanted.
pub fn take(browser: &mut Browser, name: &str, screen: Screen) -> Result<()> {
    if !are_wanted() {
        return Ok(());
    }
    let Screen { width, most_height, scheme } = screen;
    let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
    browser.call("Emulation.setEmulatedMedia", &media)?;
    browser.call("Emulation.setScrollbarsHidden", &json!({"hidden": true}))?;
    browser.call("Emulation.setDeviceMetricsOverride", &metrics(width, most_height))?;
    let ends: Vec<u64> = serde_json::from_value(browser.evaluate(ENDS)?).context("the ends of the page's parts")?;
    let height = ends.into_iter().filter(|end| *end <= most_height).max().unwrap_or(most_height);
    browser.call("Emulation.setDeviceMetricsOverride", &metrics(width, height))?;
    let shown = browser.evaluate(SHOWN)?;
    let answer = browser.call("Page.captureScreenshot", &json!({"format": "png"}))?;
    let png = STANDARD.decode(answer["data"].as_str().unwrap_or_default()).context("the picture is no base64")?;
    let text = text(&shown, &png, screen, height)?;
    send(&format!("{name}.png"), &png)?;
    send(&format!("{name}.json"), text.as_bytes())
}

/// Sends the screen of a terminal to the host. Nothing happens if no pictures are wanted.
pub fn take_screen(name: &str, screen: &str) -> Result<()> {
    if are_wanted() { send(&format!("{name}.txt"), screen.as_bytes()) } else { Ok(()) }
}

fn metrics(width: u32, height: u64) -> Value {
    json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
}

/// Returns what the picture shows. The check sum says of which picture.
fn text(shown: &Value, png: &[u8], screen: Screen, height: u64) -> Result<String> {
    let mut text = json!({
        "scenario": "status-page", "crc32": format!("{:08x}", crc32fast::hash(png)), "scheme": screen.scheme,
        "width": screen.width, "height": height,
    });
    for key in ["agent", "title", "headings", "columns"] {
        text[key] = shown[key].clone();
    }
    Ok(serde_json::to_string_pretty(&text)? + "\n")
}

/// Sends a file to the host, and waits until it is written.
fn send(name: &str, content: &[u8]) -> Result<()> {
    let address = SocketAddr::from((HOST, super::port(PICTURES)?));
    let mut connection = TcpStream::connect(address).with_context(|| format!("connect to the host for {name}"))?;
    connection.set_read_timeout(Some(KEPT)).context("set read timeout")?;
    connection.set_write_timeout(Some(KEPT)).context("set write timeout")?;
    let sent = connection.write_all(format!("{name}\n").as_bytes()).and_then(|()| connection.write_all(content));
    sent.and_then(|()| connection.shutdown(Shutdown::Write)).with_context(|| format!("send {name}"))?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).with_context(|| format!("wait until {name} is written"))?;
    ensure!(answer.is_empty(), "the host answers {name}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_its_picture() {
        let shown =
            json!({"agent": "worker-1", "title": "t", "headings": ["Signals"], "columns": {"ranking": ["place"]}});
        let screen = Screen { width: 390, most_height: 900, scheme: "dark" };
        let text: Value = serde_json::from_str(&text(&shown, b"123456789", screen, 844).unwrap()).unwrap();
        assert_eq!((&text["crc32"], &text["headings"]), (&json!("cbf43926"), &json!(["Signals"])));
        assert_eq!((&text["width"], &text["height"]), (&json!(390), &json!(844)));
    }
}
