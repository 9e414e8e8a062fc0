//! The records as comma-separated values, for spreadsheets.

use std::fmt::Write as _;

use crate::bench::model::{BenchReport, Record};

/// The names of the columns, in their order.
const HEADER: &str = "collective,algo,ranks,bytes,count,dtype,op,root,in_place,memory,split,group,groups,world_size,\
    min_us,median_us,p90_us,p99_us,p99_9_us,max_us,mean_us,algbw_gbytes_per_s,busbw_gbytes_per_s,\
    wrong,samples,start_skew_median_us,unsupported";

/// A header and a line for each record. An empty field stands for what a record does not have.
#[must_use]
pub fn render(report: &BenchReport) -> String {
    let mut text = format!("{HEADER}\n");
    for record in &report.records {
        line(record, &mut text);
    }
    text
}

fn line(record: &Record, text: &mut String) {
    let latency = &record.latency_us;
    let optional = |value: Option<String>| value.unwrap_or_default();
    let fields = [
        quoted(&record.collective),
        quoted(&record.algo),
        record.ranks.to_string(),
        record.bytes.to_string(),
        record.count.to_string(),
        optional(record.dtype.clone()),
        optional(record.op.clone()),
        optional(record.root.map(|root| root.to_string())),
        record.in_place.to_string(),
        record.memory.clone(),
        optional(record.split.clone()),
        quoted(&record.group),
        record.groups.to_string(),
        record.world_size.to_string(),
        latency.min.to_string(),
        latency.median.to_string(),
        latency.p90.to_string(),
        latency.p99.to_string(),
        latency.p99_9.to_string(),
        latency.max.to_string(),
        latency.mean.to_string(),
        optional(record.algbw_gbytes_per_s.map(|rate| rate.to_string())),
        optional(record.busbw_gbytes_per_s.map(|rate| rate.to_string())),
        optional(record.wrong.map(|wrong| wrong.to_string())),
        record.samples.to_string(),
        optional(record.start_skew_us.map(|skew| skew.median.to_string())),
        quoted(record.unsupported.as_deref().unwrap_or_default()),
    ];
    let _ = writeln!(text, "{}", fields.join(","));
}

/// A field that may hold commas or quotes, as RFC 4180 has it.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
