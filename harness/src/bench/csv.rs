//! The records as rows, for spreadsheets.

use crate::bench::model::{BenchReport, Record};

/// The names of the columns, in their order.
const HEADER: &str = "collective,algo,ranks,bytes,count,dtype,op,root,in_place,memory,split,group,groups,world_size,\
    min_us,median_us,p90_us,p99_us,p99_9_us,max_us,mean_us,algbw_gbytes_per_s,busbw_gbytes_per_s,\
    wrong,samples,start_skew_median_us,unsupported,backend,emulated,taken,segment";

/// The names of the columns, then a row for each record. An empty field stands for what a record does
/// not have.
#[must_use]
pub fn sheet(report: &BenchReport) -> Vec<Vec<String>> {
    let mut rows = vec![HEADER.split(',').map(str::to_owned).collect()];
    rows.extend(report.records.iter().map(|record| row(report, record)));
    rows
}

fn row(report: &BenchReport, record: &Record) -> Vec<String> {
    let latency = &record.latency_us;
    let optional = |value: Option<String>| value.unwrap_or_default();
    vec![
        record.collective.clone(),
        record.algo.clone(),
        record.ranks.to_string(),
        record.bytes.to_string(),
        record.count.to_string(),
        optional(record.dtype.clone()),
        optional(record.op.clone()),
        optional(record.root.map(|root| root.to_string())),
        record.in_place.to_string(),
        record.memory.clone(),
        optional(record.split.clone()),
        record.group.clone(),
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
        record.unsupported.clone().unwrap_or_default(),
        report.backend.clone(),
        report.emulated.to_string(),
        optional(record.taken.clone()),
        optional(record.segment.map(|bytes| bytes.to_string())),
    ]
}
