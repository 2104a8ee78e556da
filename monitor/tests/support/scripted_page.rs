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
use node_pressure_monitor::report::http::status_page;
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
            .route("/", get(|| async { status_page::page() }))
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

fn workload(path: &str, display: &str, qos: &str, memory: u64) -> WorkloadState {
    let (namespace, pod) = display.split_once('/').unwrap();
    let name = Name {
        workload: path.to_owned(),
        display: display.to_owned(),
        namespace: Some(namespace.to_owned()),
        pod: Some(pod.to_owned()),
        ..Name::default()
    };
    WorkloadState {
        name,
        qos_class: qos.to_owned(),
        memory_bytes: Some(memory),
        memory_bytes_per_second: Some(3e6),
        pids: Some(17),
        disk_bytes: Some(40 * MIB),
        ..WorkloadState::default()
    }
}

/// A node with this much available memory, which falls to it for a minute.
fn state(available: u64, seconds: Option<f64>) -> State {
    let place = |number, workload: &WorkloadState, exempt: Option<&str>| Place {
        place: Some(number),
        workload: workload.name.workload.clone(),
        display: workload.name.display.clone(),
        exempt: exempt.map(str::to_owned),
        keys: vec![
            Key { name: "qosClass".to_owned(), value: workload.qos_class.clone() },
            Key { name: "overRequest".to_owned(), value: "yes, by 812.0 MiB".to_owned() },
            Key { name: "priority".to_owned(), value: "0".to_owned() },
        ],
        ..Place::default()
    };
    let workloads = vec![
        workload("/kubepods/besteffort/pod1", "batch/report-7k4qd", "BestEffort", 812 * MIB),
        workload("/kubepods/burstable/pod2", "shop/web-5d4f8c7b9-x2x9p", "Burstable", 240 * MIB),
        workload("/kubepods/pod3", "kube-system/dns-2x7v", "Guaranteed", 60 * MIB),
    ];
    let samples = (0..60_u32).map(|second| {
        let ago = f64::from(60 - second) * 1000.0;
        (
            ago,
            available
                + u64::from(59 - second) * if seconds.is_some() { 4 * MIB } else { 40_000 * u64::from(second % 3) },
        )
    });
    let ranking = Ranking {
        signal: "memory.available".to_owned(),
        places: vec![
            place(1, &workloads[0], None),
            place(2, &workloads[1], Some("its end would buy less than 10 s")),
            Place { place: None, exempt: Some("critical pod".to_owned()), ..place(0, &workloads[2], None) },
        ],
        next: Some(workloads[0].name.workload.clone()),
        none_because: None,
    };
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
                capacity: Some(2048 * MIB),
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
        rankings: vec![ranking.clone(), Ranking { signal: "nodefs.inodesFree".to_owned(), ..ranking }],
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
