//! The status page in a headless Chromium: what is to be seen of scripted documents, and of a running agent.
//!
//! The pictures in config/screens are of a virtual machine: `SCREENS=$PWD/config/screens cargo xtask vm status-page` takes them anew.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use node_pressure_monitor::units::Bytes;
use node_pressure_state::Degradation;
use serde_json::Value;

#[path = "support/agent.rs"]
#[expect(dead_code, reason = "other tests ask the agent themselves")]
mod agent;
#[path = "support/browser.rs"]
mod browser;
#[path = "support/page_source.rs"]
mod page_source;
#[path = "support/scripted_page.rs"]
mod scripted_page;

use agent::Agent;
use browser::Browser;
use page_source::{Shown, expected};
use scripted_page::{Script, crowded, evicting, near, quiet};

const WIDE: (u32, u32) = (1400, 900);
const MIDDLE: (u32, u32) = (1120, 780);
const PHONE: (u32, u32) = (390, 844);

/// Returns the browser's program, or says that the test is skipped.
fn program() -> Option<&'static str> {
    let found = browser::program();
    if found.is_none() {
        let _unheard = writeln!(std::io::stderr(), "SKIPPED the status page in a browser: there is no chromium");
    }
    found
}

/// Asserts that the page has asked only its agent, without an error or a violation of its policy.
fn assert_clean(browser: &Browser, address: SocketAddr) {
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
    let own = format!("http://{address}/");
    let foreign: Vec<&str> =
        browser.requests().into_iter().filter(|url| !url.starts_with(&own) && !url.starts_with("data:")).collect();
    assert_eq!(foreign, Vec::<&str>::new());
}

#[test]
fn quiet_near_and_evicting_are_told_at_a_glance() {
    let Some(program) = program() else { return };
    let script = Script::start(quiet());
    let mut browser = Browser::start(program, WIDE, "light");
    browser.go(&script.page());
    browser.until("document.getElementById('light').className === 'green'");
    let text = browser.text();
    for shown in [
        "no threshold is near",
        "worker-1 · mode enforce",
        "1.4 GiB of 2.0 GiB",
        "batch/report-7k4qd (next)",
        "its end would buy less than 10 s",
        "critical pod",
        "1,204,332 inodes of 1,310,720 inodes",
        "batch/report-2m9xz was evicted for memory.available (gone)",
    ] {
        assert!(text.contains(shown), "{shown:?} is not on the page:\n{text}");
    }
    assert!(!text.contains("EVICTIONS\n") && !text.contains("TO MEND"), "{text}");

    script.set(Some(near()));
    browser.until("document.getElementById('light').className === 'yellow'");
    let text = browser.text();
    let sentence = "41 s to the threshold memory.available<100Mi; batch/report-7k4qd would be evicted";
    assert!(text.contains(sentence) && text.contains("What to do: start the runtime"), "{text}");
    assert_eq!(browser.evaluate("document.title"), format!("▲ worker-1: {sentence}"));

    script.set(Some(evicting()));
    browser.until("document.getElementById('light').className === 'red'");
    assert!(browser.text().contains("batch/report-7k4qd: it was killed, and processes are left, for memory.available"));
    // An incident opens, and stays open while documents come.
    browser.evaluate("document.querySelector('details summary').click()");
    browser.until("document.querySelector('details pre').textContent.includes('<b>of</b> batch/report')");
    browser.evaluate("document.getElementById('more').click()");
    browser.until("document.body.innerText.includes('an older one')");
    assert_eq!(browser.evaluate("document.querySelectorAll('details[open]').length"), 1);
    browser.evaluate("document.querySelectorAll('#tabs button')[1].click()");
    browser.until("document.querySelector('#tabs [aria-selected=true]').textContent === 'nodefs.inodesFree'");
    assert_clean(&browser, script.address);
}

/// The elements whose text is wider than they are. Elements in a line have no width of their own.
const CUT: &str = "[...document.querySelectorAll('body *')].filter(it => it.clientWidth && it.scrollWidth > it.clientWidth) \
    .map(it => it.outerHTML.slice(0, 200))";

/// The elements that would hide what is wider than they are.
const HIDING: &str = "[...document.querySelectorAll('body *')].filter(it => it instanceof HTMLElement && \
    (getComputedStyle(it).textOverflow !== 'clip' || getComputedStyle(it).overflowX !== 'visible')).map(it => it.outerHTML.slice(0, 200))";

#[test]
fn no_text_is_cut_at_any_width() {
    let Some(program) = program() else { return };
    let script = Script::start(crowded(40));
    for size in [WIDE, MIDDLE, PHONE] {
        let mut browser = Browser::start(program, size, "light");
        browser.go(&script.page());
        browser.until("document.getElementById('light').className === 'yellow'");
        for id in ["ranking", "workloads"] {
            browser.evaluate(&format!("document.getElementById('{id}-all').click()"));
            browser.until(&format!("document.querySelectorAll('#{id} tbody tr:not(.details)').length === 43"));
        }
        browser.evaluate("document.querySelectorAll('#ranking button, #workloads button, details summary').forEach(it => it.click())");
        browser.until("document.querySelector('details pre').textContent.includes('THE POST-MORTEM')");
        assert_eq!(browser.evaluate("document.querySelectorAll('tr.details[hidden]').length"), 0);
        assert_eq!(browser.evaluate(CUT), serde_json::json!([]), "cut at {size:?}");
        let is_fitting = "document.documentElement.scrollWidth <= window.innerWidth && \
            ![...document.querySelectorAll('body *')].some(it => it.getBoundingClientRect().right > window.innerWidth + 1)";
        assert_eq!(browser.evaluate(is_fitting), true, "it scrolls sideways at {size:?}");
        assert_eq!(browser.evaluate(HIDING), serde_json::json!([]), "at {size:?}");
    }
}

#[test]
fn a_row_opens_by_a_key_and_stays_open() {
    let Some(program) = program() else { return };
    let script = Script::start(near());
    let mut browser = Browser::start(program, WIDE, "light");
    browser.go(&script.page());
    browser.until("document.getElementById('light').className === 'yellow'");
    let details = "document.querySelector('#ranking tr.details').innerText";
    assert_eq!(browser.evaluate("document.querySelector('#ranking tr.details').checkVisibility()"), false);
    browser.evaluate("document.querySelector('#ranking button').focus()");
    browser.press_enter();
    browser.until("document.querySelector('#ranking button').getAttribute('aria-expanded') === 'true'");
    let text = browser.evaluate(details);
    for shown in [
        "qosClass: BestEffort",
        "exceedsRequests: exceeds its request",
        "/kubepods/besteffort/pod1",
        "ReplicaSet/report-7k4qd",
    ] {
        assert!(text.as_str().unwrap().contains(shown), "{shown:?} is not in {text}");
    }
    // The next document has other figures: the row is drawn again, and is open, with the focus on its button.
    script.set(Some(evicting()));
    browser.until("document.getElementById('light').className === 'red'");
    assert_eq!(browser.evaluate("document.activeElement.getAttribute('aria-expanded')"), "true");
    assert!(browser.evaluate(details).as_str().unwrap().contains("/kubepods/besteffort/pod1"));
}

#[test]
fn incidents_come_before_tables_and_have_the_full_width() {
    let Some(program) = program() else { return };
    let script = Script::start(near());
    let mut browser = Browser::start(program, WIDE, "light");
    browser.go(&script.page());
    browser.until("document.getElementById('light').className === 'yellow'");
    let top = |id: &str| format!("document.getElementById('{id}').getBoundingClientRect().top");
    let is_before = format!("{} < {} && {0} < {}", top("incidents"), top("ranking"), top("workloads"));
    assert_eq!(browser.evaluate(&is_before), true);
    browser.evaluate("document.querySelector('details summary').click()");
    browser.until("document.querySelector('details pre').textContent.includes('THE POST-MORTEM')");
    let width = browser.evaluate("document.querySelector('details pre').getBoundingClientRect().width");
    assert!(width.as_f64().unwrap() > 0.9 * f64::from(WIDE.0), "{width}");
}

#[test]
fn the_scripted_documents_are_consistent() {
    for state in [quiet(), near(), evicting(), crowded(40)] {
        let memory = state.signal("memory.available").unwrap();
        let used: u64 = state.workloads.iter().filter_map(|it| it.memory_bytes).sum();
        assert!(used <= memory.capacity.unwrap() - memory.available.unwrap(), "the workloads use more than is used");
        for place in state.rankings.iter().flat_map(|ranking| &ranking.places) {
            let (usage, workload) = (place.usage.unwrap(), state.workload(&place.workload).unwrap());
            let is_memory = workload.memory_bytes == Some(usage);
            assert!(is_memory || workload.disk_inodes == Some(usage), "{place:?} has another usage than {workload:?}");
            assert!(place.request.is_none() || place.request == workload.memory_request_bytes, "{place:?}");
            let Some(request) = place.request else { continue };
            for text in place.why.iter().chain(place.keys.iter().map(|key| &key.value)) {
                let above = text.split_once(" above ").and_then(|(before, _)| before.rsplit(", ").next());
                assert!(above.is_none_or(|above| above == Bytes(usage - request).to_string()), "{place:?}");
            }
        }
    }
}

/// The headings and the columns of what a reader sees.
const SHOWN: &str = "(() => { const texts = list => [...list].filter(it => it.closest('section').checkVisibility()).map(it => it.textContent); \
    return [texts(document.querySelectorAll('h2')), [...document.querySelectorAll('table')].map(it => [it.id, texts(it.querySelectorAll('th'))])]; })()";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn source() -> String {
    std::fs::read_to_string(root().join("monitor/src/report/http/status_page.html")).unwrap()
}

#[test]
fn the_committed_pictures_show_this_page() {
    let again = "take the pictures anew: SCREENS=$PWD/config/screens cargo xtask vm status-page";
    let documents = ["README.md", "config/README.md", "config/METRICS.md", "monitor/README.md", "tests/README.md"];
    let documents = documents.map(|document| std::fs::read_to_string(root().join(document)).unwrap()).join("");
    let mut pictures = 0;
    for entry in std::fs::read_dir(root().join("config/screens")).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".png")) else {
            // The screen of `top` is compared by the tests of `top`.
            let is_known = path.with_extension("png").exists() || path.ends_with("top.txt");
            assert!(is_known, "{} is of no picture", path.display());
            continue;
        };
        pictures += 1;
        assert!(documents.contains(&format!("screens/{name}")), "no document shows {name}");
        let text = std::fs::read(path.with_extension("json"));
        let text: Value =
            serde_json::from_slice(&text.unwrap_or_else(|_| panic!("{name} has no text; {again}"))).unwrap();
        let sum = format!("{:08x}", crc32fast::hash(&std::fs::read(&path).unwrap()));
        assert_eq!(text["crc32"], sum, "the text is of another picture than {name}; {again}");
        let headings: Vec<String> = serde_json::from_value(text["headings"].clone()).unwrap();
        let columns = serde_json::from_value(text["columns"].clone()).unwrap();
        let expected = expected(&source(), &headings);
        assert_eq!(Shown { headings, columns }, expected, "{name} shows another page than the source; {again}");
    }
    assert!(pictures > 0, "there is no picture");
}

#[test]
fn the_source_has_the_headings_that_a_reader_sees() {
    let Some(program) = program() else { return };
    let mut all = near();
    all.evictions = evicting().evictions;
    all.verdict = all.judge();
    for state in [all, quiet()] {
        let level = format!("{:?}", state.verdict.level).to_lowercase();
        let script = Script::start(state);
        let mut browser = Browser::start(program, WIDE, "light");
        browser.go(&script.page());
        browser.until(&format!("document.getElementById('light').className === '{level}'"));
        let (headings, columns): (Vec<String>, Vec<(String, Vec<String>)>) =
            serde_json::from_value(browser.evaluate(SHOWN)).unwrap();
        let expected = expected(&source(), &headings);
        assert_eq!(headings.len(), if level == "red" { 7 } else { 5 });
        assert_eq!(Shown { headings, columns: columns.into_iter().collect() }, expected);
    }
}

#[test]
fn the_page_is_dark_where_the_reader_wants_it_and_fits_a_phone() {
    let Some(program) = program() else { return };
    let script = Script::start(near());
    let mut dark = Browser::start(program, WIDE, "dark");
    dark.go(&script.page());
    dark.until("document.getElementById('light').className === 'yellow'");
    assert_eq!(dark.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(15, 18, 22)");
    assert_clean(&dark, script.address);
    drop(dark);
    let mut phone = Browser::start(program, PHONE, "light");
    phone.go(&script.page());
    phone.until("document.getElementById('light').className === 'yellow'");
    assert_eq!(
        phone.evaluate("document.documentElement.scrollWidth <= window.innerWidth"),
        true,
        "it scrolls sideways"
    );
}

#[test]
fn names_of_workloads_are_text() {
    let Some(program) = program() else { return };
    let hostile = "<img src=x onerror=document.title='run'>/</script><script>document.title='run'</script>";
    let mut state = evicting();
    state.workloads[0].name.display = hostile.to_owned();
    state.rankings[0].places[0].display = hostile.to_owned();
    state.evictions.under_way[0].display = hostile.to_owned();
    state.incidents[0].summary = hostile.to_owned();
    state.incidents[0].id = "../../?x=\"'<".to_owned();
    state.degradations.push(Degradation {
        capability: hostile.to_owned(),
        sentence: hostile.to_owned(),
        mend: Some(hostile.to_owned()),
    });
    state.workloads[1].name.display = "shop/\u{202e}bew\u{7}".to_owned();
    state.agent.configuration.refused = Some("line 3: no such field".to_owned());
    state.verdict = state.judge();
    let script = Script::start(state);
    let mut browser = Browser::start(program, WIDE, "light");
    browser.go(&script.page());
    browser.until("document.getElementById('light').className === 'red'");
    assert!(browser.text().contains("shop/?bew?"), "no character turns the direction of the text");
    assert!(browser.text().contains("it was refused, and the one before is in force: line 3: no such field"));
    assert_eq!(browser.evaluate("document.images.length + document.scripts.length"), 1);
    assert!(browser.text().matches(hostile).count() >= 5, "{}", browser.text());
    assert_ne!(browser.evaluate("document.title"), "run");
    assert_clean(&browser, script.address);
}

#[test]
fn a_lost_connection_is_told_and_mended() {
    let Some(program) = program() else { return };
    let script = Script::start(quiet());
    let mut browser = Browser::start(program, WIDE, "light");
    browser.go(&script.page());
    browser.until("document.getElementById('light').className === 'green'");
    script.set(None);
    browser.until("document.body.classList.contains('lost')");
    browser.until("document.getElementById('lost').textContent.includes('old')");
    script.set(Some(near()));
    browser
        .until("!document.body.classList.contains('lost') && document.getElementById('light').className === 'yellow'");
}

#[test]
fn a_link_opens_the_page_of_an_agent_that_asks_for_a_token() {
    let Some(program) = program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "0123456789abcdef0123456789abcdef\n").unwrap();
    let token = format!("bearerToken: {{file: {}}}", tokens.display());
    let agent = Agent::start(&format!("metrics: {{{token}}}\n"), "json");
    let file = agent.path("open.yaml");
    let open = |metrics: &str| {
        std::fs::write(&file, agent::configuration(&format!("metrics: {{{metrics}}}\n"))).unwrap();
        let out = std::process::Command::new(agent::PROGRAM).args(["open", "--config"]).arg(&file).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let link = open(&format!("listen: \"{}\", {token}", agent.address));
    let mut browser = Browser::start(program, WIDE, "light");
    browser.go_through(&link, &format!("http://{}/", agent.address));
    browser.until("['green', 'yellow'].includes(document.getElementById('light').className)");
    assert_eq!(browser.evaluate("document.cookie"), "", "no script reads the cookie");
    assert_clean(&browser, agent.address);
    // The link was used, and another browser has no cookie.
    let mut other = Browser::start(program, WIDE, "light");
    other.go_through(&link, &link);
    other.until("document.body.innerText.includes('this link was used')");
    other.go(&format!("http://{}/", agent.address));
    other.until("document.body.innerText.includes('a bearer token is asked for')");
}

#[test]
fn a_link_is_made_over_tls_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["agent.example".to_owned()]).unwrap();
    std::fs::write(path("tokens"), "0123456789abcdef0123456789abcdef\n").unwrap();
    std::fs::write(path("tls.crt"), cert.pem()).unwrap();
    std::fs::write(path("tls.key"), signing_key.serialize_pem()).unwrap();
    let metrics = format!(
        "bearerToken: {{file: {}}}, tls: {{certificate: {}, key: {}}}",
        path("tokens").display(),
        path("tls.crt").display(),
        path("tls.key").display()
    );
    let agent = Agent::start(&format!("metrics: {{{metrics}}}\n"), "json");
    let configuration = format!("metrics: {{listen: \"{}\", {metrics}}}\n", agent.address);
    std::fs::write(path("open.yaml"), agent::configuration(&configuration)).unwrap();
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(agent::PROGRAM);
        let out = command.args(words).arg("--config").arg(path("open.yaml")).output().unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (is_done, link, why) = run(&["open", "--at", "https://localhost:1/"]);
    assert!(is_done && link.starts_with("https://localhost:1/open?code="), "{link} {why}");
    let (is_done, screen, why) = run(&["top", "--once", "--token-file", path("tokens").to_str().unwrap()]);
    assert!(is_done && screen.contains("memory.available"), "{screen} {why}");
    // Another certificate is not trusted.
    let other = rcgen::generate_simple_self_signed(["agent.example".to_owned()]).unwrap();
    std::fs::write(path("other.crt"), other.cert.pem()).unwrap();
    std::fs::write(path("open.yaml"), agent::configuration(&configuration.replace("tls.crt", "other.crt"))).unwrap();
    let (is_done, _, why) = run(&["open"]);
    assert!(!is_done && why.contains("certificate"), "{why}");
}

#[test]
fn a_running_agent_shows_its_node() {
    let Some(program) = program() else { return };
    let agent = Agent::start("evictionHard: {memory.available: 1Mi, pid.available: \"5\"}\n", "json");
    let mut browser = Browser::start(program, WIDE, "light");
    browser.go(&format!("http://{}/", agent.address));
    browser.until("['green', 'yellow'].includes(document.getElementById('light').className)");
    let text = browser.text();
    let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for shown in [node.trim(), "mode observe", "memory.available", "hard memory.available<1Mi", "pid.available"] {
        assert!(text.contains(shown), "{shown:?} is not on the page:\n{text}");
    }
    assert_clean(&browser, agent.address);
}
