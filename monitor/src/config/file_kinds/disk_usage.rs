//! `diskUsage` of our own kind of file.

use super::pressure::percent;
use crate::config::disk_usage_options::{DiskUsageOptions, ProjectQuotas};
use crate::config::document_walk::{Fields, Walk};

/// Below, a million files take an hour.
const SMALLEST_SHARE: f64 = 0.001;
const FIX: &str = "write at least 0.1%: below, no walk comes to an end";

/// Reads the map. What is wrong with it is noted in `walk`.
pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> DiskUsageOptions {
    let mut options = DiskUsageOptions::default();
    let Some((path, node)) = fields.get("diskUsage") else {
        return options;
    };
    let inner = walk.fields(&path, node, &["cpuShare", "pressureCpuShare", "projectQuotas"]);
    for (name, target) in [("cpuShare", &mut options.cpu_share), ("pressureCpuShare", &mut options.pressure_cpu_share)]
    {
        let Some((field, node)) = inner.get(name) else { continue };
        match percent(walk, (field.clone(), node)) {
            Some(share) if share < SMALLEST_SHARE => walk.error(&field, node, "too small", FIX),
            Some(share) => *target = share,
            None => {}
        }
    }
    if let Some((field, node)) = inner.get("projectQuotas")
        && let Some(choice) = walk.choice(&field, node, &ProjectQuotas::ALL.map(|it| (it.as_str(), it)))
    {
        options.project_quotas = choice;
    }
    if options.cpu_share > options.pressure_cpu_share && !walk.has_error_at(node) {
        let fix = "raise diskUsage.pressureCpuShare, which counts while a filesystem runs full";
        walk.error(&path, node, "cpuShare is above pressureCpuShare", fix);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::parse_document;

    fn read_text(text: &str) -> Result<DiskUsageOptions, String> {
        let document = parse_document(text).unwrap();
        let mut walk = Walk::new("m.yaml");
        let fields = walk.fields("", &document, &["diskUsage"]);
        let options = read(&mut walk, &fields);
        let (errors, _) = walk.finish();
        if errors.is_empty() { Ok(options) } else { Err(errors.iter().map(|error| format!("{error}\n")).collect()) }
    }

    #[test]
    fn shares_are_percentages_of_a_cpu() {
        assert_eq!(read_text("diskUsage: {}").unwrap(), DiskUsageOptions::default());
        let options = read_text("diskUsage: {cpuShare: 0.5%, pressureCpuShare: 100%, projectQuotas: trusted}").unwrap();
        let project_quotas = ProjectQuotas::Trusted;
        assert_eq!(options, DiskUsageOptions { cpu_share: 0.005, pressure_cpu_share: 1.0, project_quotas });
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for (text, problem) in [
            ("diskUsage: {cpuShare: 2}", "must be a percentage"),
            ("diskUsage: {cpuShare: 0%}", "must be a percentage"),
            ("diskUsage: {cpuShare: 0.01%}", "too small"),
            ("diskUsage: {cpuShare: 30%}", "cpuShare is above pressureCpuShare"),
            ("diskUsage: {projectQuotas: on}", "write isolated or trusted or off"),
            ("diskUsage: {cpushare: 3%}", "did you mean cpuShare?"),
        ] {
            let error = read_text(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
