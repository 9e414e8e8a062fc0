//! Groups that ranks have destroyed while others wait in them.

use super::{Graph, Waiter, Why};
use crate::watch::report::{Destroyed, GroupState, Report};

impl<'a> Graph<'a> {
    /// What is remembered of the group of a call where the rank has destroyed it. Where most of the members destroyed it without
    /// a call and made it again, who still waits in it is odd, and there is nothing.
    pub(super) fn destroyed_in<'r>(
        &self,
        report: &'r Report,
        waiter: &Waiter<'_>,
    ) -> Option<&'r Destroyed> {
        let group = waiter.group;
        let is_gone = report.group(group.key).is_none();
        let gone = report.destroyed(group.key).filter(|_| is_gone)?;
        if !has_remade(report, group) {
            return Some(gone);
        }
        let members = group.members.iter();
        let reports = members.filter_map(|rank| self.scene.member(*rank)?.fresh());
        let (mut remade, mut waiting, mut is_used) = (0, 0, false);
        for report in reports {
            let has_come = |one: &GroupState| one.call.is_some() || one.entered >= waiter.call.seq;
            let past = report.destroyed(group.key);
            remade += usize::from(has_remade(report, group));
            waiting += usize::from(report.group(group.key).is_some_and(has_come));
            is_used |= past.is_some_and(|one| one.calls > 0);
        }
        (is_used || remade <= waiting).then_some(gone)
    }

    /// What a rank has destroyed that the chains from these waiters end at, the oldest of it.
    pub(in super::super) fn oldest_destroyed(&self, from: &[usize]) -> Option<&'a Destroyed> {
        let leaves = self.leaves.iter();
        let destroyed = leaves
            .filter(|leaf| from.contains(&leaf.missed_by))
            .filter_map(|leaf| {
                let Why::Destroyed { group } = leaf.why else {
                    return None;
                };
                Some(group)
            });
        destroyed.max_by_key(|group| group.age_ms)
    }

    /// The group of a message in this circle that its sender has destroyed, and who that is: while the sender waits for the
    /// receiver nothing more can come.
    pub(in super::super) fn destroyed_within(
        &self,
        cycle: &[usize],
    ) -> Option<(u32, usize, &'a Destroyed)> {
        cycle.iter().find_map(|at| {
            let waiter = self.waiters[*at];
            let missing = waiter.wait.missing.iter();
            missing.copied().find_map(|rank| {
                let report = self.scene.member(rank)?.fresh()?;
                Some((rank, *at, self.destroyed_in(report, &waiter)?))
            })
        })
    }
}

/// Whether a rank destroyed this group without a call or a message of it and has made it again.
pub(in super::super) fn has_remade(report: &Report, group: &GroupState) -> bool {
    report.group(group.key).is_none()
        && report
            .destroyed(group.key)
            .is_some_and(|gone| gone.calls == 0)
        && report.groups.iter().any(|one| one.name == group.name)
}
