//! Records of `moe` for people.

use std::fmt::Write as _;

use super::dispatch::Phase;
use super::report::{MoeReport, PhaseTime, Record, Timing};
use crate::out::{BAD, GOOD, STRONG, escaped};

/// What is above everything.
#[must_use]
pub fn heading(report: &MoeReport) -> String {
    let (model, layout) = (&report.model, &report.layout);
    let emulated = if report.emulated {
        ", EMULATED device"
    } else {
        ""
    };
    format!(
        "{STRONG}{}{STRONG:#}: hidden {}, {} experts, top-{}; {} ranks, tp {}, ep {}, etp {}; {} backend{emulated}\n",
        escaped(&model.name),
        model.hidden,
        model.experts,
        model.top_k,
        layout.world_size,
        layout.tp,
        layout.ep,
        layout.etp,
        report.backend,
    )
}

/// The names of the columns.
#[must_use]
pub fn columns() -> String {
    format!(
        "{:>7}  {:<22} {:<13} {:<5} {:>12} {:>12} {:>12} {:>9} {:>9} {:>13} {:>6}\n\
         {:>7}  {:<22} {:<13} {:<5} {:>12} {:>12} {:>12} {:>9} {:>9} {:>13} {:>6}\n",
        "tokens",
        "routing",
        "dispatcher",
        "type",
        "dispatch us",
        "combine us",
        "round trip",
        "busbw",
        "DeepEP",
        "max/mean",
        "wrong",
        "a rank",
        "",
        "",
        "",
        "median  p99",
        "median  p99",
        "median us",
        "GB/s",
        "GB/s",
        "expert  rank",
        "",
    )
}

fn pair(timing: &Timing) -> String {
    format!(
        "{} {}",
        short(timing.latency_us.median),
        short(timing.latency_us.p99)
    )
}

fn short(value: f64) -> String {
    match value {
        value if value >= 99_950.0 => format!("{:.0}k", value / 1e3),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// The line of a record.
#[must_use]
pub fn line(record: &Record) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), short);
    let loads = &record.imbalance.achieved;
    let skew = format!(
        "{:.2} {:.2}",
        loads.experts.max_over_mean, loads.ranks.max_over_mean
    );
    let style = if record.wrong == 0 { GOOD } else { BAD };
    format!(
        "{:>7}  {:<22} {:<13} {:<5} {:>12} {:>12} {:>12} {:>9} {:>9} {:>13} {style}{:>6}{style:#}\n",
        record.tokens,
        escaped(&record.routing),
        record.dispatcher,
        record.dtype,
        pair(&record.dispatch),
        pair(&record.combine),
        short(record.round_trip.latency_us.median),
        rate(record.dispatch.busbw_gbytes_per_s),
        rate(record.dispatch.deepep_gbytes_per_s),
        skew,
        record.wrong,
    )
}

/// Phases, waits by rank and volume of a record.
#[must_use]
pub fn details(record: &Record) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\n{STRONG}phases{STRONG:#}, median of the slowest rank in us:"
    );
    for time in &record.phases_us {
        let _ = writeln!(text, "  {:<11} {:>9}", name(time.phase), short(time.median));
    }
    let volume = &record.volume;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let _ = writeln!(
        text,
        "{STRONG}volume{STRONG:#} of a dispatch: {} rows of {} B, {:.2} MiB in all, {:.2} MiB off their rank; \
         busiest rank {:.2} MiB",
        volume.rows,
        volume.row_bytes,
        mib(volume.logical_bytes as f64),
        mib(volume.off_rank_bytes as f64),
        mib(volume.busiest_bytes as f64),
    );
    text.push_str(&imbalance(record));
    text.push_str(&ranks(record));
    text
}

fn imbalance(record: &Record) -> String {
    let achieved = &record.imbalance.achieved;
    let mut text = format!("{STRONG}imbalance{STRONG:#} (max/mean, Gini): ");
    if let Some(asked) = &record.imbalance.asked {
        let _ = write!(
            text,
            "asked experts {:.2} {:.2}, ranks {:.2} {:.2}; ",
            asked.experts.max_over_mean,
            asked.experts.gini,
            asked.ranks.max_over_mean,
            asked.ranks.gini,
        );
    }
    let _ = writeln!(
        text,
        "got experts {:.2} {:.2}, ranks {:.2} {:.2}; {} of {} sources without tokens",
        achieved.experts.max_over_mean,
        achieved.experts.gini,
        achieved.ranks.max_over_mean,
        achieved.ranks.gini,
        record.imbalance.sources.empty,
        record.ranks.len(),
    );
    if record.imbalance.dropped > 0.0 {
        let percent = record.imbalance.dropped * 100.0;
        let _ = writeln!(
            text,
            "the capacity dropped {percent:.2} % of all selections"
        );
    }
    text
}

/// A line a rank: who carried much, who waited.
fn ranks(record: &Record) -> String {
    let phases: Vec<Phase> = record
        .ranks
        .first()
        .map(|rank| rank.wait_us.iter().map(|wait| wait.phase).collect())
        .unwrap_or_default();
    let mut text = format!(
        "{STRONG}ranks{STRONG:#}, medians in us; wait: from coming to the last of the group coming\n\
         {:>4} {:>7} {:>9} {:>9} {:>9} {:>9}",
        "rank", "tokens", "sent", "received", "dispatch", "combine",
    );
    for phase in &phases {
        let _ = write!(text, " {:>11}", format!("wait {}", name(*phase)));
    }
    text.push('\n');
    for rank in &record.ranks {
        let _ = write!(
            text,
            "{:>4} {:>7} {:>9} {:>9} {:>9} {:>9}",
            rank.rank,
            rank.tokens,
            rank.rows_sent,
            rank.rows_received,
            short(rank.dispatch_us),
            short(rank.combine_us),
        );
        for phase in &phases {
            let time = |wait: &&PhaseTime| wait.phase == *phase;
            let wait = rank.wait_us.iter().find(time);
            let wait = wait.map_or_else(|| "-".to_owned(), |wait| short(wait.median));
            let _ = write!(text, " {wait:>11}");
        }
        text.push('\n');
    }
    text
}

/// The name of a phase, as reports have it.
fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Counts => "counts",
        Phase::Permute => "permute",
        Phase::Tokens => "tokens",
        Phase::Probs => "probs",
        Phase::EtpGather => "etp-gather",
        Phase::Experts => "experts",
        Phase::EtpReduce => "etp-reduce",
        Phase::Back => "back",
        Phase::Unpermute => "unpermute",
    }
}

/// The last lines.
#[must_use]
pub fn closing(report: &MoeReport) -> String {
    let on = if report.emulated {
        " on an EMULATED device"
    } else {
        ""
    };
    let wrong = report.records.iter().find(|record| record.wrong > 0);
    if let Some(verdict) = &report.verdict {
        let class = verdict.class.class();
        let mut text = format!("{BAD}VERDICT {class}{BAD:#} {}\n", escaped(&verdict.text));
        for line in &verdict.evidence {
            let _ = writeln!(text, "  evidence: {}", escaped(line));
        }
        if let Some(next) = &verdict.next {
            let _ = writeln!(text, "  next: {}", escaped(next));
        }
        return text;
    }
    if let Some(record) = wrong {
        let text = record.wrong_text.as_deref().unwrap_or("");
        return format!(
            "{BAD}wrong data{BAD:#}{on}: {} elements, first: {}\n",
            record.wrong,
            escaped(text)
        );
    }
    let lines = report.records.len();
    let checked = "every checked row came from its token, every combined token is right";
    format!(
        "{GOOD}{lines} of {} lines measured{on}{GOOD:#}; {checked}\n",
        report.cells_planned
    )
}
