use super::*;

/// Parses whole reports, one record every 10 µs.
fn read(log: &mut OomLog, from_us: u64, lines: &[&str]) -> Vec<OomReport> {
    lines.iter().zip(0..).filter_map(|(line, index)| log.line(from_us + 10 * index, line)).collect()
}

fn one(lines: &[&str]) -> OomReport {
    let mut reports = read(&mut OomLog::default(), 0, lines);
    assert_eq!(reports.len(), 1, "{lines:?}: {reports:?}");
    reports.remove(0)
}

/// The text of 6.18 was captured. The others follow the kernels' sources and public reports.
#[test]
fn the_report_of_each_kernel_is_parsed() {
    let kib = |kib| Some(Bytes::from_kib(kib));
    let path = |path: &str| Some(path.to_owned());
    let expected =
        |pid, comm: &str| OomReport { victim_pid: Pid(pid), victim_comm: comm.to_owned(), ..OomReport::default() };
    let table: [(&str, &[&str], OomReport); 7] = [
        (
            "6.18, a limit above the victim's cgroup",
            &[
                "tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
                "CPU: 1 UID: 0 PID: 23832 Comm: tail Not tainted 6.18.44 #1 PREEMPT(none) ",
                "Call Trace:",
                " oom_kill_process.cold+0x8/0x8a",
                "[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name",
                "[  23832]     0 23832     5785     5474     5088      386         0    90112        0             0 tail",
                r"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/npm-d-oom,task_memcg=/npm-d-oom/child\x2d1,task=tail,pid=23832,uid=0",
                "Memory cgroup out of memory: Killed process 23832 (tail) total-vm:23140kB, anon-rss:20352kB, file-rss:1544kB, shmem-rss:0kB, UID:0 pgtables:88kB oom_score_adj:0",
            ],
            OomReport {
                victim_cgroup: path(r"npm-d-oom/child\x2d1"),
                uid: Some(0),
                total_vm: kib(23140),
                anon_rss: kib(20352),
                file_rss: kib(1544),
                shmem_rss: kib(0),
                pgtables: kib(88),
                oom_score_adj: Some(0),
                trigger_tid: Some(Pid(23832)),
                trigger_comm: path("tail"),
                order: Some(0),
                constraint: Some(OomConstraint::Memcg),
                limit_cgroup: path("npm-d-oom"),
                ..expected(23832, "tail")
            },
        ),
        (
            "6.8, the node itself",
            &[
                "mdsd invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=0",
                "CPU: 1 PID: 1977413 Comm: mdsd Not tainted 6.8.0-1028-azure #33~22.04.1-Ubuntu",
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=azuremonitoragent.service,mems_allowed=0,global_oom,task_memcg=/system.slice/azuremonitoragent.service,task=mdsd,pid=1975949,uid=104",
                "Out of memory: Killed process 1975949 (mdsd) total-vm:4831256kB, anon-rss:3047444kB, file-rss:2560kB, shmem-rss:0kB, UID:104 pgtables:6432kB oom_score_adj:-100",
            ],
            OomReport {
                victim_cgroup: path("system.slice/azuremonitoragent.service"),
                uid: Some(104),
                total_vm: kib(4_831_256),
                anon_rss: kib(3_047_444),
                file_rss: kib(2560),
                shmem_rss: kib(0),
                pgtables: kib(6432),
                oom_score_adj: Some(-100),
                trigger_tid: Some(Pid(1_977_413)),
                trigger_comm: path("mdsd"),
                order: Some(0),
                constraint: Some(OomConstraint::None),
                ..expected(1_975_949, "mdsd")
            },
        ),
        (
            "5.0 to 5.3: no user, no page tables",
            &[
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/kubepods/burstable/podu,task_memcg=/kubepods/burstable/podu/c,task=manager,pid=966,uid=0",
                "Memory cgroup out of memory: Killed process 966 (manager) total-vm:11964kB, anon-rss:4288kB, file-rss:3028kB, shmem-rss:0kB",
            ],
            OomReport {
                victim_cgroup: path("kubepods/burstable/podu/c"),
                total_vm: kib(11964),
                anon_rss: kib(4288),
                file_rss: kib(3028),
                shmem_rss: kib(0),
                constraint: Some(OomConstraint::Memcg),
                limit_cgroup: path("kubepods/burstable/podu"),
                ..expected(966, "manager")
            },
        ),
        (
            "4.19, at a limit",
            &[
                "alloc invoked oom-killer: gfp_mask=0x6040c0(GFP_KERNEL|__GFP_COMP), nodemask=(null), order=1, oom_score_adj=968",
                "alloc cpuset=/ mems_allowed=0",
                "CPU: 0 PID: 6581 Comm: alloc Tainted: G W 4.19.0",
                "Task in /kubepods/podu/c killed as a result of limit of /kubepods/podu",
                "memory: usage 204800kB, limit 204800kB, failcnt 1",
                "Memory cgroup out of memory: Kill process 6584 (syz-executor1) score 550000 or sacrifice child",
                "Killed process 6584 (syz-executor1) total-vm:37704kB, anon-rss:2140kB, file-rss:0kB, shmem-rss:0kB",
            ],
            OomReport {
                victim_cgroup: path("kubepods/podu/c"),
                total_vm: kib(37704),
                anon_rss: kib(2140),
                file_rss: kib(0),
                shmem_rss: kib(0),
                trigger_tid: Some(Pid(6581)),
                trigger_comm: path("alloc"),
                order: Some(1),
                constraint: Some(OomConstraint::Memcg),
                limit_cgroup: path("kubepods/podu"),
                ..expected(6584, "syz-executor1")
            },
        ),
        (
            "4.19, the node, and a child in the place of the one that was chosen",
            &[
                "Out of memory: Kill process 14294 (idle-priority) score 876 or sacrifice child",
                "Killed process 14458 (normal-priority) total-vm:4176kB, anon-rss:88kB, file-rss:0kB, shmem-rss:0kB",
            ],
            OomReport {
                total_vm: kib(4176),
                anon_rss: kib(88),
                file_rss: kib(0),
                shmem_rss: kib(0),
                ..expected(14458, "normal-priority")
            },
        ),
        (
            "RHEL 7's order of fields",
            &[
                "Killed process 42453 (memcg_test_1), UID 12, total-vm:7296kB, anon-rss:96kB, file-rss:164kB, shmem-rss:0kB",
            ],
            OomReport {
                uid: Some(12),
                total_vm: kib(7296),
                anon_rss: kib(96),
                file_rss: kib(164),
                shmem_rss: kib(0),
                ..expected(42453, "memcg_test_1")
            },
        ),
        (
            "in a storm: the last line alone",
            &[
                "Memory cgroup out of memory: Killed process 7 (a) total-vm:4kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:999",
            ],
            OomReport {
                uid: Some(0),
                total_vm: kib(4),
                anon_rss: kib(8),
                file_rss: kib(0),
                shmem_rss: kib(0),
                pgtables: kib(40),
                oom_score_adj: Some(999),
                constraint: Some(OomConstraint::Memcg),
                ..expected(7, "a")
            },
        ),
    ];
    for (kernel, lines, expected) in table {
        assert_eq!(one(lines), expected, "{kernel}");
    }
}

const SUMMARY: &str = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/pod,task_memcg=/pod/c,task=a,pid=7,uid=0";
const GROUP: &str = "Tasks in /pod/c are going to be killed due to memory.oom.group set";

fn killed(pid: i32) -> String {
    format!(
        "Memory cgroup out of memory: Killed process {pid} (a) total-vm:4kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB"
    )
}

#[test]
fn kills_of_a_group_share_the_first_report() {
    let mut log = OomLog::default();
    let (first, second, third) = (killed(7), killed(8), killed(9));
    let invoked = "x invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0";
    let reports = read(&mut log, 0, &[invoked, SUMMARY, &first, GROUP, &second, &third]);
    let facts: Vec<_> = reports
        .iter()
        .map(|report| {
            (report.victim_pid.0, report.of_group, report.limit_cgroup.as_deref(), report.victim_cgroup.as_deref())
        })
        .collect();
    assert_eq!(
        facts,
        [(7, false, Some("pod"), Some("pod/c")), (8, true, Some("pod"), None), (9, true, Some("pod"), None)]
    );
    // The next report is that of another invocation.
    let other = SUMMARY.replace("pid=7", "pid=70").replace("oom_memcg=/pod", "oom_memcg=/other");
    let reports = read(&mut log, 1_000_000, &[&other, &killed(70)]);
    assert_eq!((reports[0].of_group, reports[0].limit_cgroup.as_deref()), (false, Some("other")));
}

#[test]
fn a_kill_during_the_rate_limit_inherits_nothing() {
    let mut log = OomLog::default();
    let invoked = "x invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0";
    for at in 0..10 {
        read(&mut log, at * 100_000, &[invoked, SUMMARY, &killed(7), GROUP]);
    }
    let within = log.line(1_500_000, &killed(8)).unwrap();
    assert_eq!((within.of_group, within.limit_cgroup), (false, None));
    assert_eq!(within.constraint, Some(OomConstraint::Memcg), "its own line says so much");
    let after = log.line(60_000_000, &killed(9)).unwrap();
    assert_eq!(after.limit_cgroup, None, "nothing is left of the group by then");
}

#[test]
fn names_and_paths_may_contain_any_character() {
    let summary = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,b,task_memcg=/a,b/c,pid=1,d,task=x,pid=3,uid=,pid=7,uid=0";
    let last = "Memory cgroup out of memory: Killed process 7 (x) total-vm:1kB) total-vm:4kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:5 pgtables:40kB oom_score_adj:0";
    let report = one(&[summary, last]);
    assert_eq!((report.limit_cgroup.as_deref(), report.victim_cgroup.as_deref()), (Some("a,b"), Some("a,b/c,pid=1,d")));
    assert_eq!(
        (report.victim_comm.as_str(), report.uid, report.total_vm),
        ("x) total-vm:1kB", Some(5), Some(Bytes::from_kib(4)))
    );
    let named_like_a_kill = "Killed process  invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=3, oom_score_adj=0";
    assert_eq!(one(&[named_like_a_kill, last]).trigger_comm.as_deref(), Some("Killed process "));
}

#[test]
fn other_lines_are_no_kills() {
    let mut log = OomLog::default();
    for line in [
        "random: crng init done",
        "oom_reaper: reaped process 77 (x), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "Memory cgroup out of memory: OOM victim 77 (x) is already exiting. Skip killing the task",
        "Memory cgroup out of memory: Killed process many (x) total-vm:4kB",
        "Killed process 7",
        "systemd: Killed process 7 (x) total-vm:4kB, anon-rss:8kB",
        "oom-kill:constraint=CONSTRAINT_NEW,whatever",
        "",
    ] {
        assert_eq!(log.line(0, line), None, "{line}");
    }
    assert_eq!(log.line(0, &killed(3)).map(|report| report.victim_pid), Some(Pid(3)), "it goes on all the same");
}

#[test]
fn a_kill_after_lost_lines_inherits_nothing() {
    let mut log = OomLog::default();
    log.line(0, SUMMARY);
    log.forget();
    assert_eq!(log.line(1, &killed(7)).unwrap().limit_cgroup, None);
}

#[test]
fn an_interrupted_line_is_joined() {
    let mut log = OomLog::default();
    log.line(0, "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)");
    log.line(1, "virtio_blk virtio1: [vda] new size");
    log.continued(",cpuset=/,mems_allowed=0");
    log.continued(" of another line");
    log.continued(",oom_memcg=/pod,task_memcg=/pod/c,task=a,pid=7,uid=0");
    let report = log.line(2, &killed(7)).unwrap();
    assert_eq!(report.limit_cgroup, None, "what is not all there is not believed");
    let mut log = OomLog::default();
    log.line(0, "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)");
    log.line(1, "virtio_blk virtio1: [vda] new size");
    log.continued(",cpuset=/,mems_allowed=0");
    log.continued(",oom_memcg=");
    log.continued("/pod,task_memcg=/pod/c,task=a,pid=7,uid=0");
    let report = log.line(2, &killed(7)).unwrap();
    assert_eq!((report.limit_cgroup.as_deref(), report.victim_cgroup.as_deref()), (Some("pod"), Some("pod/c")));
    // A continuation without a beginning is ignored.
    log.continued(",oom_memcg=/pod,task_memcg=/pod/c,task=a,pid=8,uid=0");
    assert_eq!(log.line(3, &killed(8)).unwrap().limit_cgroup, None);
}
