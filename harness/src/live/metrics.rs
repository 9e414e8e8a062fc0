//! Jobs in the text format of Prometheus, for the textfile collector of a node exporter or any server of files.

use super::{Job, Jobs};
use crate::fail::Failure;
use crate::report::document::Metric;
use crate::report::prometheus;

/// The figures.
///
/// # Errors
/// A failure of class INTERNAL where the library refuses them, which nothing known causes.
pub fn render(jobs: &Jobs) -> Result<String, Failure> {
    let mut metrics = FAMILIES.map(|(name, help)| Metric {
        name,
        help,
        samples: Vec::new(),
    });
    let mut add = |name: &str, labels, value| {
        let family = metrics.iter_mut().find(|metric| metric.name == name);
        if let Some(family) = family {
            family.samples.push((labels, value));
        }
    };
    for job in &jobs.jobs {
        of_job(job, &mut add);
    }
    prometheus::text(metrics.into())
}

/// Names, and what they mean. docs/top.md has them too.
pub const FAMILIES: [(&str, &str); 11] = [
    ("muster_job_ranks", "Ranks of the job's world"),
    ("muster_job_ranks_seen", "Ranks whose boards were read"),
    (
        "muster_rank_state",
        "Always 1; the label state says what the rank does",
    ),
    (
        "muster_rank_call_age_seconds",
        "Since when the rank has waited or been in the call",
    ),
    (
        "muster_rank_behind_calls",
        "Collectives that the rank is behind the farthest one",
    ),
    (
        "muster_rank_late_ratio",
        "Part of a communicator's waiting that is for this rank, where it is late in call after call",
    ),
    (
        "muster_comm_collective_number",
        "The number of the last collective that the farthest member has entered",
    ),
    (
        "muster_comm_collectives_per_second",
        "Collectives in a second",
    ),
    (
        "muster_comm_algo_bandwidth_gbs",
        "Algorithm bandwidth: sizes of the collectives as bench has them, in 10^9 bytes a second",
    ),
    (
        "muster_comm_waiting_ranks",
        "Members that wait in a call for others",
    ),
    (
        "muster_comm_oldest_call_seconds",
        "Since when the oldest call has been under way",
    ),
];

type Labels = Vec<(&'static str, String)>;

fn of_job(job: &Job, add: &mut impl FnMut(&str, Labels, f64)) {
    let of_job = || {
        vec![
            ("job_id", job.job.clone()),
            ("kind", job.kind.word().to_owned()),
        ]
    };
    add("muster_job_ranks", of_job(), f64::from(job.world_size));
    add("muster_job_ranks_seen", of_job(), job.ranks.len() as f64);
    for rank in &job.ranks {
        let of_rank = || {
            let mut labels = of_job();
            labels.push(("rank", rank.rank.to_string()));
            labels.push(("hostname", rank.host.clone()));
            labels
        };
        let mut state = of_rank();
        state.push(("state", rank.state.word().to_owned()));
        add("muster_rank_state", state, 1.0);
        add("muster_rank_behind_calls", of_rank(), rank.behind as f64);
        let is_in_call = matches!(rank.state, super::State::Waiting | super::State::InCall);
        if let Some(ms) = rank.since_ms.filter(|_| is_in_call) {
            let mut labels = of_rank();
            labels.push(("comm_name", rank.group.clone()));
            let collective = rank.call.split(' ').next().unwrap_or_default();
            labels.push(("collective", collective.to_owned()));
            add("muster_rank_call_age_seconds", labels, ms as f64 / 1e3);
        }
    }
    for late in &job.late {
        let mut labels = of_job();
        labels.push(("rank", late.rank.to_string()));
        labels.push(("comm_name", late.group.clone()));
        labels.push(("comm_id", late.key.clone()));
        add("muster_rank_late_ratio", labels, late.share);
    }
    for group in &job.groups {
        let of_group = || {
            let mut labels = of_job();
            labels.push(("comm_name", group.name.clone()));
            labels.push(("comm_id", group.key.clone()));
            labels.push(("nranks", group.size.to_string()));
            labels
        };
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                add(name, of_group(), value);
            }
        };
        put("muster_comm_collective_number", Some(group.seq as f64));
        put("muster_comm_collectives_per_second", group.calls_per_s);
        let gbs = group.bytes_per_s.map(|bytes| bytes / 1e9);
        put("muster_comm_algo_bandwidth_gbs", gbs);
        put("muster_comm_waiting_ranks", Some(f64::from(group.waiting)));
        let oldest = group.oldest_ms as f64 / 1e3;
        put("muster_comm_oldest_call_seconds", Some(oldest));
    }
}
