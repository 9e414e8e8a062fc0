//! How messages put lists, times and foreign text.

use std::fmt;

use super::card::Claimant;
use super::error::WorldClaim;
use super::presence::Absence;
use crate::host_load::HostLoad;
use crate::types::Rank;

/// Text from elsewhere, shown without control characters and cut where it gets long.
pub(super) struct Plain<'a>(pub(super) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Characters after which foreign text is cut in a message.
        const CHARS_MAX: usize = 200;
        for (at, char) in self.0.chars().enumerate() {
            if at == CHARS_MAX {
                return f.write_str("…");
            }
            if char.is_control() {
                write!(f, "{}", char.escape_default())?;
            } else {
                fmt::Write::write_char(f, char)?;
            }
        }
        Ok(())
    }
}

/// Milliseconds, shown as seconds with one digit, or as they are below a second.
pub(super) struct Seconds(pub(super) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000 {
            return write!(f, "{} ms", self.0);
        }
        write!(f, "{}.{} s", self.0 / 1000, self.0 % 1000 / 100)
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = self.missing.len() == 1 && self.missing_more == 0;
        write!(
            f,
            "rank{} {}",
            if one { "" } else { "s" },
            Ranks(&self.missing)
        )?;
        if self.missing_more > 0 {
            write!(f, " and {} more", self.missing_more)?;
        }
        write!(
            f,
            " of {} missing after {}",
            self.world_size,
            Seconds(self.waited_ms)
        )?;
        if self.present.is_empty() {
            return Late(self.late).fmt(f);
        }
        let ranks: Vec<Rank> = self.present.iter().map(|presence| presence.rank).collect();
        let since = self.present.iter().map(|presence| presence.since_ms);
        let (latest, earliest) = (since.clone().min().unwrap_or(0), since.max().unwrap_or(0));
        write!(f, "; present {} since {}", Ranks(&ranks), Seconds(earliest))?;
        if latest != earliest {
            write!(f, " to {}", Seconds(latest))?;
        }
        let mut hosts: Vec<&str> = self
            .present
            .iter()
            .map(|presence| presence.host.as_str())
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        write!(f, "; hosts seen {}", Hosts(&hosts))?;
        self.seen
            .iter()
            .try_for_each(|seen| write!(f, "; {}", Plain(seen)))?;
        Late(self.late).fmt(f)
    }
}

/// Why missing ranks may only be late.
pub(super) struct Late(pub(super) Option<HostLoad>);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |load| {
            write!(f, "; the host is crowded ({load}), and ranks still arrive")
        })
    }
}

pub(super) fn held(holder: Option<&Claimant>) -> String {
    holder.map_or_else(
        || "not free".to_owned(),
        |holder| format!("held by {holder}"),
    )
}

pub(super) fn at(host: &str, pid: u32) -> String {
    if pid == 0 {
        return " (never joined)".to_owned();
    }
    format!(" ({} pid {pid})", Plain(host))
}

/// Foreign text inside quotes: the quoting escapes, this only cuts.
pub(super) struct Short<'a>(pub(super) &'a str);

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Characters after which a name is cut in a message.
        const CHARS_MAX: usize = 80;
        match self.0.char_indices().nth(CHARS_MAX) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
        }
    }
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Plain(self.0).fmt(f)
    }
}

/// Ranks in ascending order, runs folded: `0-3, 7`.
pub(super) struct Ranks<'a>(pub(super) &'a [Rank]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(first) = rest.first() {
            let run = rest
                .iter()
                .zip(first.0..)
                .take_while(|(rank, expected)| rank.0 == *expected)
                .count();
            match run {
                1 => write!(f, "{first}")?,
                _ => write!(f, "{first}-{}", rest[run - 1])?,
            }
            rest = &rest[run..];
            if !rest.is_empty() {
                f.write_str(", ")?;
            }
        }
        Ok(())
    }
}

struct Hosts<'a>(&'a [&'a str]);

impl fmt::Display for Hosts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Hosts that a message names.
        const NAMED: usize = 16;
        for (at, host) in self.0.iter().take(NAMED).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{}", Plain(host))?;
        }
        match self.0.len().checked_sub(NAMED) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more"),
        }
    }
}

pub(super) struct Claims<'a>(pub(super) &'a [WorldClaim]);

impl fmt::Display for Claims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, claim) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let source = Plain(&claim.source);
            match claim.ranks.len() {
                0 => write!(f, "{comma}the coordinator expects {}", claim.world_size)?,
                1 => write!(
                    f,
                    "{comma}rank {} says {}",
                    claim.ranks[0], claim.world_size
                )?,
                _ => write!(
                    f,
                    "{comma}ranks {} say {}",
                    Ranks(&claim.ranks),
                    claim.world_size
                )?,
            }
            if !claim.source.is_empty() {
                write!(f, " (from {source})")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::error::RendezvousError;
    use crate::rendezvous::presence::Presence;

    fn ranks(numbers: &[u32]) -> Vec<Rank> {
        numbers.iter().map(|number| Rank(*number)).collect()
    }

    #[test]
    fn ranks_are_shown_with_runs_folded() {
        assert_eq!(Ranks(&ranks(&[])).to_string(), "");
        assert_eq!(Ranks(&ranks(&[4])).to_string(), "4");
        assert_eq!(
            Ranks(&ranks(&[0, 1, 2, 5, 7, 8])).to_string(),
            "0-2, 5, 7-8"
        );
    }

    #[test]
    fn a_missing_rank_is_named_with_those_present_their_time_and_hosts() {
        let presence = |rank, host: &str, since_ms| Presence {
            rank: Rank(rank),
            host: host.to_owned(),
            pid: 100 + rank,
            since_ms,
        };
        let error = RendezvousError::Missing {
            absence: Box::new(Absence {
                world_size: 4,
                waited_ms: 5000,
                missing: ranks(&[2]),
                missing_more: 0,
                present: vec![
                    presence(0, "n1", 4900),
                    presence(1, "n1", 4500),
                    presence(3, "n\u{1b}2", 450),
                ],
                seen: Vec::new(),
                late: None,
            }),
        };
        assert_eq!(
            error.to_string(),
            "rank 2 of 4 missing after 5.0 s; present 0-1, 3 since 4.9 s to 450 ms; \
             hosts seen n\\u{1b}2, n1"
        );
        assert_eq!(error.exit_code(), 10);
    }

    #[test]
    fn a_world_disagreement_says_who_says_what_and_from_where() {
        let claim = |world_size, of: &[u32], source: &str| WorldClaim {
            world_size,
            ranks: ranks(of),
            source: source.to_owned(),
        };
        let error = RendezvousError::WorldSize {
            claims: vec![
                claim(4, &[], ""),
                claim(4, &[0, 2, 3], "torchrun"),
                claim(3, &[1], "SLURM_NTASKS"),
            ],
        };
        assert_eq!(
            error.to_string(),
            "world size: the coordinator expects 4, ranks 0, 2-3 say 4 (from torchrun), \
             rank 1 says 3 (from SLURM_NTASKS)"
        );
        assert_eq!(error.exit_code(), 11);
    }
}
