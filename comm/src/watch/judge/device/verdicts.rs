//! The verdict on a call on devices in words. All of it comes from the stall reports, so that all ranks tell the same.

use super::stall_report::describe;
use super::{Case, Deed, Shown, remark_in};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Class, Verdict, ranks, seconds};
use crate::watch::judge::format::{DESCRIBED_MAX, who};

impl Case<'_> {
    /// What the stall reports show, as a verdict. All of it comes from them, so that all ranks tell the same.
    pub(super) fn tell(&self, stuck: Option<u64>, shown: Shown) -> Verdict {
        let Shown {
            kind,
            mut blamed,
            confidence,
        } = shown;
        blamed.sort_unstable();
        blamed.dedup();
        let subject = self.subject(stuck);
        let seq = subject.map_or(0, |deed| deed.seq);
        let name = subject.map_or_else(|| "calls".to_owned(), |deed| deed.name_on(self.on_device));
        let details = subject.map_or_else(String::new, |deed| deed.ask.code().details());
        let waits = |(_, deed): &(usize, &Deed)| deed.seq == seq && deed.is_open();
        let oldest = self
            .deeds()
            .filter(waits)
            .max_by_key(|(_, deed)| deed.age_ms);
        let latest = self.spoken().map(|(_, words)| words.wall_ms).max();
        let wall_of = |index: usize| Some(self.said[index].as_ref()?.wall_ms);
        let wall_ms = oldest.and_then(|(index, _)| wall_of(index)).or(latest);
        let elapsed_ms = oldest.map_or(0, |(_, deed)| deed.age_ms);
        let waiting = self.deeds().filter(waits);
        let waiting: Vec<u32> = waiting.map(|(index, _)| self.members[index].0).collect();
        let (_, cause) = kind.first_cause();
        let call = CallId { key: self.key, seq };
        let class = Class::of(&kind, 0).0;
        let (place, next) = (cause.to_string(), cause.help().to_owned());
        Verdict {
            class,
            who: match blamed.as_slice() {
                [] => "no rank in particular".to_owned(),
                blamed => who(self.scene, blamed),
            },
            what: format!("{name}{details}"),
            place,
            since_unix_ms: wall_ms.unwrap_or(0).saturating_sub(elapsed_ms),
            elapsed_ms,
            confidence,
            evidence: self.evidence(&blamed, seq),
            others: match waiting.as_slice() {
                [] => "nobody waits".to_owned(),
                all => format!("{} waiting: {} in {name}", all.len(), ranks(all)),
            },
            next,
            cascades: Vec::new(),
            ends: vec![call],
            about: Some(call),
            blamed,
            kind,
        }
    }

    /// The call that the verdict is about.
    fn subject(&self, stuck: Option<u64>) -> Option<&Deed> {
        let stuck = stuck.and_then(|seq| {
            let mut all = 0..self.members.len();
            all.find_map(|index| self.deed_of(index, seq))
        });
        let open = || self.deeds().find(|(_, deed)| deed.is_open());
        let last = || self.deeds().max_by_key(|(_, deed)| deed.seq);
        stuck.or_else(|| open().or_else(last).map(|(_, deed)| deed))
    }

    /// Who has testified, what devices have reported, and where in the program the culprits made the call, or their last one.
    fn evidence(&self, blamed: &[u32], seq: u64) -> Vec<String> {
        let said = self.spoken().count();
        let mut evidence = vec![format!(
            "{said} of {} ranks told what they gave their devices and what became of it",
            self.members.len()
        )];
        let faults = self.spoken().filter_map(|(index, words)| {
            let (kind, age_ms) = words.fault.as_ref()?;
            let (rank, age) = (self.members[index], seconds(*age_ms));
            let ErrorKind::Vendor {
                code, name, detail, ..
            } = kind
            else {
                return Some(format!(
                    "rank {rank} met an error {age} before that: {kind}"
                ));
            };
            let remark = remark_in(detail);
            Some(format!(
                "the device of rank {rank} reported {code} ({name}{remark}) {age} before that"
            ))
        });
        evidence.extend(faults.take(DESCRIBED_MAX));
        let sites = self.spoken().filter_map(|(index, words)| {
            let rank = self.members[index];
            let made = self.deed_of(index, seq).or_else(|| words.deeds.last())?;
            let is_culprit = blamed.contains(&rank.0);
            is_culprit.then(|| format!("rank {rank} made {} at {}", describe(made), made.site))
        });
        evidence.extend(sites.take(DESCRIBED_MAX));
        evidence
    }
}
