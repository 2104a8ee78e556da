use node_pressure_monitor::{config::*, kernel::*};
fn rss() -> String {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .filter(|l| l.starts_with("VmRSS") || l.starts_with("VmHWM") || l.starts_with("Rss"))
        .map(|l| l.replace('\t', " "))
        .collect::<Vec<_>>()
        .join(" ")
}
fn main() {
    println!("before: {}", rss());
    let t = std::time::Instant::now();
    let k = Kernel::load(&KernelOptions::default(), std::process::id());
    println!("load {:?}: {}", t.elapsed(), rss());
    for p in &k.report().probes {
        println!("{:50} {:?}", p.name, p.state);
    }
    for d in &k.report().degradations {
        println!("degraded {d}");
    }
    println!("{:?}", k.report().cgroup_source);
}
