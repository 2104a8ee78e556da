//! The status page over scripted documents.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use node_pressure_monitor::config::Policy;
use node_pressure_monitor::eviction::place_words::place_words;
use node_pressure_monitor::eviction::rank::{Facts, KeyValue, Order};
use node_pressure_monitor::report::http::status_page;
use node_pressure_monitor::units::{Amount, Resource};
use node_pressure_monitor::workloads::{Preference, QosClass};
use node_pressure_state::{
    API_VERSION, Agent, Condition, Degradation, Evictions, History, IncidentLine, Key, Memory, Name, Place, Probe,
    Ranking, SignalState, Source, State, ThresholdState, UnderWay, WorkloadState,
};

const MIB: u64 = 1 << 20;

/// Serves the page and a scripted document. `None`: all places of the stream are taken, and the state is not served.
pub struct Script {
    pub address: SocketAddr,
    document: Arc<Mutex<Option<State>>>,
}

impl Script {
    pub fn start(state: State) -> Self {
        let document = Arc::new(Mutex::new(Some(state)));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (of_watch, of_state) = (Arc::clone(&document), Arc::clone(&document));
        let json = |document: &Mutex<Option<State>>| {
            document.lock().unwrap().as_ref().map(|state| serde_json::to_string(state).unwrap())
        };
        let watch = move || async move {
            let events = futures_util::stream::unfold((of_watch, false), move |(document, is_later)| async move {
                if is_later {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                let json = json(&document)?;
                Some((Ok::<_, Infallible>(Bytes::from(format!("event: state\ndata: {json}\n\n"))), (document, true)))
            });
            ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
        };
        let state = move || async move {
            match json(&of_state) {
                Some(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
                None => (StatusCode::SERVICE_UNAVAILABLE, "the loop is busy; try again\n").into_response(),
            }
        };
        let older = || async {
            let list = r#"[{"id":"old","kind":"OomKill","time":"2026-01-01T00:00:00Z","summary":"an older one"}]"#;
            ([(header::CONTENT_TYPE, "application/json")], list)
        };
        let router = Router::new()
            .route("/", get(|| async { status_page::page(false) }))
            .route("/api/v1/watch", get(watch))
            .route("/api/v1/state", get(state))
            .route("/incidents", get(older))
            .route("/incidents/{id}", get(|| async { "THE POST-MORTEM\n<b>of</b> batch/report\n" }));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        Self { address, document }
    }

    pub fn set(&self, state: Option<State>) {
        *self.document.lock().unwrap() = state;
    }

    pub fn page(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn threshold(text: &str, value: u64, available: u64, seconds: Option<f64>) -> ThresholdState {
    ThresholdState {
        threshold: text.to_owned(),
        kind: "hard".to_owned(),
        value: Some(value),
        distance: Some(available.cast_signed() - value.cast_signed()),
        met: available < value,
        crossed_in_seconds: if available < value { Some(0.0) } else { seconds },
        ..ThresholdState::default()
    }
}

fn workload(path: &str, display: &str, qos: QosClass, memory: u64, request: u64) -> WorkloadState {
    let (namespace, pod) = display.split_once('/').unwrap();
    let name = Name {
        workload: path.to_owned(),
        display: display.to_owned(),
        namespace: Some(namespace.to_owned()),
        pod: Some(pod.to_owned()),
        owner: Some(format!("ReplicaSet/{pod}")),
        ..Name::default()
    };
    WorkloadState {
        name,
        qos_class: qos.as_str().to_owned(),
        priority: Some(0),
        memory_bytes: Some(memory),
        memory_request_bytes: Some(request),
        pids: Some(17),
        disk_bytes: Some(40 * MIB),
        disk_inodes: Some(1204),
        ..WorkloadState::default()
    }
}

/// Returns the candidate's place as the agent makes it: its keys and its phrase are of its own figures.
fn place(number: usize, workload: &WorkloadState, resource: Resource, passed_over: Option<&str>) -> Place {
    let (usage, request) = match resource {
        Resource::Memory => (workload.memory_bytes, workload.memory_request_bytes),
        _ => (workload.disk_inodes, None),
    };
    let amount = |value: u64| Amount::from_units(value.cast_signed());
    let facts = Facts {
        preference: Preference::None,
        qos: *QosClass::ALL.iter().find(|class| class.as_str() == workload.qos_class).unwrap(),
        priority: 0,
        usage: usage.map(amount),
        request: request.map(amount),
        subtracted: request.map(amount).unwrap_or_default(),
    };
    let policy = Policy::default();
    let order = Order::of(&policy, resource);
    let key = |key: &_| Key { name: format!("{key}"), value: KeyValue::of(*key, &facts).words(resource) };
    Place {
        place: Some(number),
        workload: workload.name.workload.clone(),
        display: workload.name.display.clone(),
        exempt: passed_over.map(str::to_owned),
        why: Some(passed_over.map_or_else(|| place_words(&facts, order), |why| format!("passed over: {why}"))),
        usage,
        request,
        keys: order.keys().iter().map(key).collect(),
        ..Place::default()
    }
}

fn ranking(signal: &str, resource: Resource, [first, second, critical]: [&WorkloadState; 3]) -> Ranking {
    let reason = "critical pod";
    let critical = Place {
        place: None,
        exempt: Some(reason.to_owned()),
        why: Some(format!("not a candidate: {reason}")),
        keys: Vec::new(),
        ..place(0, critical, resource, None)
    };
    Ranking {
        signal: signal.to_owned(),
        places: vec![
            place(1, first, resource, None),
            place(2, second, resource, Some("its end would buy less than 10 s")),
            critical,
        ],
        next: Some(first.name.workload.clone()),
        none_because: None,
    }
}

/// The memory of the node, and the part of it that no workload uses.
const CAPACITY: u64 = 2048 * MIB;
const SYSTEM: u64 = 300 * MIB;

/// A node with this much available memory, which falls to it for a minute.
fn state(available: u64, seconds: Option<f64>) -> State {
    let (web, dns) = (240 * MIB, 60 * MIB);
    let report = CAPACITY - available - SYSTEM - web - dns;
    let mut workloads = vec![
        workload("/kubepods/besteffort/pod1", "batch/report-7k4qd", QosClass::BestEffort, report, 0),
        workload("/kubepods/burstable/pod2", "shop/web-5d4f8c7b9-x2x9p", QosClass::Burstable, web, 128 * MIB),
        workload("/kubepods/pod3", "kube-system/dns-2x7v", QosClass::Guaranteed, dns, 64 * MIB),
    ];
    workloads[0].memory_bytes_per_second = seconds.map(|_| 4e6);
    let of_rankings = [&workloads[0], &workloads[1], &workloads[2]];
    let rankings = vec![
        ranking("memory.available", Resource::Memory, of_rankings),
        ranking("nodefs.inodesFree", Resource::Inodes, of_rankings),
    ];
    workloads.sort_by_key(|workload| std::cmp::Reverse(workload.memory_bytes));
    let samples = (0..60_u32).map(|second| {
        let ago = f64::from(60 - second) * 1000.0;
        (
            ago,
            available
                + u64::from(59 - second) * if seconds.is_some() { 4 * MIB } else { 40_000 * u64::from(second % 3) },
        )
    });
    let mut state = State {
        api_version: API_VERSION.to_owned(),
        agent: Agent {
            version: "0.1.0".to_owned(),
            node: "worker-1".to_owned(),
            kernel: "6.12.0".to_owned(),
            cgroup: "v2".to_owned(),
            mode: "enforce".to_owned(),
            uptime_seconds: Some(5_000.0),
            ..Agent::default()
        },
        signals: vec![
            SignalState {
                signal: "memory.available".to_owned(),
                unit: "bytes".to_owned(),
                available: Some(available),
                capacity: Some(CAPACITY),
                per_second: seconds.map(|_| -4e6),
                exhausted_in_seconds: None,
                thresholds: vec![threshold("memory.available<100Mi", 100 * MIB, available, seconds)],
                history: History { samples: samples.collect() },
            },
            SignalState {
                signal: "nodefs.inodesFree".to_owned(),
                unit: "inodes".to_owned(),
                available: Some(1_204_332),
                capacity: Some(1_310_720),
                thresholds: vec![threshold("nodefs.inodesFree<5%", 65_536, 1_204_332, None)],
                ..SignalState::default()
            },
        ],
        memory: Some(Memory::default()),
        conditions: vec![Condition { condition: "MemoryPressure".to_owned(), holds: Some(false), since: None }],
        rankings,
        workloads,
        evictions: Evictions { budget_left: Some(10), budget_per_minute: Some(10), ..Evictions::default() },
        incidents: vec![IncidentLine {
            id: "20260102-030405-eviction-6001".to_owned(),
            kind: "Eviction".to_owned(),
            time: "2026-01-02T03:04:05Z".parse().unwrap(),
            summary: "batch/report-2m9xz was evicted for memory.available".to_owned(),
            outcome: Some("gone".to_owned()),
            ..IncidentLine::default()
        }],
        sources: vec![Source { figure: "memory.available".to_owned(), source: "ebpf".to_owned() }],
        probes: vec![Probe { name: "oom:mark_victim".to_owned(), attached: true, reason: None }],
        ..State::default()
    };
    state.verdict = state.judge();
    state
}

pub fn quiet() -> State {
    state(1_400 * MIB, None)
}

pub fn near() -> State {
    let mut near = state(264 * MIB, Some(41.0));
    near.degradations.push(Degradation {
        capability: "container runtime".to_owned(),
        sentence: "the socket does not answer".to_owned(),
        mend: Some("start the runtime, or set runtime in the configuration to its socket".to_owned()),
    });
    near
}

pub fn evicting() -> State {
    let mut evicting = state(92 * MIB, Some(0.0));
    evicting.evictions.under_way.push(UnderWay {
        workload: "/kubepods/besteffort/pod1".to_owned(),
        display: "batch/report-7k4qd".to_owned(),
        signal: "memory.available".to_owned(),
        step: "it was killed, and processes are left".to_owned(),
        seconds: 0.1,
    });
    evicting.verdict = evicting.judge();
    evicting
}

/// A node with so many workloads, whose names are as long as names get.
pub fn crowded(count: usize) -> State {
    let mut crowded = near();
    let slice = "/system.slice/".to_owned() + &"system-serial\\x2dgetty-of-the-console.slice/".repeat(3);
    for number in 0..count {
        let pod = format!("{number:03}-{}", "report-of-the-year-".repeat(4));
        let (path, display) = match number % 3 {
            0 => (format!("{slice}{number}.service"), format!("{slice}{number}.service")),
            1 => (format!("/kubepods/burstable/pod1{number:03}"), format!("team-of-reports/{}", &pod[..63])),
            _ => (format!("/kubepods/burstable/pod1{number:03}"), format!("batch/{number:03}{}", "x".repeat(60))),
        };
        let workload = workload(&path, &display, QosClass::Burstable, MIB, MIB / 2);
        crowded.rankings[0].places.push(place(number + 3, &workload, Resource::Memory, None));
        crowded.workloads.push(workload);
    }
    crowded.incidents[0].summary =
        format!("pod {} was evicted for memory.available<100Mi", crowded.workloads[4].name.display);
    crowded
}
