//! `/proc/zoneinfo`: the pages that the kernel reserves, and how inexact its counters may be.

/// The figures of all zones, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneInfo {
    /// The pages that `MemAvailable` excludes because the kernel reserves them (`calculate_totalreserve_pages`): for each zone its high watermark and
    /// its largest `protection`, the pages withheld from allocations that higher zones can serve, at most the managed pages.
    pub reserved: u64,
    /// The lowest watermarks (`min`). Below them only the kernel's urgent allocations succeed.
    pub min: u64,
    /// How far `MemAvailable` may be off. Each CPU keeps up to `vm stats threshold` pages of a counter to itself (mm/vmstat.c,
    /// `calculate_normal_threshold`, at most 125), and `MemAvailable` sums without them (mm/show_mem.c, `si_mem_available`; both Linux
    /// 6.12). It sums the free pages of each zone, and of each node two lists of file pages, whose threshold is the largest of the node.
    pub drift: u64,
    /// The free pages on the lists of the CPUs (`count`).
    pub on_cpu_lists: u64,
}

/// The lists of file pages that `MemAvailable` counts: active and inactive.
const FILE_LISTS: u64 = 2;

impl ZoneInfo {
    pub fn parse(text: &str) -> Self {
        let mut zones = Zones::default();
        for line in text.lines() {
            let line = line.trim_start();
            if let Some(rest) = line.strip_prefix("Node ") {
                zones.finish_zone();
                let node = rest.split(',').next().and_then(|node| node.parse().ok());
                if node != zones.node {
                    zones.finish_node();
                    zones.node = node;
                }
            } else if let Some(rest) = line.strip_prefix("protection:") {
                let numbers = rest.split(|character: char| !character.is_ascii_digit());
                zones.protection = numbers.filter_map(|number| number.parse().ok()).max().unwrap_or(0);
            } else if let Some(rest) = line.strip_prefix("vm stats threshold:") {
                // One line for each CPU.
                zones.drift = zones.drift.saturating_add(rest.trim().parse().unwrap_or(0));
            } else if let Some((key, value)) = line.split_once(char::is_whitespace) {
                let number = || value.trim().parse().ok();
                match key {
                    "min" => zones.min = zones.min.or(number()),
                    "high" => zones.high = zones.high.or(number()),
                    "count:" => {
                        let pages = number().unwrap_or(0);
                        zones.sum.on_cpu_lists = zones.sum.on_cpu_lists.saturating_add(pages);
                    }
                    "managed" => zones.managed = zones.managed.or(number()),
                    _ => {}
                }
            }
        }
        zones.finish_zone();
        zones.finish_node();
        zones.sum
    }
}

/// The zone and the node being parsed, and the sum of those before.
#[derive(Default)]
struct Zones {
    sum: ZoneInfo,
    node: Option<u64>,
    /// The largest drift of a zone of the node.
    drift_of_node: u64,
    min: Option<u64>,
    /// The first `high` line of the zone. The later ones belong to per-CPU lists of pages.
    high: Option<u64>,
    managed: Option<u64>,
    protection: u64,
    drift: u64,
}

impl Zones {
    fn finish_zone(&mut self) {
        let managed = self.managed.take().unwrap_or(0);
        let (min, high) = (self.min.take().unwrap_or(0), self.high.take().unwrap_or(0));
        let (protection, drift) = (std::mem::take(&mut self.protection), std::mem::take(&mut self.drift));
        let sum = &mut self.sum;
        sum.reserved = sum.reserved.saturating_add(high.saturating_add(protection).min(managed));
        sum.min = sum.min.saturating_add(min.min(managed));
        sum.drift = sum.drift.saturating_add(drift);
        self.drift_of_node = self.drift_of_node.max(drift);
    }

    fn finish_node(&mut self) {
        let of_lists = std::mem::take(&mut self.drift_of_node).saturating_mul(FILE_LISTS);
        self.sum.drift = self.sum.drift.saturating_add(of_lists);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.18 with 24 GiB, shortened by statistics and by CPUs.
    const TEXT: &str = "Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 97830
      nr_active_file 522776
  pages free     3840
        boost    0
        min      14
        low      17
        high     20
        promo    23
        spanned  4095
        present  3998
        managed  3840
        cma      0
        protection: (0, 2916, 24082, 24082, 24082)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    0
              high:     0
              batch:    1
              high_min: 0
  vm stats threshold: 6
    cpu: 1
              count:    0
              high:     0
  vm stats threshold: 6
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone    DMA32
  pages free     741213
        boost    0
        min      2046
        low      2792
        high     3538
        promo    4284
        spanned  1044480
        present  782288
        managed  746504
        cma      0
        protection: (0, 0, 21166, 21166, 21166)
  pagesets
    cpu: 0
              high:     0
  vm stats threshold: 24
    cpu: 1
              high:     0
  vm stats threshold: 24
Node 0, zone  Movable
  pages free     0
        boost    0
        min      32
        low      32
        high     32
        promo    32
        spanned  0
        present  0
        managed  0
        cma      0
        protection: (0, 0, 0, 0, 0)
";

    #[test]
    fn reserved_pages_are_watermark_and_protection() {
        // The first zone protects more than it manages; the last zone manages nothing.
        let found = ZoneInfo::parse(TEXT);
        assert_eq!((found.reserved, found.min), (3840 + (3538 + 21166), 14 + 2046));
        assert_eq!(ZoneInfo::parse(""), ZoneInfo::default());
        let damaged = "Node 0, zone DMA\n high many\n managed\n protection: (a)\n vm stats threshold: x\n";
        assert_eq!(ZoneInfo::parse(damaged), ZoneInfo::default());
    }

    #[test]
    fn counters_are_off_by_the_threshold_of_each_cpu() {
        // Free pages of both zones, and two lists of the node at its largest threshold.
        assert_eq!(ZoneInfo::parse(TEXT).drift, 2 * 6 + 2 * 24 + 2 * (2 * 24));
        let second = TEXT.replace("Node 0", "Node 1");
        assert_eq!(ZoneInfo::parse(&format!("{TEXT}{second}")).drift, 2 * ZoneInfo::parse(TEXT).drift);
    }

    #[test]
    fn this_machine_reserves_something() {
        let found = ZoneInfo::parse(&std::fs::read_to_string("/proc/zoneinfo").unwrap());
        assert!(found.reserved > found.min && found.min > 0, "{found:?}");
    }
}
