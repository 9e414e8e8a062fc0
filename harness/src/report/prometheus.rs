//! A report in the text format of Prometheus, for the textfile collector of a node exporter.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::fail::Failure;
use crate::out::escaped;
use crate::report::document::{Document, Metric, Mood};

/// The figures.
///
/// # Errors
/// A failure of class INTERNAL where the library refuses them, which nothing known causes.
pub fn render(document: &dyn Document) -> Result<String, Failure> {
    let (about, headline) = (document.about(), document.headline());
    let mut labels = vec![
        ("command", about.command.to_owned()),
        ("tool", about.tool.to_owned()),
        ("emulated", about.emulated.to_string()),
    ];
    if let Some(backend) = about.backend {
        labels.push(("backend", backend.to_owned()));
    }
    if let Some(origin) = about.origin {
        labels.push(("host", origin.host.clone()));
        labels.push(("started_at", origin.started_at.clone()));
    }
    let command = vec![("command", about.command.to_owned())];
    let of_command = |name, help, value| Metric {
        name,
        help,
        samples: vec![(command.clone(), value)],
    };
    let passed = f64::from(u8::from(headline.mood == Mood::Good));
    let mut metrics = vec![
        of_command(
            "muster_passed",
            "Whether everything that was asked for is right",
            passed,
        ),
        of_command(
            "muster_partial",
            "Whether something that was asked for is missing",
            f64::from(u8::from(about.partial)),
        ),
        of_command(
            "muster_exit_code",
            "The exit code; its classes are in docs/exit-codes.md",
            f64::from(about.exit.code()),
        ),
        of_command(
            "muster_elapsed_seconds",
            "Wall time of the run",
            about.elapsed_us as f64 / 1e6,
        ),
        Metric {
            name: "muster_run",
            help: "What ran; always 1",
            samples: vec![(labels, 1.0)],
        },
    ];
    metrics.extend(document.metrics());
    text(metrics)
}

/// These figures.
///
/// # Errors
/// As [`render`].
pub fn text(metrics: Vec<Metric>) -> Result<String, Failure> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(metrics)));
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|error| Failure::internal(format!("the figures cannot be written: {error}")))?;
    Ok(text)
}

#[derive(Debug)]
struct Metrics(Vec<Metric>);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in self.0.iter().filter(|metric| !metric.samples.is_empty()) {
            let mut family =
                encoder.encode_descriptor(metric.name, metric.help, None, MetricType::Gauge)?;
            for (labels, value) in &metric.samples {
                let labels: Vec<(String, String)> = labels
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), escaped(value)))
                    .collect();
                ConstGauge::new(*value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
