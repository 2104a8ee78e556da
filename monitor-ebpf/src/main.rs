//! The eBPF programs. They count in maps, and stream only the events that the agent must handle at once.
//!
//! They use tracepoints, which exist without kprobes, fentry or an LSM; one kprobe adds what no tracepoint reports of an OOM kill. No
//! offset is compiled in.
#![no_std]
#![no_main]
// Inline assembly for BPF is unstable in every compiler so far; aya-ebpf needs it too.
#![feature(asm_experimental_arch)]
#![expect(clippy::needless_pass_by_value, reason = "the program macro hands the context over by value")]

mod awaited_exits;
mod counters;
mod inodes;
mod kswapd;
mod layout;
mod oom;
mod oom_score_adj;
mod path;
mod reclaim;
mod stream;
mod task;

/// Required for GPL-only helpers such as `bpf_probe_read_kernel`.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here can panic: the verifier would refuse a program that reaches this.
    loop {}
}
