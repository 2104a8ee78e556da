//! Renders metrics in OpenMetrics' text format 1.0, which has exemplars.

use std::fmt::{self, Display, Write as _};

use jiff::Timestamp;
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An incident that was counted in a bucket of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Its id, as `/incidents/ID` has it.
    pub incident: String,
    pub value: f64,
    pub time: Timestamp,
}

/// Whether a client's header `Accept` names OpenMetrics, with a weight above zero.
pub fn is_accepted(accept: &str) -> bool {
    accept.split(',').any(|choice| {
        let mut parts = choice.split(';').map(str::trim);
        let is_it = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
        is_it && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// Renders the families. `exemplar` returns the exemplar of a histogram's bucket, given by the family's name, the metric, and the place.
pub fn render(families: &[MetricFamily], exemplar: impl Fn(&str, &Metric, usize) -> Option<Exemplar>) -> String {
    let mut text = String::with_capacity(16 << 10);
    for family in families {
        // Writing to a `String` cannot fail.
        let _ = write_family(&mut text, family, &exemplar);
    }
    text.push_str("# EOF\n");
    text
}

fn write_family(
    text: &mut String,
    family: &MetricFamily,
    exemplar: &impl Fn(&str, &Metric, usize) -> Option<Exemplar>,
) -> fmt::Result {
    let name = family.name();
    let (base, kind) = match family.get_field_type() {
        MetricType::COUNTER => (name.strip_suffix("_total").unwrap_or(name), "counter"),
        MetricType::HISTOGRAM => (name, "histogram"),
        MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => (name, "gauge"),
    };
    writeln!(text, "# HELP {base} {}\n# TYPE {base} {kind}", Escaped(family.help()))?;
    for metric in family.get_metric() {
        let labels = metric.get_label();
        match family.get_field_type() {
            MetricType::COUNTER => {
                writeln!(text, "{base}_total{} {}", Labels(labels, None), Number(metric.get_counter().get_value()))?;
            }
            MetricType::HISTOGRAM => write_histogram(text, name, metric, exemplar)?,
            _ => writeln!(text, "{name}{} {}", Labels(labels, None), Number(metric.get_gauge().get_value()))?,
        }
    }
    Ok(())
}

fn write_histogram(
    text: &mut String,
    name: &str,
    metric: &Metric,
    exemplar: &impl Fn(&str, &Metric, usize) -> Option<Exemplar>,
) -> fmt::Result {
    let (labels, histogram) = (metric.get_label(), metric.get_histogram());
    let count = histogram.get_sample_count();
    let buckets = histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    let finite = buckets.filter(|(bound, _)| bound.is_finite());
    for (place, (bound, count)) in finite.chain([(f64::INFINITY, count)]).enumerate() {
        write!(text, "{name}_bucket{} {count}", Labels(labels, Some(bound)))?;
        if let Some(Exemplar { incident, value, time }) = exemplar(name, metric, place) {
            let seconds = Number(time.as_duration().as_secs_f64());
            write!(text, " # {{incident=\"{}\"}} {} {seconds}", Escaped(&incident), Number(value))?;
        }
        text.push('\n');
    }
    let labels = Labels(labels, None);
    writeln!(text, "{name}_count{labels} {count}\n{name}_sum{labels} {}", Number(histogram.get_sample_sum()))
}

/// Labels in braces, with the bound of a bucket; nothing if there is no label.
struct Labels<'l>(&'l [LabelPair], Option<f64>);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = '{';
        for label in self.0 {
            write!(f, "{before}{}=\"{}\"", label.name(), Escaped(label.value()))?;
            before = ',';
        }
        if let Some(bound) = self.1 {
            let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
            write!(f, "{before}le=\"{bound}\"")?;
            before = ',';
        }
        if before == ',' { f.write_char('}') } else { Ok(()) }
    }
}

/// A text with quotes, backslashes and line breaks escaped.
struct Escaped<'t>(&'t str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => f.write_char(other),
        })
    }
}

struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            other => other.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{GaugeVec, HistogramVec, IntCounter};

    use super::*;
    use crate::report::register::{Registry, metrics};

    metrics! {
        struct Some3 {
            /// A "counter" with a \ in its text.
            counter: IntCounter = "things_total",
            /// A gauge.
            gauge: GaugeVec = "level"{scope},
            /// A histogram.
            histogram: HistogramVec = "took_seconds"{signal},
        }
    }

    #[test]
    fn each_type_is_rendered_with_exemplars_and_an_end() {
        let registry = Registry::new();
        let metrics = Some3::new(&registry).unwrap();
        metrics.counter.inc_by(3);
        metrics.gauge.with_label_values(&["a\n\"\\"]).set(f64::INFINITY);
        metrics.histogram.with_label_values(&["s"]).observe(0.03);
        let exemplar = |family: &str, metric: &Metric, place| {
            let is_it = family.ends_with("took_seconds") && metric.get_label()[0].value() == "s" && place == 3;
            let time = Timestamp::new(1_700_000_000, 250_000_000).unwrap();
            is_it.then(|| Exemplar { incident: "x-1".to_owned(), value: 0.03, time })
        };
        let text = render(&registry.gather(), exemplar).replace("node_pressure_monitor_", "");
        let expected = [
            "# HELP level A gauge.",
            "# TYPE level gauge",
            r#"level{scope="a\n\"\\"} +Inf"#,
            r#"# HELP things A \"counter\" with a \\ in its text."#,
            "# TYPE things counter",
            "things_total 3",
            "# HELP took_seconds A histogram.",
            "# TYPE took_seconds histogram",
            r#"took_seconds_bucket{signal="s",le="0.005"} 0"#,
            r#"took_seconds_bucket{signal="s",le="0.01"} 0"#,
            r#"took_seconds_bucket{signal="s",le="0.02"} 0"#,
            r#"took_seconds_bucket{signal="s",le="0.04"} 1 # {incident="x-1"} 0.03 1700000000.25"#,
        ];
        assert_eq!(text.lines().take(expected.len()).collect::<Vec<_>>(), expected);
        let ends = "took_seconds_bucket{signal=\"s\",le=\"+Inf\"} 1\ntook_seconds_count{signal=\"s\"} 1\ntook_seconds_sum{signal=\"s\"} 0.03\n# EOF\n";
        assert!(text.ends_with(ends) && text.contains("le=\"1.0\""), "{text}");
    }

    #[test]
    fn the_format_is_chosen_by_the_header() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, expected) in [
            (prometheus, true),
            ("text/plain, Application/OpenMetrics-Text; version=0.0.1", true),
            ("application/openmetrics-text;q=0, text/plain", false),
            ("text/plain;version=0.0.4", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(is_accepted(accept), expected, "{accept}");
        }
    }
}
