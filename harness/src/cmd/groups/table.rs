//! Groups as tables for people: short forms of long lists, and the default-ETP remark.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use muster_comm::layout::{Dims, FrameworkLayout, GroupKind, Layout, Part, VllmLayout, VllmSizes};
use muster_comm::types::Rank;

use super::json::backend_name;
use super::{GroupsArgs, Lists, View};

/// Members of a group that are written out; a longer group is shortened.
const MEMBERS_SHOWN: usize = 8;

/// Width of the column that lists groups, in characters.
const GROUPS_WIDTH: usize = 56;

/// Writes every view, with a blank line between two.
pub(super) fn write(args: &GroupsArgs, views: &[View], out: &mut dyn Write) -> io::Result<()> {
    if let Some(preset) = args.preset {
        writeln!(out, "{}: {}", preset.name, preset.summary)?;
        writeln!(out, "source: {}", preset.source)?;
        writeln!(out, "note: {}", preset.notes)?;
        writeln!(out)?;
    }
    for (index, view) in views.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_view(args, view, out)?;
    }
    Ok(())
}

fn write_view(args: &GroupsArgs, view: &View, out: &mut dyn Write) -> io::Result<()> {
    let phase = view
        .phase
        .map_or_else(String::new, |name| format!("[{name}] "));
    writeln!(out, "{phase}{}", sizes(&view.layout))?;
    for remark in remarks(view) {
        writeln!(out, "{remark}")?;
    }
    if let Some(calls) = &view.calls {
        for (index, call) in calls.iter().enumerate() {
            let backend = backend_name(call.backend);
            let members = if args.all {
                in_full(&call.ranks)
            } else {
                short(&call.ranks)
            };
            writeln!(out, "{index:>6}  {:<54} {backend:<8} {members}", call.name)?;
        }
        return Ok(());
    }
    if let Some(rank) = args.rank {
        return write_rank(view, Rank(rank), out);
    }
    if args.all {
        return write_all(view, out);
    }
    let mut table = new_table(["Group", "Meaning", "Groups x ranks", "Ranks"]);
    for entry in &view.entries {
        let size = entry.lists.get(0).map_or(0, |members| members.len());
        let shape = format!("{} x {size}", entry.lists.len());
        let alone = size == 1 && entry.lists.len() == view.layout.world_size() as usize;
        let groups = if alone {
            "each rank alone".to_owned()
        } else {
            in_a_line(&entry.lists)
        };
        table.add_row([entry.name, entry.meaning, &shape, &groups]);
    }
    writeln!(out, "{table}")
}

fn write_all(view: &View, out: &mut dyn Write) -> io::Result<()> {
    for entry in &view.entries {
        writeln!(out, "\n{}: {}", entry.name, entry.meaning)?;
        for members in entry.lists.iter() {
            writeln!(out, "  {}", in_full(&members))?;
        }
    }
    Ok(())
}

fn write_rank(view: &View, rank: Rank, out: &mut dyn Write) -> io::Result<()> {
    if let Some(layout) = view.layout.megatron() {
        let dense = layout.coordinates(Part::Dense, rank).unwrap_or_default();
        let expert = layout.coordinates(Part::Expert, rank).unwrap_or_default();
        writeln!(
            out,
            "rank {rank}: tp {} cp {} dp {} pp {}; expert part: etp {} ep {} edp {}",
            dense.tp, dense.cp, dense.dp, dense.pp, expert.tp, expert.ep, expert.dp
        )?;
    }
    let mut table = new_table(["Group", "Meaning", "Rank in group", "Ranks"]);
    for entry in &view.entries {
        let (place, members) = match entry.lists.holding(rank) {
            None => ("-".to_owned(), "not a member of any".to_owned()),
            Some((_, members)) => {
                let place = members.iter().position(|member| *member == rank);
                let place = place.map_or_else(String::new, |place| place.to_string());
                (format!("{place} of {}", members.len()), short(&members))
            }
        };
        table.add_row([entry.name, entry.meaning, &place, &members]);
    }
    writeln!(out, "{table}")
}

fn new_table(header: [&str; 4]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    table
}

fn sizes(layout: &FrameworkLayout) -> String {
    match layout {
        FrameworkLayout::Megatron(layout) => sizes_of_megatron(layout),
        FrameworkLayout::Verl(layout) => format!("{layout}: device meshes of verl"),
        FrameworkLayout::Vllm(layout) => sizes_of_vllm(layout),
    }
}

fn sizes_of_vllm(layout: &VllmLayout) -> String {
    let VllmSizes {
        tp,
        pp,
        pcp,
        dcp,
        dp,
    } = layout.sizes();
    let replicas = match layout.replicas() {
        1 => String::new(),
        replicas => format!(", {replicas} replicas"),
    };
    format!(
        "{layout}: TP={tp} PP={pp} PCP={pcp} DCP={dcp} DP={dp}{replicas}; groups of vLLM with vllm-ascend {}",
        layout.version()
    )
}

fn sizes_of_megatron(layout: &Layout) -> String {
    let Dims {
        world,
        tp,
        cp,
        pp,
        dp,
        ep,
        etp,
        edp,
    } = layout.dims();
    format!(
        "world size {world}: TP={tp} CP={cp} PP={pp} DP={dp}; experts: EP={ep} ETP={etp} \
         expert-DP={edp}; order {}",
        layout.order()
    )
}

/// What follows for the experts, wherever that may surprise.
fn remarks(view: &View) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(layout) = view.layout.vllm() {
        remarks.extend(layout.remarks().iter().map(ToString::to_string));
    }
    if let Some(layout) = view.layout.megatron().filter(|layout| layout.dims().ep > 1) {
        remarks.push(layout.remark());
        if let Some(other) = layout.etp_alternative() {
            remarks.push(format!(
                "etp was not given, so Megatron takes tp; with etp=1 expert-DP would be {} and ep \
                 groups {}",
                other.dims().edp,
                in_a_line(&Lists::Groups(other.groups(GroupKind::Ep)))
            ));
        }
    }
    remarks.extend(view.remarks.iter().cloned());
    remarks
}

/// As many groups as fit into a line.
pub(super) fn in_a_line(lists: &Lists) -> String {
    let mut text = String::new();
    for (index, members) in lists.iter().enumerate() {
        let next = short(&members);
        if index > 0 && text.len() + next.len() > GROUPS_WIDTH {
            let more = lists.len() - index;
            return format!("{text} and {more} more");
        }
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&next);
    }
    text
}

/// `[0,2,4,6]`; longer groups as `[0..15]` where consecutive, `[0,2,..,30]` where evenly spaced.
fn short(members: &[Rank]) -> String {
    let (Some(first), Some(last)) = (members.first(), members.last()) else {
        return "[]".to_owned();
    };
    if members.len() <= MEMBERS_SHOWN {
        return in_full(members);
    }
    let step = members[1].0.wrapping_sub(first.0);
    let even = members
        .windows(2)
        .all(|pair| pair[1].0.wrapping_sub(pair[0].0) == step);
    if even && step == 1 {
        return format!("[{first}..{last}]");
    }
    if even {
        return format!("[{first},{},..,{last}]", members[1]);
    }
    let head = in_full(&members[..MEMBERS_SHOWN / 2]);
    format!("{},..,{last}]", head.trim_end_matches(']'))
}

fn in_full(members: &[Rank]) -> String {
    let words: Vec<_> = members.iter().map(ToString::to_string).collect();
    format!("[{}]", words.join(","))
}
