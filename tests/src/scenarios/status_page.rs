//! The status page in a browser of the host, before, during and after a ramp.
//!
//! `SCREENS=$PWD/config/screens cargo xtask vm status-page` takes the pictures and the screen in config/screens anew.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::viewed::{BYSTANDER, RAMP_MIB, VICTIM, Viewed};
use crate::agent::PROGRAM;
use crate::catalogue::{GUEST, VIEWED_PORT};
use crate::stage::Stage;
use crate::viewers::browser::Browser;
use crate::viewers::pictures::{self, Screen};

const IS_GREEN: &str = "document.getElementById('light').className === 'green'";
/// The agent foresees the crossing. A victim that was faster is being evicted.
const IS_NEAR: &str = "document.getElementById('light').className !== 'green'";
const WIDE: Screen = Screen { width: 1400, most_height: 1200, scheme: "light" };
const PHONE: Screen = Screen { width: 390, most_height: 1700, scheme: "light" };
/// Notes each colour of the traffic light from now on.
const WATCH_LIGHT: &str = "window.lights = []; new MutationObserver(() => \
    lights.push(document.getElementById('light').className)).observe(document.getElementById('light'), {attributes: true})";

/// MiB per second. Between the warning and the eviction is time for a picture.
const LEISURELY_MIB: u32 = 12;

/// Returns what `top` shows of the agent.
fn top() -> Result<String> {
    let url = format!("http://{}", SocketAddr::from((GUEST, VIEWED_PORT)));
    let arguments = ["top", "--once", "--width", "118", "--height", "18", "--url", &url];
    let output = Command::new(PROGRAM).args(arguments).output().context("start top")?;
    ensure!(output.status.success(), "top: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn status_page(stage: &mut Stage<'_>) -> Result<()> {
    let viewed = Viewed::start(stage)?;
    let mut browser = Browser::start()?;
    browser.go(&crate::viewers::page()?)?;
    browser.until(IS_GREEN)?;
    let before = browser.text()?;
    let bystander = format!("default/{BYSTANDER}");
    for shown in ["mode enforce", "hard memory.available<100Mi", &bystander, "The journal has no incident."] {
        stage.check(before.contains(shown), || format!("{shown:?} is not on the page before the ramp: {before}"));
    }
    browser.evaluate(WATCH_LIGHT)?;

    let wanted = pictures::are_wanted();
    let ramp = viewed.start_ramp(stage, if wanted { LEISURELY_MIB } else { RAMP_MIB })?;
    if wanted {
        browser.until(IS_NEAR)?;
        pictures::take_screen("top", &top()?)?;
        pictures::take(&mut browser, "near", WIDE)?;
    }
    viewed.end_ramp(stage, &ramp)?;
    let incidents = "document.getElementById('incidents').innerText";
    for shown in
        [format!("pod default/{VICTIM}, "), "evicted for memory.available<100Mi".to_owned(), "(gone)".to_owned()]
    {
        browser.until(&format!("{incidents}.includes({shown:?})"))?;
    }
    browser.until(IS_GREEN)?;
    let lights = browser.evaluate("window.lights.join(' ')")?;
    let lights = lights.as_str().unwrap_or_default();
    stage.note(format!("the traffic light after the start of the ramp: {lights}"));
    stage.check(lights.contains("yellow") || lights.contains("red"), || {
        format!("the light never left green during the ramp: {lights:?}")
    });

    // The incident opens, and says what happened.
    browser.evaluate("document.querySelector('#incidents details summary').click()")?;
    let record = "document.querySelector('#incidents details pre').innerText";
    browser.until(&format!("{record} !== 'reading'"))?;
    let text = browser.evaluate(record)?;
    let text = text.as_str().unwrap_or_default();
    for shown in [format!("default/{VICTIM}"), "memory.available<100Mi".to_owned()] {
        stage.check(text.contains(&shown), || format!("{shown:?} is not in the opened incident: {text}"));
    }
    pictures::take(&mut browser, "incident", Screen { most_height: 2100, ..WIDE })?;
    // Documents of a calm node come every five seconds, and leave the incident open.
    stage.pause(Duration::from_secs(11));
    let open = browser.evaluate("document.querySelectorAll('#incidents details[open]').length")?;
    stage.check_equal("open incidents", &open, &serde_json::json!(1));
    let after = browser.text()?;
    stage.check(after.contains(&bystander), || format!("{bystander:?} is not on the page after the ramp: {after}"));
    stage.page(&after);
    browser.evaluate("document.querySelector('#incidents details summary').click()")?;
    browser.evaluate("document.getElementById('tab:memory.available').click()")?;
    pictures::take(&mut browser, "phone", PHONE)?;
    browser.evaluate("document.querySelector('#ranking tbody button').click()")?;
    pictures::take(&mut browser, "dark", Screen { scheme: "dark", ..WIDE })?;
    stage.check_equal("the browser's complaints", &browser.complaints, &Vec::new());
    viewed.stop(stage)
}
