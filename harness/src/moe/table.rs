//! Records of `moe` for people.

use std::fmt::Write as _;

use super::dispatch::Phase;
use super::report::{Imbalance, Loads, MoeReport, PhaseTime, Record, Volume};
use super::skew::Skew;
use crate::out::{BAD, GOOD, STRONG, escaped, terminal_width};
use crate::report::terminal::{self, Column};

/// What is above everything.
#[must_use]
pub fn heading(report: &MoeReport) -> String {
    let (model, layout) = (&report.settings.model, &report.settings.layout);
    let emulated = if report.emulated {
        ", EMULATED device"
    } else {
        ""
    };
    format!(
        "{STRONG}{}{STRONG:#}: hidden {}, {} experts, top-{}; {} ranks, tp {}, ep {}, etp {}; {} backend{emulated}\n\
         shape from: {}\n",
        escaped(&model.name),
        model.hidden,
        model.experts,
        model.top_k,
        layout.world_size,
        layout.tp,
        layout.ep,
        layout.etp,
        report.backend,
        escaped(&model.source),
    )
}

/// The columns of the lines.
const COLUMNS: &[Column<Record>] = &[
    Column::label("tokens", 6, |r| r.tokens.to_string()),
    Column::text("routing", 17, |r| escaped(&r.routing)),
    Column::text("dispatcher", 13, |r| r.dispatcher.clone()),
    Column::text("type", 4, |r| r.dtype.clone()),
    Column::figure(["dispatch", "us"], 8, |r| {
        short(r.dispatch.latency_us.median)
    }),
    Column::figure(["p99", "us"], 8, |r: &Record| {
        short(r.dispatch.latency_us.p99)
    })
    .spare(2),
    Column::figure(["combine", "us"], 8, |r| short(r.combine.latency_us.median)),
    Column::figure(["p99", "us"], 8, |r: &Record| {
        short(r.combine.latency_us.p99)
    })
    .spare(2),
    Column::figure(["trip", "us"], 8, |r| short(r.round_trip.latency_us.median)),
    Column::figure(["busbw", "GB/s"], 7, |r: &Record| {
        rate(r.dispatch.busbw_gbytes_per_s)
    })
    .spare(1),
    Column::figure(["DeepEP", "GB/s"], 7, |r: &Record| {
        rate(r.dispatch.deepep_gbytes_per_s)
    })
    .spare(5),
    Column::figure(["experts", "got (asked)"], 12, |r: &Record| {
        loads(r, |loads| &loads.experts)
    })
    .spare(4),
    Column::figure(["ep ranks", "got (asked)"], 12, |r: &Record| {
        loads(r, |loads| &loads.ranks)
    })
    .spare(3),
    Column::figure(["wrong", ""], 5, |r| {
        let style = if r.wrong == 0 { GOOD } else { BAD };
        format!("{style}{}{style:#}", r.wrong)
    }),
];

/// The names of the columns.
#[must_use]
pub fn columns() -> String {
    terminal::head(COLUMNS, terminal_width())
}

/// The greatest load over the mean, as it was and as it was asked for.
fn loads(record: &Record, of: fn(&Loads) -> &Skew) -> String {
    let Imbalance {
        asked, achieved, ..
    } = &record.imbalance;
    let asked = asked.as_ref().map(|asked| short(of(asked).max_over_mean));
    let asked = asked.unwrap_or_else(|| "-".to_owned());
    format!("{} ({asked})", short(of(achieved).max_over_mean))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), short)
}

fn short(value: f64) -> String {
    match value {
        value if value >= 99_950.0 => format!("{:.0}k", value / 1e3),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// The line of a record, and below it what a capacity left out and filled up.
#[must_use]
pub fn line(record: &Record) -> String {
    let why_not = record.unsupported.as_deref().map(escaped);
    let line = terminal::line(COLUMNS, terminal_width(), record, why_not.as_deref());
    match capacity(record) {
        Some(text) => format!("{line}       {text}\n"),
        None => line,
    }
}

/// What a capacity dropped, and how much of what was sent was padding; in percent.
#[must_use]
pub fn capacity(record: &Record) -> Option<String> {
    let Volume {
        logical_bytes,
        padding_bytes,
        ..
    } = record.volume;
    let dropped = record.imbalance.dropped * 100.0;
    if padding_bytes == 0 && dropped == 0.0 {
        return None;
    }
    let sent = (logical_bytes + padding_bytes).max(1);
    let padding = padding_bytes as f64 / sent as f64 * 100.0;
    Some(format!(
        "{dropped:.2} % of all selections dropped; {padding:.2} % of the rows sent are padding"
    ))
}

/// Phases, waits by rank and volume of a record.
#[must_use]
pub fn details(record: &Record) -> String {
    let mut text = quantiles(record);
    let _ = writeln!(
        text,
        "{STRONG}phases{STRONG:#}, median of the slowest rank in us:"
    );
    for time in &record.phases_us {
        let remark = match time.phase {
            Phase::Staging => "  copies between host and devices; in no sum",
            Phase::Back
            | Phase::Counts
            | Phase::EtpGather
            | Phase::EtpReduce
            | Phase::Experts
            | Phase::Permute
            | Phase::Probs
            | Phase::Tokens
            | Phase::Unpermute => "",
        };
        let (name, median) = (phase_name(time.phase), short(time.median));
        let _ = writeln!(text, "  {name:<11} {median:>9}{remark}");
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
    let _ = writeln!(
        text,
        "  beside them {:.2} MiB of weights and expert numbers; between the parts of experts {:.2} MiB there, {:.2} MiB back",
        mib(volume.beside_bytes as f64),
        mib(volume.etp_gather_bytes as f64),
        mib(volume.etp_reduce_bytes as f64),
    );
    text.push_str(&imbalance(record));
    text.push_str(&ranks(record));
    text
}

/// Quantiles and both rules of bandwidth, for each part of the step.
fn quantiles(record: &Record) -> String {
    let mut text = format!(
        "\n{STRONG}slowest rank{STRONG:#}, us {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}   GB/s {:>9} {:>9} {:>9}\n",
        "min", "median", "p90", "p99", "p99.9", "max", "algbw", "busbw", "DeepEP"
    );
    for (name, timing) in [
        ("dispatch", &record.dispatch),
        ("combine", &record.combine),
        ("both ways", &record.round_trip),
    ] {
        let latency = &timing.latency_us;
        let _ = write!(text, "  {name:<14}");
        for time in [
            latency.min,
            latency.median,
            latency.p90,
            latency.p99,
            latency.p99_9,
            latency.max,
        ] {
            let _ = write!(text, " {:>9}", short(time));
        }
        text.push_str("       ");
        for rate in [
            timing.algbw_gbytes_per_s,
            timing.busbw_gbytes_per_s,
            timing.deepep_gbytes_per_s,
        ] {
            let _ = write!(text, " {:>9}", self::rate(rate));
        }
        text.push('\n');
    }
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
        let _ = write!(text, " {:>15}", format!("wait {}", phase_name(*phase)));
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
            let _ = write!(text, " {wait:>15}");
        }
        text.push('\n');
    }
    text
}

/// The name of a phase, as reports have it.
#[must_use]
pub fn phase_name(phase: Phase) -> &'static str {
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
        Phase::Staging => "staging",
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
        return format!(
            "{BAD}VERDICT {class}{BAD:#} {}\n{}",
            escaped(&verdict.text),
            verdict.evidence_and_next()
        );
    }
    if let Some(record) = wrong {
        let text = record.wrong_text.as_deref().unwrap_or("");
        return format!(
            "{BAD}wrong data{BAD:#}{on}: {} {}, first: {}\n",
            record.wrong,
            if record.wrong == 1 {
                "element"
            } else {
                "elements"
            },
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
