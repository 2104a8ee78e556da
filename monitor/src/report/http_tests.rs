use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::config::{ServingOptions, TlsFiles};
use crate::report::publications::Publication;
use crate::report::series::SeriesLimits;
use crate::report::{MemoryReport, NodeReport};

struct Fixture {
    address: SocketAddr,
    health: Arc<Health>,
    publications: Arc<Publications>,
    incidents: Arc<IncidentIndex>,
}

async fn start() -> Fixture {
    start_with(std::path::Path::new("/nonexistent")).await
}

/// Starts a server with a journal in `directory`.
async fn start_with(directory: &std::path::Path) -> Fixture {
    start_behind(directory, Guard::default()).await
}

/// Starts a server with this guard.
async fn start_behind(directory: &std::path::Path, guard: Guard) -> Fixture {
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let health = Arc::new(Health::new(Duration::from_secs(30), Instant::now()));
    let metrics = Metrics::new("1.2.3", SeriesLimits::default()).unwrap();
    let publications = Arc::new(Publications::default());
    publications.publish(publication(None));
    let incidents = Arc::new(IncidentIndex::new(directory));
    let shared = Shared {
        metrics: Arc::new(metrics),
        health: Arc::clone(&health),
        incidents: Arc::clone(&incidents),
        publications: Arc::clone(&publications),
        guard: Arc::new(guard),
    };
    tokio::spawn(serve(listener, shared));
    Fixture { address, health, publications, incidents }
}

fn publication(memory: Option<MemoryReport>) -> Publication {
    use crate::node::{CgroupVersion, Hierarchy};
    let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: "/none".into(), freezer: None, hybrid: false };
    Publication {
        at: Instant::now(),
        report: NodeReport { memory, probe_statistics: Some(Vec::new()), ..NodeReport::default() },
        runtime: crate::runtime::View::default(),
        mode: crate::config::Mode::Observe,
        semantics: crate::config::Semantics::Corrected,
        hierarchy,
        listen: "127.0.0.1:9946".parse().unwrap(),
        known: None,
        live: None,
        generation: 0,
    }
}

async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    // A connection reset after the response counts as its end.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

async fn fetch(address: SocketAddr, path: &str) -> String {
    exchange(address, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await
}

#[tokio::test]
async fn every_path_answers() {
    let fixture = start().await;
    let index = fetch(fixture.address, "/").await;
    assert!(index.starts_with("HTTP/1.1 200 OK\r\n"), "{index}");
    assert!(index.ends_with(INDEX), "{index}");
    assert!(fetch(fixture.address, "/healthz").await.ends_with("\r\n\r\nok\n"));
    let page = fetch(fixture.address, "/summary").await;
    assert!(page.contains("\r\nage: 0\r\n") && page.contains("\nmode        observe"), "{page}");
    // A stream does not end.
    for path in PATHS.into_iter().filter(|path| *path != "/api/v1/watch") {
        let answer = fetch(fixture.address, path).await;
        assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 503"), "{path}: {answer}");
    }
    assert!(fetch(fixture.address, "/none").await.starts_with("HTTP/1.1 404"));
    let posted =
        exchange(fixture.address, b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").await;
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
}

#[tokio::test]
async fn readiness_lists_degradations() {
    let fixture = start().await;
    let text = fetch(fixture.address, "/readyz").await;
    assert!(text.starts_with("HTTP/1.1 503"), "{text}");
    assert!(text.ends_with("\r\n\r\nnot ready: starting\n"), "{text}");
    fixture.health.set_ready(Ok(()));
    fixture.health.set_degradation("no CAP_BPF", Some("polling only"));
    let text = fetch(fixture.address, "/readyz").await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.ends_with("\r\n\r\nready\ndegraded: no CAP_BPF: polling only\n"), "{text}");
}

#[tokio::test]
async fn a_scrape_after_a_change_waits_for_the_next_publication() {
    let fixture = start().await;
    assert!(!fetch(fixture.address, "/metrics").await.contains("memory_capacity_bytes 0"));
    fixture.publications.outdate();
    let scrape = tokio::spawn(fetch(fixture.address, "/metrics"));
    fixture.publications.asked().await;
    fixture.publications.publish(publication(Some(MemoryReport::default())));
    let text = scrape.await.unwrap();
    assert!(text.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
    assert!(text.contains("\nnode_pressure_monitor_memory_capacity_bytes 0\n"), "{text}");
}

#[tokio::test]
async fn a_scrape_never_waits_long_for_a_busy_loop() {
    let fixture = start().await;
    fixture.publications.outdate();
    let begun = Instant::now();
    // The loop publishes nothing more, so both requests get the last publication.
    let (first, second) = tokio::join!(fetch(fixture.address, "/metrics"), fetch(fixture.address, "/metrics"));
    for text in [first, second] {
        assert!(text.contains(",version=\"1.2.3\"} 1\n"), "{text}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn openmetrics_is_served_to_a_client_that_asks_for_it() {
    let fixture = start().await;
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n";
    let text = exchange(fixture.address, request.as_bytes()).await;
    assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0"), "{text}");
    assert!(text.contains("# TYPE node_pressure_monitor_log_lines_dropped counter\n"), "{text}");
    assert!(text.contains("# EOF\n"), "{text}");
}

#[tokio::test]
async fn an_endless_header_is_cut_off() {
    let fixture = start().await;
    let request = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(HEADER_BYTES * 4));
    let text = exchange(fixture.address, request.as_bytes()).await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
}

#[tokio::test]
async fn no_request_is_smuggled_traverses_or_fills_the_memory() {
    const NEXT: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let fixture = start().await;
    let head = "Host: localhost\r\nContent-Length";
    for smuggled in [
        format!("GET /healthz HTTP/1.1\r\n{head}: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{NEXT}"),
        format!("GET /healthz HTTP/1.1\r\n{head}: 0\r\nContent-Length: 5\r\n\r\n{NEXT}"),
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n{NEXT}"),
    ] {
        let text = exchange(fixture.address, smuggled.as_bytes()).await;
        assert!(text.matches("HTTP/1.1 ").count() <= 1 && !text.contains("memory_capacity"), "{smuggled}: {text}");
    }
    for path in ["/../../etc/passwd", "/incidents/../../etc/passwd", "/incidents/%2e%2e%2f%2e%2e%2fetc%2fpasswd"] {
        let text = fetch(fixture.address, path).await;
        assert!(text.starts_with("HTTP/1.1 4") && !text.contains("root:"), "{path}: {text}");
    }
    // The body is never sent, and the answer does not wait for it.
    for (method, status) in [("GET", "200"), ("POST", "405")] {
        let request = format!("{method} /healthz HTTP/1.1\r\n{head}: 1000000000\r\n\r\n");
        let answer = tokio::time::timeout(HEADER_TIME / 2, exchange(fixture.address, request.as_bytes())).await;
        let text = answer.unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    }
}

#[tokio::test]
async fn silent_clients_do_not_block_others() {
    let fixture = start().await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(fixture.address).await.unwrap());
    }
    let begun = Instant::now();
    assert!(fetch(fixture.address, "/healthz").await.ends_with("ok\n"));
    assert!(begun.elapsed() < HEADER_TIME / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_busy_port_is_named_with_the_fix() {
    let taken = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = bind(address).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "cannot listen on {address}: the port is in use; stop what uses it, or choose another with --listen or metrics.listen"
        )
    );
    let error = bind("192.0.2.1:9946".parse().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("no interface has this address; choose another with"), "{error}");
}

#[tokio::test]
async fn incidents_are_listed_and_rendered() {
    use crate::incidents::incident_index::Body;
    use crate::incidents::{Head, Incident};
    let fixture = start().await;
    assert!(fetch(fixture.address, "/incidents").await.ends_with("\r\n\r\n[]"));
    for id in ["20260102-030405-oom-7", "20260102-030406-oom-8"] {
        let incident = Incident { id: id.to_owned(), summary: "a story".to_owned(), ..Incident::default() };
        fixture.incidents.put(Head::from(&incident), Body::Memory(serde_json::to_vec(&incident).unwrap().into()));
    }
    let list = fetch(fixture.address, "/incidents?limit=1").await;
    let shown =
        r#"[{"id":"20260102-030406-oom-8","kind":"OomKill","time":"1970-01-01T00:00:00Z","summary":"a story"}]"#;
    assert!(list.contains("content-type: application/json") && list.ends_with(shown), "{list}");
    let one = fetch(fixture.address, "/incidents/20260102-030405-oom-7").await;
    assert!(one.contains(r#"{"id":"20260102-030405-oom-7","kind":"OomKill","#), "{one}");
    let text = fetch(fixture.address, "/incidents/last?output=text").await;
    assert!(text.contains("content-type: text/plain") && text.contains("\r\n\r\n20260102-030406-oom-8 "), "{text}");
    assert!(fetch(fixture.address, "/incidents/none").await.starts_with("HTTP/1.1 404"));
    assert!(fetch(fixture.address, "/incidents?limit=x").await.starts_with("HTTP/1.1 400"));
    assert!(fetch(fixture.address, "/incidents/last?output=xml").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn a_hanging_disk_delays_only_incident_records() {
    use crate::incidents::incident_index::Body;
    use crate::incidents::journal::{Location, Segment};
    use crate::incidents::{Head, Incident};
    let directory = tempfile::tempdir().unwrap();
    // Opening a pipe blocks until its other end is opened. This simulates a hanging disk.
    let path = Segment(1).path(directory.path());
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let fixture = start_with(directory.path()).await;
    let incident = Incident { id: "a".to_owned(), ..Incident::default() };
    let location = Location { segment: Segment(1), offset: 0, length: 9 };
    fixture.incidents.put(Head::from(&incident), Body::Stored(location));
    let (begun, address) = (Instant::now(), fixture.address);
    let stuck: Vec<_> = (0..4).map(|_| tokio::spawn(fetch(address, "/incidents/a"))).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(fetch(address, "/incidents").await.contains("\"id\":\"a\""));
    assert!(fetch(address, "/healthz").await.ends_with("ok\n"));
    assert!(begun.elapsed() < CONNECTION_TIME / 2);
    // One request waits for the disk, the others for their turn. Opening the pipe for writing releases them.
    let _answers = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for request in stuck {
        assert!(request.await.unwrap().starts_with("HTTP/1.1 500"));
    }
}

#[tokio::test]
async fn requests_without_token_get_only_health() {
    use super::material::{Current, Material};
    let options = ServingOptions { token_file: Some("/tokens".into()), ..ServingOptions::default() };
    let material = Material { tls: None, tokens: vec!["0123456789abcdef".to_owned()] };
    let guard = Guard::new(options, Arc::new(Current::new(material)), None);
    let fixture = start_behind(std::path::Path::new("/nonexistent"), guard).await;
    for path in PATHS.into_iter().chain(["/none", "/incidents/last"]) {
        let answer = fetch(fixture.address, path).await;
        let is_open = path == "/healthz" || path == "/readyz";
        assert_eq!(!answer.starts_with("HTTP/1.1 401"), is_open, "{path}: {answer}");
        assert!(is_open || answer.contains("www-authenticate: Bearer\r\n"), "{path}: {answer}");
    }
    let request = "GET /summary HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
    assert!(exchange(fixture.address, request.as_bytes()).await.contains("\nmode        observe"));
}

#[tokio::test]
async fn with_a_certificate_everything_is_encrypted() {
    use super::material::{Current, Material};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = TlsFiles { certificate: directory.path().join("tls.crt"), key: directory.path().join("tls.key") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let options = ServingOptions { tls: Some(files), ..ServingOptions::default() };
    let material = Current::new(Material::read(&options).unwrap());
    let guard = Guard::new(options, Arc::new(material), None);
    let fixture = start_behind(std::path::Path::new("/nonexistent"), guard).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok\n"), "{answer}");
    // A plain HTTP request on the TLS port gets no response.
    let answer = TcpStream::connect(fixture.address).await.unwrap();
    let mut answer = (answer, Vec::new());
    answer.0.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let _reset = answer.0.read_to_end(&mut answer.1).await;
    assert!(!String::from_utf8_lossy(&answer.1).contains("HTTP/1.1"), "{:?}", answer.1);
}

const ROTATING: &str = "0123456789abcdef";

fn material(tokens: &[&str]) -> material::Material {
    material::Material { tls: None, tokens: tokens.iter().map(|it| (*it).to_owned()).collect() }
}

/// Sends a request with these header lines, each with its end.
async fn ask(address: SocketAddr, request: &str, headers: &str) -> String {
    let text = format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{headers}\r\n");
    exchange(address, text.as_bytes()).await
}

/// Opens a session with a token. Returns the header line with its cookie.
async fn open_session(address: SocketAddr, token: &str) -> String {
    let opened = ask(address, "POST /api/v1/open", &format!("Authorization: Bearer {token}\r\n")).await;
    let link = opened.lines().last().unwrap();
    let entered = ask(address, &format!("GET {link}"), "").await;
    let cookie = entered.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    format!("Cookie: {}\r\n", cookie.split(';').next().unwrap())
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_at_its_logout() {
    let options = ServingOptions { token_file: Some("/tokens".into()), ..ServingOptions::default() };
    let current = Arc::new(material::Current::new(material(&[ROTATING])));
    let guard = Guard::new(options, Arc::clone(&current), None);
    let address = start_behind(std::path::Path::new("/nonexistent"), guard).await.address;
    let session = open_session(address, ROTATING).await;
    let page = ask(address, "GET /", &format!("{session}Accept: text/html\r\n")).await;
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<button id=\"logout\" type"), "{page}");
    let left = ask(address, "POST /logout", &session).await;
    assert!(left.starts_with("HTTP/1.1 204") && left.contains("=; Path=/; Max-Age=0;"), "{left}");
    assert!(ask(address, "GET /summary", &session).await.starts_with("HTTP/1.1 401"));

    let session = open_session(address, ROTATING).await;
    assert!(ask(address, "GET /summary", &session).await.starts_with("HTTP/1.1 200"));
    current.set(material(&["another-token-of-today"]));
    assert!(ask(address, "GET /summary", &session).await.starts_with("HTTP/1.1 401"));
}

const MAY_OPEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJvcGVuIn0.c2ln";
const MAY_SCRAPE: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzY3JhcGUifQ.c2ln";

/// Starts a server whose tokens are reviewed: one may open a session only, the other may read the metrics.
async fn start_reviewed() -> SocketAddr {
    use crate::cluster::{Review, Reviewer};
    let (reviewer, mut questions) = Reviewer::new();
    tokio::spawn(async move {
        while let Some(question) = questions.recv().await {
            let review = match (&*question.token, &*question.path) {
                (MAY_OPEN, "/api/v1/open") | (MAY_SCRAPE, "/metrics") => Review::Allowed,
                (MAY_OPEN | MAY_SCRAPE, _) => Review::Forbidden("somebody".to_owned()),
                _ => Review::Unknown,
            };
            let _gone = question.answer.send(Ok(review));
        }
    });
    let options = ServingOptions { token_review: true, ..ServingOptions::default() };
    let guard = Guard::new(options, Arc::default(), Some(reviewer));
    start_behind(std::path::Path::new("/nonexistent"), guard).await.address
}

#[tokio::test]
async fn a_session_reads_no_more_than_its_token() {
    let address = start_reviewed().await;
    let session = open_session(address, MAY_OPEN).await;
    for path in ["/metrics", "/summary", "/api/v1/state"] {
        let answer = ask(address, &format!("GET {path}"), &session).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
    }
}

/// Scrapes from this address of the machine.
async fn scrape_from(client: [u8; 4], address: SocketAddr, token: &str) -> String {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _reset = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test]
async fn invented_tokens_do_not_lock_out_a_scraper() {
    let address = start_reviewed().await;
    let mut put_off = 0;
    for number in 0..60 {
        let invented = format!("eyJhbGciOiJSUzI1NiJ9.e30.{number:04}");
        put_off += usize::from(scrape_from([127, 0, 0, 2], address, &invented).await.starts_with("HTTP/1.1 503"));
    }
    assert!(put_off > 40, "{put_off}");
    let answer = scrape_from([127, 0, 0, 3], address, MAY_SCRAPE).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_page_of_another_name_reads_nothing() {
    let address = start().await.address;
    for (host, status) in [("rebound.example.com", 421), ("localhost:1", 200), ("[::1]", 200), ("192.0.2.1:9946", 200)]
    {
        let answer = exchange(address, format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {answer}");
        assert_eq!(answer.contains("metrics.hostNames"), status == 421, "{answer}");
    }
}

#[tokio::test]
async fn one_peer_does_not_take_all_streams() {
    let address = start().await.address;
    let watch = async |client: [u8; 4]| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((client, 0).into()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(b"GET /api/v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        (stream, String::from_utf8_lossy(&head).into_owned())
    };
    let mut held = Vec::new();
    for number in 0..6 {
        let (stream, head) = watch([127, 0, 0, 2]).await;
        assert_eq!(head, if number < 4 { "HTTP/1.1 200" } else { "HTTP/1.1 429" });
        held.push(stream);
    }
    assert_eq!(watch([127, 0, 0, 3]).await.1, "HTTP/1.1 200");
}
