//! Loads the embedded eBPF object and attaches its programs. Each failure costs one capability.

use std::{fs, os::fd::AsFd as _, path::Path};

use aya::{
    Ebpf, EbpfLoader,
    programs::{KProbe, ProgramError, TracePoint},
};
use aya_log::EbpfLogger;
use monitor_ebpf::{Access, FieldOffsets, KernelOffsets};

use super::{
    event_ring::Stream,
    host_support::{self, Capabilities},
    maps::Maps,
    probe_report::{CgroupSource, Degradation, ProbeReport, ProbeState, VERIFIER_REJECTS},
    probe_table::{PROBES, Probe, Target},
    program_statistics::Programs,
    shared_map::{Shared, take},
    tracepoint_format::TracepointFormat,
};
use crate::config::KernelOptions;
use crate::units::{error_chain, page_size, privileges};

static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("MONITOR_EBPF_OBJECT"));

/// The probe that reports the constraint and the cgroup whose limit was hit.
const LIMIT_OWNER: &str = "kprobe:oom_kill_process";

const NOT_MOUNTED: &str =
    "it is not mounted; the agent mounts it when it starts; by hand: mount -t tracefs tracefs /sys/kernel/tracing";

pub(super) struct Loaded {
    /// Owns the programs and their attachments.
    _ebpf: Ebpf,
    pub programs: Programs,
    pub maps: Maps,
    pub stream: Stream,
    /// Forwards aya-log's own ring to the `log` facade.
    pub flush_logs: Option<Box<dyn FnMut() + Send>>,
}

/// A probe with its field offsets, or why it cannot be attached.
type Planned = (&'static Probe, Result<Shared<FieldOffsets>, String>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// The programs run until they are dropped. tracefs is mounted if necessary.
    Attach,
    /// The verifier checks the programs and none is attached; a program that passes is reported as attached. Nothing is mounted.
    Verify,
}

pub(super) fn load(options: &KernelOptions, own_tgid: u32, depth: Depth, report: &mut ProbeReport) -> Option<Loaded> {
    let capabilities = Capabilities::of_this_process();
    let lacking = capabilities.map(Capabilities::lacking).unwrap_or_default();
    if !lacking.is_empty() {
        let mend = privileges::grant("CAP_BPF and CAP_PERFMON", privileges::is_root());
        let reason = format!("no {}: {mend}", lacking.join(", no "));
        if lacking.contains(&"CAP_BPF") {
            report_all_missing(report, &reason);
            report.degrade("eBPF", reason);
            return None;
        }
        report.degrade("eBPF", reason);
    }
    let tracefs = match depth {
        Depth::Attach => host_support::tracefs(),
        Depth::Verify => host_support::mounted_tracefs().and_then(|place| place.ok_or_else(|| NOT_MOUNTED.to_owned())),
    };
    let tracefs = match tracefs {
        Ok(tracefs) => tracefs,
        Err(reason) => {
            report.degrade("tracefs", reason);
            report_all_missing(report, "tracefs is not available");
            return None;
        }
    };
    let mut offsets = kernel_offsets(report);
    let plan = plan(&tracefs, &offsets);
    host_support::raise_memlock_limit();
    let loaded = load_and_attach(options, own_tgid, &plan, offsets, depth, report).and_then(|loaded| {
        if offsets.access == Access::Load as u32 && report.rejected_by_verifier() {
            // The verifier does not accept plain loads here, so the programs use a helper call for each step.
            drop(loaded);
            report.probes.clear();
            offsets.access = Access::ProbeRead as u32;
            load_and_attach(options, own_tgid, &plan, offsets, depth, report)
        } else {
            Ok(loaded)
        }
    });
    let (mut ebpf, programs, maps, stream) = match loaded {
        Ok(loaded) => loaded,
        Err(mut reason) => {
            if capabilities.is_some_and(|capabilities| !capabilities.may_raise_limits()) {
                reason.push_str("; before Linux 5.11 maps also need CAP_SYS_RESOURCE");
            }
            report_all_missing(report, &format!("eBPF cannot be loaded: {reason}"));
            report.degrade("eBPF", reason);
            report.cgroup_source = CgroupSource::None;
            return None;
        }
    };
    for probe in &report.probes {
        if let ProbeState::Missing(reason) = &probe.state
            && probe.name == LIMIT_OWNER
        {
            let reason = format!(
                "{LIMIT_OWNER}: {reason}; eBPF reports neither the constraint of OOM kills nor the cgroup whose limit was hit"
            );
            report.degradations.push(Degradation { capability: "OOM constraint", reason });
        }
    }
    let flush_logs = match EbpfLogger::init(&mut ebpf) {
        Ok(mut logger) => Some(Box::new(move || logger.flush()) as Box<dyn FnMut() + Send>),
        Err(error) => {
            report.degrade("eBPF log", format!("the programs' log cannot be read: {error}"));
            None
        }
    };
    Some(Loaded { _ebpf: ebpf, programs, maps, stream, flush_logs })
}

fn plan(tracefs: &Path, kernel: &KernelOffsets) -> Vec<Planned> {
    let offsets = |probe: &Probe| {
        if probe.target == Target::Function {
            let absent = [kernel.first_argument, kernel.oom_constraint].contains(&KernelOffsets::ABSENT);
            host_support::can_probe(probe.event)?;
            return if absent {
                Err("the kernel's BTF does not describe its arguments".to_owned())
            } else {
                Ok(Shared(FieldOffsets::NONE))
            };
        }
        let text = host_support::format_file(tracefs, probe.category, probe.event)?;
        let format = TracepointFormat::parse(&text).and_then(|format| probe.offsets(&format));
        format
            .map(Shared)
            .map_err(|error| format!("its format file is not as expected: {error}; please report this kernel"))
    };
    PROBES.iter().map(|probe| (probe, offsets(probe))).collect()
}

/// Chooses the source of cgroup ids.
fn kernel_offsets(report: &mut ProbeReport) -> KernelOffsets {
    match host_support::kernel_offsets() {
        Ok(offsets) => {
            report.cgroup_source = CgroupSource::MemoryController;
            offsets
        }
        Err(reason) => {
            report.cgroup_source = CgroupSource::UnifiedHierarchy;
            let on_v2 = fs::read_to_string("/proc/cgroups").is_ok_and(|text| host_support::memory_is_on_v2(&text));
            let consequence = if on_v2 {
                "ids come from the v2 hierarchy, where the memory controller is"
            } else {
                "the memory controller is on cgroup v1, so counts and OOM kills cannot be attributed to cgroups"
            };
            report.degrade("BTF", format!("{reason}; {consequence}"));
            KernelOffsets::UNKNOWN
        }
    }
}

type Attached = (Ebpf, Programs, Maps, Stream);

fn load_and_attach(
    options: &KernelOptions,
    own_tgid: u32,
    plan: &[Planned],
    offsets: KernelOffsets,
    depth: Depth,
    report: &mut ProbeReport,
) -> Result<Attached, String> {
    let (mut ebpf, mut maps, stream) = load_object(options, own_tgid, plan, offsets)?;
    let programs = attach(&mut ebpf, &mut maps, plan, depth, report);
    Ok((ebpf, programs, maps, stream))
}

fn load_object(
    options: &KernelOptions,
    own_tgid: u32,
    plan: &[Planned],
    offsets: KernelOffsets,
) -> Result<(Ebpf, Maps, Stream), String> {
    let nanoseconds = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let stall_threshold_ns = nanoseconds(options.stall_threshold);
    let wake_interval_ns = nanoseconds(options.doorbell_interval);
    let ring_bytes = ring_bytes(options.ring_buffer.0, page_size());
    let wide_ring_bytes = u64::from(ring_bytes);
    let offsets = Shared(offsets);

    let mut loader = host_support::without_vmlinux_btf(EbpfLoader::new);
    loader
        .map_max_entries("EVENTS", ring_bytes)
        .map_max_entries("OOM_EVENTS", ring_bytes)
        .override_global("RING_BYTES", &wide_ring_bytes, true)
        .override_global("STALL_THRESHOLD_NS", &stall_threshold_ns, true)
        .override_global("WAKE_INTERVAL_NS", &wake_interval_ns, true)
        .override_global("OWN_PID", &own_tgid, true)
        .override_global("KERNEL_OFFSETS", &offsets, true);
    for (probe, offsets) in plan {
        if let (Some(layout), Ok(offsets)) = (probe.layout, offsets) {
            loader.override_global(layout, offsets, true);
        }
    }
    let mut ebpf = loader.load(OBJECT).map_err(|error| error_chain(&error))?;
    let maps = Maps::take(&mut ebpf)?;
    let stream = Stream::new(take(&mut ebpf, "OOM_EVENTS")?, take(&mut ebpf, "EVENTS")?);
    Ok((ebpf, maps, stream))
}

/// The kernel requires a power of two of at least a page; aya takes a `u32`.
fn ring_bytes(wanted: u64, page: u64) -> u32 {
    const LARGEST: u64 = 1 << 30;
    u32::try_from(wanted.clamp(page, LARGEST).next_power_of_two()).unwrap_or(1 << 30)
}

fn attach(ebpf: &mut Ebpf, maps: &mut Maps, plan: &[Planned], depth: Depth, report: &mut ProbeReport) -> Programs {
    let mut programs = Programs::default();
    for (probe, offsets) in plan {
        if probe.instead_of.is_some_and(|other| report.has(&format!("{}:{other}", probe.category))) {
            continue;
        }
        let attached = match offsets {
            Ok(_) => attach_one(ebpf, probe, depth, &mut programs),
            Err(reason) => Err(reason.clone()),
        };
        let attached = attached.and_then(|()| {
            // Only from here on does a mark without a preceding SIGKILL mean that nothing was killed.
            if probe.event == "signal_generate" {
                maps.sigkills_are_seen().map_err(|error| error_chain(&error))
            } else {
                Ok(())
            }
        });
        let state = attached.map_or_else(ProbeState::Missing, |()| ProbeState::Attached);
        report.probe(probe.name(), probe.purpose, state);
    }
    programs
}

fn attach_one(ebpf: &mut Ebpf, probe: &Probe, depth: Depth, programs: &mut Programs) -> Result<(), String> {
    let program = ebpf.program_mut(probe.program()).ok_or("the object has no such program; build the agent again")?;
    let fd = match probe.target {
        Target::Tracepoint => {
            let program: &mut TracePoint = program.try_into().map_err(|error: ProgramError| error_chain(&error))?;
            program.load().map_err(|error| explain_load(&error))?;
            if depth == Depth::Attach {
                program.attach(probe.category, probe.event).map_err(|error| error_chain(&error))?;
            }
            program.fd()
        }
        Target::Function => {
            let program: &mut KProbe = program.try_into().map_err(|error: ProgramError| error_chain(&error))?;
            program.load().map_err(|error| explain_load(&error))?;
            if depth == Depth::Attach {
                program.attach(probe.event, 0).map_err(|error| error_chain(&error))?;
            }
            program.fd()
        }
    };
    if let Ok(program) = fd {
        programs.add(probe.name(), program.as_fd());
    }
    Ok(())
}

/// The verifier's log is long; the objection is near its end.
fn explain_load(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        return error_chain(error);
    };
    let log = verifier_log.to_string();
    let objection = log.lines().rev().filter(|line| !line.is_empty() && !line.starts_with("processed ")).take(3);
    let mut objection: Vec<_> = objection.collect();
    objection.reverse();
    if objection.is_empty() {
        format!("the kernel refuses to load the program: {io_error}; it needs CAP_BPF and CAP_PERFMON")
    } else {
        format!("{VERIFIER_REJECTS}: {}; please report this kernel", objection.join(" | "))
    }
}

fn report_all_missing(report: &mut ProbeReport, reason: &str) {
    for probe in PROBES.iter().filter(|probe| probe.instead_of.is_none()) {
        report.probe(probe.name(), probe.purpose, ProbeState::Missing(reason.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::ring_bytes;

    #[test]
    fn the_ring_is_a_power_of_two_of_at_least_a_page() {
        for (wanted, page, bytes) in [
            (0, 4096, 4096),
            (4097, 4096, 8192),
            (256 << 10, 65536, 256 << 10),
            (1, 65536, 65536),
            (u64::MAX, 4096, 1 << 30),
        ] {
            assert_eq!(ring_bytes(wanted, page), bytes, "{wanted} with pages of {page}");
        }
    }
}
