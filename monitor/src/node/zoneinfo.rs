//! `/proc/zoneinfo`: the pages that the kernel reserves.

/// Returns the pages that `MemAvailable` excludes because the kernel reserves them (`calculate_totalreserve_pages`): for each zone its high
/// watermark and its largest `protection`, the pages withheld from allocations that higher zones can serve, at most the managed pages.
pub fn reserved_pages(text: &str) -> u64 {
    let mut zones = Zones::default();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with("Node ") {
            zones.finish();
        } else if let Some(rest) = line.strip_prefix("protection:") {
            let numbers = rest.split(|character: char| !character.is_ascii_digit());
            zones.protection = numbers.filter_map(|number| number.parse().ok()).max().unwrap_or(0);
        } else if let Some((key, value)) = line.split_once(char::is_whitespace) {
            match key {
                "high" => zones.high = zones.high.or(value.trim().parse().ok()),
                "managed" => zones.managed = zones.managed.or(value.trim().parse().ok()),
                _ => {}
            }
        }
    }
    zones.finish();
    zones.sum
}

/// The zone being parsed, and the sum of the zones before it.
#[derive(Default)]
struct Zones {
    sum: u64,
    /// The first `high` line of the zone. The later ones belong to per-CPU lists of pages.
    high: Option<u64>,
    managed: Option<u64>,
    protection: u64,
}

impl Zones {
    fn finish(&mut self) {
        let reserved = self.high.unwrap_or(0).saturating_add(self.protection).min(self.managed.unwrap_or(0));
        *self = Self { sum: self.sum.saturating_add(reserved), ..Self::default() };
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
        assert_eq!(reserved_pages(TEXT), 3840 + (3538 + 21166));
        assert_eq!(reserved_pages(""), 0);
        assert_eq!(reserved_pages("Node 0, zone DMA\n high many\n managed\n protection: (a)\n"), 0);
    }

    #[test]
    fn this_machine_reserves_something() {
        assert!(reserved_pages(&std::fs::read_to_string("/proc/zoneinfo").unwrap()) > 0);
    }
}
